"""Blocks of JSON Lines as columns: what the kernel of `json_scan` finds in them, as Arrow arrays, and the lines that it leaves to Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from corpusmill.pipeline.ingest.fields import METADATA_BYTES, columns_of
from corpusmill.pipeline.ingest.readers.json_scan import (
    BEGIN,
    COLUMNS,
    DOCUMENT,
    END,
    KIND,
    NAMED,
    SIZE,
    SLOW,
    TEXT,
    scan,
)
from corpusmill.pipeline.ingest.records import Reading
from corpusmill.pipeline.text.buffers import I64, frozen

_COLUMNS = ("text", "source_id", "url", "date")


class Run(NamedTuple):
    """Bounds of the first line in the block; of documents, their columns but `record` and what the builder counts each as."""

    begin: int
    end: int
    table: pa.Table | None = None
    sizes: I64 | None = None


class Columns:
    """Turns blocks of lines into columns, for one file. `of` gives None for files whose records need Python."""

    def __init__(self, names: list[bytes], max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.names = frozen(np.frombuffer(b"".join(names), np.uint8))
        self.bounds = frozen(np.cumsum([0, *map(len, names)]))

    @classmethod
    def of(cls, reading: Reading) -> Columns | None:
        source = reading.source
        columns = columns_of(source)
        names = [source.text_column, *(columns[name] for name in _COLUMNS[1:])]
        if source.conversations or reading.file.metadata or len(set(names)) < len(names) or not all(names):
            return None
        return cls([name.encode("utf-8", "surrogatepass") for name in names], reading.max_bytes)

    def runs(self, block: bytes) -> Iterator[Run]:
        """The lines of a block in order, without the blank ones: documents together, and one by one what Python must look at."""
        data = frozen(np.frombuffer(block, np.uint8))
        newlines = data == ord("\n")
        found = np.zeros((np.count_nonzero(newlines), COLUMNS), np.int64)
        buffers = tuple(pa.allocate_buffer(len(block)) for _ in range(NAMED + 1))
        if _is_utf8(block):
            views = tuple(np.frombuffer(buffer, np.uint8) for buffer in buffers)
            scan(data, self.max_bytes, self.names, self.bounds, views, found)
        else:
            found[:, END] = np.flatnonzero(newlines)
            found[1:, BEGIN] = found[:-1, END] + 1
        rows = np.flatnonzero(found[:, KIND] == DOCUMENT)
        slow = found[:, KIND] == SLOW
        table, sizes = None, found[rows, SIZE]
        if len(rows):
            table, refused = _table(found[rows, TEXT:], buffers, sizes)
            slow[rows[refused]] = True
        at = 0  # of `rows`
        lines = np.flatnonzero(slow)
        for line, behind in zip(lines.tolist(), np.searchsorted(rows, lines).tolist(), strict=True):
            if table is not None and behind > at:
                first = found[rows[at]]
                yield Run(int(first[BEGIN]), int(first[END]), table.slice(at, behind - at), sizes[at:behind])
            yield Run(int(found[line, BEGIN]), int(found[line, END]))
            at = behind + int(found[line, KIND] == DOCUMENT)
        if table is not None and at < len(rows):
            first = found[rows[at]]
            yield Run(int(first[BEGIN]), int(first[END]), table.slice(at), sizes[at:])


def _table(ends: I64, buffers: tuple[pa.Buffer, ...], sizes: I64) -> tuple[pa.Table, list[int]]:
    """The documents of a block, and the rows whose other members are no metadata as they stand. Adds that of the others to `sizes`.

    `ends`: int64[rows, 5], where each one's part of each buffer ends.
    """
    bounds = np.zeros((len(ends) + 1, NAMED + 1), np.int64)
    bounds[1:] = ends
    columns = {
        name: _strings(bounds[:, number], buffers[number], number == 0)
        for number, name in enumerate(_COLUMNS)
    }
    if not bounds[-1, NAMED]:
        return pa.table({**columns, "metadata": pa.nulls(len(ends), pa.string())}), []
    metadata: list[str | None] = []
    refused = []
    rest, begin = memoryview(buffers[NAMED]), 0
    for row, end in enumerate(ends[:, NAMED].tolist()):
        dumped = _metadata(rest[begin:end]) if end > begin else None
        if dumped == "":
            refused.append(row)
        elif dumped is not None:
            sizes[row] += len(dumped)
        metadata.append(dumped)
        begin = end
    return pa.table({**columns, "metadata": pa.array(metadata, pa.string())}), refused


def _metadata(members: memoryview) -> str:
    """As `corpusmill.pipeline.ingest.fields.metadata` has it; "" for what it would count, or would not take, or what is no JSON."""
    try:
        dumped = orjson.dumps(orjson.loads(members))
    except (TypeError, ValueError, RecursionError):
        return ""
    return dumped.decode("utf-8") if len(dumped) <= METADATA_BYTES else ""


def _strings(bounds: npt.NDArray[np.int64], buffer: pa.Buffer, text: bool) -> pa.Array:
    """The strings between bounds of a buffer: of the text as large strings, of others with nulls for the empty."""
    rows, size = len(bounds) - 1, int(bounds[-1])
    if not text and not size:
        return pa.nulls(rows, pa.string())
    data = buffer.slice(0, size)
    if 2 * size < len(buffer):  # what is not needed is not kept
        data = pa.py_buffer(data.to_pybytes())
    if text:
        return pa.Array.from_buffers(pa.large_string(), rows, [None, pa.py_buffer(bounds.copy()), data])
    there = np.packbits(bounds[1:] > bounds[:-1], bitorder="little")
    return pa.Array.from_buffers(
        pa.string(), rows, [pa.py_buffer(there), pa.py_buffer(bounds.astype(np.int32)), data]
    )


def _is_utf8(block: bytes) -> bool:
    if block.isascii():
        return True
    whole = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(block)], np.int32)), pa.py_buffer(block)]
    )
    try:
        whole.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
