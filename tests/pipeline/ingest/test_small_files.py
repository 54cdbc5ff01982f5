"""Small files of text, and ids of tables, by the short way against the long one: nothing that is published may differ."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.engine.stage import Outcome
from corpusmill.pipeline.ingest import small_files
from corpusmill.pipeline.ingest.fields import scalar
from corpusmill.pipeline.ingest.readers.parquet import _scalars
from corpusmill.pipeline.ingest.stage import Ingest
from corpusmill.schemas.recipe import Recipe

CONTENTS = [
    b"", b"plain", b"two\r\nlines\n", "é 語 Ã¤".encode(), b"\xef\xbb\xbfmark", b"\xff\xfea\0b\0", b"\x1b$B$\"\x1b(B", b"~{<:Ky2;S{#,~}", b"\x00" * 20,
    b"caf\xe9 cr\xe8me", b"a\x80b", b"PK\x03\x04", b"BZh9", b"(text)", b"\x1f\x8b\x08\x00cut", gzip.compress(b"packed text"), b"x" * 3_000,
    b"x" * 30_000, "a\x00b\x07".encode("utf-16-le"), b" \n ", b"Pale *M\x18", "word ".encode("utf-32"),
]  # fmt: skip


def outcomes(folder: Path, params: dict[str, Any], **source: Any) -> list[tuple[str, Outcome, int]]:
    recipe = {"name": "t", "sources": {"s": {"paths": [str(folder)], **source}}, "ingest": params}
    stage = Ingest(Recipe.model_validate(recipe))
    return [found for unit in stage.units() for found in stage.read(unit)]


def test_the_same_is_published(tmp_path: Path) -> None:
    for number, content in enumerate(CONTENTS * 3):
        (tmp_path / f"{number:03d}{('.txt', '.md', '.txt.gz')[number // len(CONTENTS)]}").write_bytes(content)
    taken = 0
    original = small_files.document

    def counted(*given: Any) -> Any:
        nonlocal taken
        found = original(*given)
        taken += found is not None
        return found

    for params in ({}, {"partition_mb": 0.002, "max_record_mb": 0.01}, {"partition_mb": 0.0001}):
        with mock.patch.object(small_files, "document", counted):
            short = outcomes(tmp_path, params)
        with mock.patch.object(small_files, "document", return_value=None):
            long = outcomes(tmp_path, params)
        assert [(name, size, one.counters) for name, one, size in short] == [
            (name, size, one.counters) for name, one, size in long
        ]
        for (_, one, _), (_, other, _) in zip(short, long, strict=True):
            assert one.kept.equals(other.kept) and one.decisions.equals(other.decisions)
    assert taken > 3 * 2 * 5


@given(
    st.sampled_from([pa.string(), pa.large_string(), pa.int8(), pa.uint64(), pa.float64(), pa.bool_(), pa.null()]).flatmap(
        lambda kind: st.tuples(
            st.just(kind),
            st.lists(
                st.none()
                | {
                    "string": st.text(st.characters(codec="utf-8"), max_size=3), "large_string": st.text(st.characters(codec="utf-8"), max_size=3),
                    "int8": st.integers(-128, 127), "uint64": st.integers(0, 2**64 - 1), "double": st.floats(), "bool": st.booleans(), "null": st.none(),
                }[str(kind)], max_size=6,
            ),
            st.integers(0, 6),
        )
    )
)  # fmt: skip
def test_columns_of_ids_are_those_of_the_values(column: tuple[pa.DataType, list[Any], int]) -> None:
    kind, values, begin = column
    array = pa.array(values, kind).slice(begin)
    wanted = [scalar(value) for value in array.to_pylist()]
    assert _scalars(pa.chunked_array([array], kind)).equals(pa.array(wanted, pa.string()))
