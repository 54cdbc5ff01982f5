"""Documents as samples of a text shard: `<doc_id>.txt` and `<doc_id>.json`, tar headers and padding included.

A document's sample depends on the document alone, so that it is made in phase 1, and phase 2 only puts samples into
their order. Bytes are rendered a batch at a time from Arrow's buffers: `cursors[i]` is where the next byte of document i is
written; a first pass of the `..._size` functions counts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import ID_BYTES
from corpusmill.common.kernel_cache import compiled
from corpusmill.common.tar import member_header
from corpusmill.schemas.tables import ID

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

RECORD = 512
_SIZE, _SUM = 124, 148  # where a USTAR header has its size and checksum
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHORT = np.zeros(256, np.uint8)  # the letter of a two-byte escape
for _byte, _letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    _SHORT[_byte] = _letter


@compiled
def escaped_size(offsets: Longs, data: Bytes, out: Longs) -> None:
    """Add the bytes of each string inside a JSON string to `out`."""
    for i in range(len(out)):
        size = offsets[i + 1] - offsets[i]
        for k in range(offsets[i], offsets[i + 1]):
            byte = data[k]
            if _SHORT[byte]:
                size += 1
            elif byte < 0x20:
                size += 5
        out[i] += size


@compiled
def escaped(cursors: Longs, out: Bytes, offsets: Longs, data: Bytes) -> None:
    """Write each string as it stands inside a JSON string (RFC 8259; UTF-8 stays as it is)."""
    for i in range(len(cursors)):
        at = cursors[i]
        for k in range(offsets[i], offsets[i + 1]):
            byte = data[k]
            if _SHORT[byte]:
                out[at], out[at + 1] = 0x5C, _SHORT[byte]
                at += 2
            elif byte < 0x20:
                out[at], out[at + 1], out[at + 2], out[at + 3] = 0x5C, 0x75, 0x30, 0x30
                out[at + 4], out[at + 5] = _HEX[byte >> 4], _HEX[byte & 15]
                at += 6
            else:
                out[at] = byte
                at += 1
        cursors[i] = at


@compiled
def plain(cursors: Longs, out: Bytes, offsets: Longs, data: Bytes) -> None:
    """Write each string as it is."""
    for i in range(len(cursors)):
        size = offsets[i + 1] - offsets[i]
        out[cursors[i] : cursors[i] + size] = data[offsets[i] : offsets[i + 1]]
        cursors[i] += size


@compiled
def same(cursors: Longs, out: Bytes, literal: Bytes) -> None:
    """Write `literal` for every document."""
    for i in range(len(cursors)):
        out[cursors[i] : cursors[i] + len(literal)] = literal
        cursors[i] += len(literal)


@compiled
def hexed(cursors: Longs, out: Bytes, ids: Bytes, there: npt.NDArray[np.bool_]) -> None:
    """Write each row of `ids` (n x 16) as 32 hexadecimal digits; nothing where `there` is false."""
    for i in range(len(cursors)):
        if there[i]:
            at = cursors[i]
            for k in range(ids.shape[1]):
                out[at + 2 * k], out[at + 2 * k + 1] = _HEX[ids[i, k] >> 4], _HEX[ids[i, k] & 15]
            cursors[i] = at + 2 * ids.shape[1]


@compiled
def headers(cursors: Longs, out: Bytes, template: Bytes, ids: Bytes, sizes: Longs) -> None:
    """Write a USTAR header each: `template` (512 bytes, of a member of 32 letters and an extension, of size 0), its
    name begun by the id in hex, with the size and the checksum that belong to it."""
    for i in range(len(cursors)):
        at = cursors[i]
        out[at : at + RECORD] = template
        for k in range(ids.shape[1]):
            out[at + 2 * k], out[at + 2 * k + 1] = _HEX[ids[i, k] >> 4], _HEX[ids[i, k] & 15]
        rest = sizes[i]
        for k in range(11):  # octal digits and a NUL
            out[at + _SIZE + 10 - k] = 0x30 + (rest & 7)
            rest >>= 3
        out[at + _SUM : at + _SUM + 8] = 0x20  # what the checksum counts in its own place
        total = np.int64(0)
        for k in range(RECORD):
            total += out[at + k]
        for k in range(6):  # six octal digits, a NUL, a space
            out[at + _SUM + 5 - k] = 0x30 + (total & 7)
            total >>= 3
        out[at + _SUM + 6] = 0
        cursors[i] = at + RECORD


STRINGS = (
    "source",
    "source_id",
    "locator",
    "url",
    "date",
    "language",
    "metadata",
)  # fields of `.json` by name
HASHES = ("text_hash", "cluster_id")
COLUMNS = ("doc_id", *STRINGS, *HASHES, "text")
WORD = 8  # bytes of an element

_LETTERS = "0" * 2 * ID_BYTES


def rendered(docs: pa.Table) -> tuple[npt.NDArray[np.uint64], Longs]:
    """(the samples of all documents, as words of 8 bytes; the len + 1 offsets of the documents in them).

    `docs` has `COLUMNS`; a field that is null is an empty string in `.json`.
    """
    count = len(docs)
    ids, _ = _ids(docs["doc_id"])
    texts = strings_of(docs["text"])
    fields = [(name, strings_of(docs[name])) for name in STRINGS]
    hashes = [(name, _ids(docs[name])) for name in HASHES]
    sizes = np.full(count, len('{"doc_id":""}') + 2 * ID_BYTES, dtype=np.int64)
    for name, strings in fields:
        sizes += len(f',"{name}":""')
        escaped_size(*strings, sizes)
    for name, (_, there) in hashes:
        sizes += len(f',"{name}":""') + 2 * ID_BYTES * there
    lengths = np.diff(texts[0])
    whole = 2 * RECORD + _padded(lengths) + _padded(sizes)
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(whole, out=offsets[1:])
    out = np.zeros(int(offsets[-1]), dtype=np.uint8)

    cursors = offsets[:-1].copy()
    headers(cursors, out, _literal(member_header(f"{_LETTERS}.txt", 0)), ids, lengths)
    plain(cursors, out, *texts)
    cursors += _padded(lengths) - lengths
    headers(cursors, out, _literal(member_header(f"{_LETTERS}.json", 0)), ids, sizes)
    same(cursors, out, _literal(b'{"doc_id":"'))
    hexed(cursors, out, ids, np.ones(count, dtype=bool))
    for name, strings in fields:
        same(cursors, out, _literal(f'","{name}":"'.encode()))
        escaped(cursors, out, *strings)
    for name, (values, there) in hashes:
        same(cursors, out, _literal(f'","{name}":"'.encode()))
        hexed(cursors, out, values, there)
    same(cursors, out, _literal(b'"}'))
    return out.view(np.uint64), offsets // WORD


def _padded(sizes: Longs) -> Longs:
    return -(-sizes // RECORD) * RECORD


def _literal(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)


def strings_of(column: pa.ChunkedArray) -> tuple[Longs, Bytes]:
    """(offsets, bytes) of strings; a null is an empty one."""
    chunks = pc.fill_null(column, "").cast(pa.large_string()).chunks
    array = pa.concat_arrays([pa.array([], pa.large_string()), *chunks])
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    places = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return places, _buffer(data)


def _ids(column: pa.ChunkedArray) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """(n x 16 bytes, whether there is an id) of a column of ids."""
    there: npt.NDArray[Any] = pc.is_valid(column).to_numpy()
    return id_bytes(pc.fill_null(column, bytes(ID_BYTES))), there.astype(bool)


def id_bytes(column: pa.ChunkedArray) -> Bytes:
    """n x 16 bytes of a column of ids without nulls."""
    whole = pa.concat_arrays([pa.array([], ID), *column.chunks])
    count, offset = len(whole) * ID_BYTES, whole.offset * ID_BYTES
    flat = np.frombuffer(whole.buffers()[1], np.uint8, count, offset) if count else np.zeros(0, np.uint8)
    return flat.reshape(-1, ID_BYTES)


def _buffer(data: pa.Buffer | None) -> Bytes:
    return np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
