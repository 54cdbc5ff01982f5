"""Publishing: bytes that depend on the data alone, a checksum taken on the way, one atomic write."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from corpusmill.common.checkpoints import parse
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import checksum, sha256
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import EXPIRED, TEXTS, Expired, PublishedFile

_ROWS = 16_384  # in a row group
_PARQUET: dict[str, Any] = {
    "compression": "zstd", "compression_level": 1, "write_statistics": True, "store_schema": True,
}  # fmt: skip


def publish_bytes(folder: Folder, path: str, data: bytes, rows: int | None = None) -> PublishedFile:
    """Write `data` at `folder/path`, atomically."""
    (folder / path).write(data)
    return described(path, data, rows)


def described(path: str, data: bytes, rows: int | None = None) -> PublishedFile:
    """What manifests say of a file with these bytes."""
    return PublishedFile(path=path, rows=rows, bytes=len(data), xxh3=checksum(data), sha256=sha256(data))


def publish_chunks(folder: Folder, path: str, chunks: Iterable[bytes]) -> PublishedFile:
    """Write `chunks`, one after the other, as one file, atomically."""
    with (folder / path).create() as stream:
        sink = Checked(stream)
        for chunk in chunks:
            sink.write(chunk)
    return sink.described(path)


def publish_tables(folder: Folder, path: str, tables: Iterable[pa.Table], schema: pa.Schema) -> PublishedFile:
    """Write `tables`, one after the other, as one Parquet file (zstd), atomically; one is held at a time. The
    bytes do not show where one ended and the next began."""
    with (folder / path).create() as stream:
        sink = Checked(stream)
        rows = write_tables(sink, tables, schema)
    return sink.described(path, rows)


def write_tables(sink: Checked, tables: Iterable[pa.Table], schema: pa.Schema) -> int:
    """The bytes of `publish_tables` into an open sink; the number of rows."""
    rows = 0
    with pq.ParquetWriter(pa.PythonFile(sink, "w"), schema, **_PARQUET) as writer:
        rest = schema.empty_table()
        for table in tables:
            rows += len(table)
            rest = pa.concat_tables([rest, table])
            whole = len(rest) // _ROWS * _ROWS
            if whole:
                writer.write_table(rest.slice(0, whole).combine_chunks(), row_group_size=_ROWS)
            rest = rest.slice(whole)
        if len(rest):
            writer.write_table(rest.combine_chunks(), row_group_size=_ROWS)
    return rows


class Checked:
    """What is written to a stream, counted and hashed on the way."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.size, self.closed = stream, 0, False
        self.xxh3, self.sha256 = xxhash.xxh3_128(), hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.xxh3.update(data)
        self.sha256.update(data)
        self.size += len(data)
        return self.stream.write(data)

    def described(self, path: str, rows: int | None = None) -> PublishedFile:
        xxh3, sha = self.xxh3.hexdigest(), self.sha256.hexdigest()
        return PublishedFile(path=path, rows=rows, bytes=self.size, xxh3=xxh3, sha256=sha)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def publish_table(folder: Folder, path: str, table: pa.Table) -> PublishedFile:
    """Write `table` as Parquet (zstd), atomically. Equal tables give equal bytes; one without rows has no row group,
    because `datasets` takes the rows of the first for the size of its batches."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **_PARQUET) as writer:
        if len(table):
            # One chunk per column first: how a table was put together must not show in the file.
            writer.write_table(table.combine_chunks(), row_group_size=_ROWS)
    return publish_bytes(folder, path, sink.getvalue(), rows=len(table))


def read_table(file: Folder, xxh3: str = "", columns: Sequence[str] | None = None) -> pa.Table:
    """The Parquet file as a table; raises `WorkError` if its bytes are not the published ones."""
    try:
        data = file.read()
    except FileNotFoundError:
        gone = parse(Expired, file.parent.parent / EXPIRED)
        if gone is None or f"{file.parent.name}/" != TEXTS:
            raise
        raise WorkError(
            f"{file}: the text of this stage was deleted on purpose ({gone.why}); with retain: all a run keeps it"
        ) from None
    if xxh3 and checksum(data) != xxh3:
        raise WorkError(
            f"{file}: its bytes changed since they were published (checksum differs); delete it, run again"
        )
    return parse_table(data, columns)


def parse_table(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file's bytes as a table.

    On this thread alone: with `pre_buffer`, Arrow's own threads hold Python's bytes, and one of them that lets go
    while the interpreter ends aborts the process ("terminate called without an active exception").
    """
    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    if columns is None:
        return file.read(use_threads=False)
    return file.read(columns=list(columns), use_threads=False).select(list(columns))
