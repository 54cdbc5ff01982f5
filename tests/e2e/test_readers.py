"""Every Parquet file that a run publishes, by the readers that people have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# What Spark's Parquet reader has a type for; nanoseconds and Arrow's null and dictionary types are not among them.
SPARK = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_string,
    pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_date32,
)  # fmt: skip


@pytest.fixture(scope="module")
def files(quickstart_run: Path) -> list[Path]:
    found = sorted(quickstart_run.rglob("*.parquet"))
    assert len({file.parent for file in found}) > 10 and any(
        pq.read_metadata(file).num_rows == 0 for file in found
    )
    return found


def rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)


def test_no_row_group_is_empty(files: list[Path]) -> None:
    for file in files:
        metadata = pq.read_metadata(file)
        assert all(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)), file


def test_pandas_polars_duckdb(files: list[Path]) -> None:
    duckdb, pandas, polars = map(pytest.importorskip, ("duckdb", "pandas", "polars"))
    for file in files:
        assert len(pandas.read_parquet(file)) == rows(file)
        assert len(polars.read_parquet(file)) == rows(file)
        assert len(duckdb.sql(f"select * from '{file}'").fetchall()) == rows(file)


def test_spark_has_a_type_for_every_column(files: list[Path]) -> None:
    def leaves(kind: pa.DataType) -> list[pa.DataType]:
        if pa.types.is_struct(kind):
            return [leaf for field in kind for leaf in leaves(field.type)]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return leaves(kind.value_type)
        return [kind]

    for file in files:
        for field in pq.read_schema(file):
            assert all(any(known(leaf) for known in SPARK) for leaf in leaves(field.type)), (file, field)


def test_hugging_face_datasets(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    for folder in sorted({file.parent for file in files}):
        here = [file for file in files if file.parent == folder]
        given = {
            "data_files": [str(file) for file in here],
            "split": "train",
            "cache_dir": str(tmp_path / "cache"),
        }
        streamed = datasets.load_dataset("parquet", streaming=True, **given)
        assert sum(1 for _ in streamed) == sum(map(rows, here)), folder
        if any(map(rows, here)):  # of a data set without any row it says so itself
            assert len(datasets.load_dataset("parquet", **given)) == sum(map(rows, here)), folder
