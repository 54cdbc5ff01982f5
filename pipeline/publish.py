"""Publishing: bytes that depend on the data alone, a checksum taken on the way, one atomic write."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.manifest import PublishedFile
from schemas.storage import Folder


def publish_bytes(folder: Folder, path: str, data: bytes, rows: int | None = None) -> PublishedFile:
    """Write `data` at `folder/path`, atomically."""
    (folder / path).write(data)
    return PublishedFile(path=path, rows=rows, bytes=len(data), xxh3=checksum(data))


def publish_table(folder: Folder, path: str, table: pa.Table) -> PublishedFile:
    """Write `table` as Parquet (zstd), atomically. Equal tables give equal bytes."""
    sink = io.BytesIO()
    # One chunk per column first: how a table was put together must not show in the file.
    pq.write_table(
        table.combine_chunks(),
        sink,
        compression="zstd",
        compression_level=1,
        row_group_size=16_384,
        write_statistics=True,
        store_schema=True,
    )
    return publish_bytes(folder, path, sink.getvalue(), rows=len(table))


def read_table(file: Folder, xxh3: str = "", columns: Sequence[str] | None = None) -> pa.Table:
    """The Parquet file as a table; raises `WorkError` if its bytes are not the published ones."""
    data = file.read()
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
