"""Rows as lines of JSON, a batch at a time from Arrow's buffers, and ids as the text that stands in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import ID_BYTES
from corpusmill.pipeline.shard.text_members import (
    Bytes,
    Longs,
    escaped,
    escaped_size,
    id_bytes,
    plain,
    same,
    strings_of,
)

ROWS = 4096  # rendered at once
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def hex_ids(column: pa.ChunkedArray) -> pa.StringArray:
    """Each id of a column (16 bytes or null) as 32 hexadecimal digits."""
    there = pc.is_valid(column).combine_chunks()
    ids = id_bytes(pc.fill_null(column, bytes(ID_BYTES)))
    digits = np.empty((len(ids), 2 * ID_BYTES), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _DIGITS[ids >> 4], _DIGITS[ids & 15]
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * (2 * ID_BYTES)
    texts = pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))
    return pc.if_else(there, texts, pa.scalar(None, pa.string()))


def json_lines(table: pa.Table) -> Iterator[memoryview]:
    """The rows of a table of strings as lines of JSON (RFC 8259, UTF-8 as it is), some thousand at a time; a null is `null`."""
    for start in range(0, len(table), ROWS):
        yield _rendered(table.slice(start, ROWS)).data


def _rendered(rows: pa.Table) -> Bytes:
    parts: list[tuple[bytes, tuple[Longs, Bytes], tuple[Longs, Bytes], tuple[Longs, Bytes]]] = []
    sizes = np.full(len(rows), len(b"}\n"), np.int64)
    for number, name in enumerate(rows.column_names):
        there = pc.is_valid(rows[name])
        before, after = pc.if_else(there, '"', "null"), pc.if_else(there, '"', "")
        literal = b'%b"%b":' % (b"," if number else b"{", name.encode())
        part = (literal, strings_of(before), strings_of(rows[name]), strings_of(after))
        parts.append(part)
        sizes += len(literal) + np.diff(part[1][0]) + np.diff(part[3][0])
        escaped_size(*part[2], sizes)
    cursors = np.zeros(len(rows), np.int64)
    np.cumsum(sizes[:-1], out=cursors[1:])
    out = np.zeros(int(sizes.sum()), np.uint8)
    for literal, before, values, after in parts:
        same(cursors, out, np.frombuffer(literal, np.uint8))
        plain(cursors, out, *before)
        escaped(cursors, out, *values)
        plain(cursors, out, *after)
    same(cursors, out, np.frombuffer(b"}\n", np.uint8))
    return out
