"""Tables in, by the Arrow PyCapsule interface, and tables out, which lie in files that are mapped into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.schemas.tables import DOCUMENTS

Documents = Any  # an object with __arrow_c_stream__ or __arrow_c_array__, or an iterable of such
ONE_SOURCE = "input"  # of a table without a column `source`
FILE = "table.parquet"


def readers(documents: Documents) -> Iterator[pa.RecordBatchReader]:
    """The tables of `documents` as streams of batches; raises `UserError` for what is none."""
    if hasattr(documents, "__arrow_c_stream__"):
        yield pa.RecordBatchReader.from_stream(documents)
    elif hasattr(documents, "__arrow_c_array__"):
        batch = pa.record_batch(documents)
        yield pa.RecordBatchReader.from_batches(batch.schema, [batch])
    elif hasattr(documents, "with_format") and hasattr(
        documents, "iter"
    ):  # datasets before it had the interface
        yield from readers(documents.with_format("arrow").iter(batch_size=1000))
    elif isinstance(documents, Iterable) and not isinstance(documents, str | bytes | dict):
        for item in documents:
            if not hasattr(item, "__arrow_c_stream__") and not hasattr(item, "__arrow_c_array__"):
                raise UserError(_not_a_table(item))
            yield from readers(item)
    else:
        raise UserError(_not_a_table(documents))


def _not_a_table(value: Any) -> str:
    return (
        f"documents: a {type(value).__name__} is not a table; give a pyarrow, pandas, Polars, DuckDB or datasets table, or an"
        " iterator of tables or batches"
    )


def write_input(documents: Documents, folder: Path, text_column: str) -> tuple[dict[str, str], int]:
    """Write `documents` as one Parquet file per source, one batch in memory at a time: (source -> file, rows).

    Tables with all columns of a document (a result of these functions) keep their ids; of others, the column `source` names
    the source, and a document's id is made of it and of its number in there: how a table is cut into batches does not
    matter. Raises `UserError` for tables of different columns.
    """
    with _Writers(folder) as writers:
        for reader in readers(documents):
            whole = set(DOCUMENTS.names) <= set(reader.schema.names)
            for batch in reader:
                table = _plain(pa.Table.from_batches([batch]))
                if text_column not in table.column_names:
                    columns = ", ".join(table.column_names)
                    raise UserError(
                        f"documents: no column '{text_column}' (columns: {columns}); name it with text_column"
                    )
                writers.rows += len(table)
                if whole or "source" not in table.column_names:
                    writers.write(ONE_SOURCE, table)
                    continue
                names = table["source"].cast(pa.string()).fill_null(ONE_SOURCE)
                rest = table.drop_columns(["source"])
                for name in names.unique().to_pylist():
                    writers.write(name, rest.filter(pc.equal(names, name)))
    if not writers.files:
        raise UserError("documents: no tables were given")
    return writers.files, writers.rows


class _Writers:
    """A Parquet file for each source."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, 0
        self.files: dict[str, str] = {}
        self._open: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> _Writers:
        return self

    def __exit__(self, *error: Any) -> None:
        for writer in self._open.values():
            writer.close()

    def write(self, source: str, table: pa.Table) -> None:
        """Add rows to a source's file."""
        if source not in self._open:
            if not source.replace("_", "").replace("-", "").isalnum() or not source.isascii():
                raise UserError(
                    f"documents: source '{source}': a name may contain only letters, digits, '_' and '-'"
                )
            file = self.folder / source / FILE
            file.parent.mkdir(parents=True, exist_ok=True)
            self._open[source] = pq.ParquetWriter(file, table.schema, compression="zstd", compression_level=1)
            self.files[source] = str(file)
        writer = self._open[source]
        try:
            writer.write_table(table.select(writer.schema.names).cast(writer.schema))
        except (KeyError, pa.ArrowException):
            wanted, found = ", ".join(writer.schema.names), ", ".join(table.column_names)
            raise UserError(f"documents: tables of different columns: {wanted}, and then {found}") from None


def _plain(table: pa.Table) -> pa.Table:
    """Without the view types and dictionaries that Parquet readers give back as others, and without pandas' index."""
    table = table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
    for place, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_string_view(kind):
            kind = pa.large_string()
        elif pa.types.is_binary_view(kind):
            kind = pa.large_binary()
        elif pa.types.is_dictionary(kind):
            kind = kind.value_type
        if kind != field.type:
            table = table.set_column(place, pa.field(field.name, kind), table.column(place).cast(kind))
    return table.replace_schema_metadata(None)


def mapped(tables: Iterable[pa.Table], schema: pa.Schema | None) -> pa.Table:
    """Tables as one, in a file without a name that is mapped into memory: it may be larger than that.

    `schema`: of no tables at all; None: an empty table without columns."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
        file = Path(folder, "table.arrow")
        writer = None
        with pa.OSFile(str(file), "wb") as sink:
            for table in tables:
                writer = writer or pa.ipc.new_file(sink, table.schema)
                writer.write_table(table)
            if writer is None:
                return (schema or pa.schema([])).empty_table()
            writer.close()
        return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


def parquet_tables(folder: Folder) -> Iterator[pa.Table]:
    """The tables of a folder's Parquet files, by name."""
    for entry in sorted(folder.list(), key=lambda entry: entry.path):
        if entry.path.endswith(".parquet") and "/" not in entry.path:
            yield parse_table((folder / entry.path).read())
