"""Documents as samples of a text shard: `<doc_id>.txt` and `<doc_id>.json`, tar headers and padding included.

A document's sample depends on the document alone, so that it is made in phase 1, and phase 2 only puts samples into
their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import ID_BYTES
from corpusmill.common.tar import member_header
from corpusmill.pipeline.shard.kernels import members as kernel
from corpusmill.schemas.documents import ID

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

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_LETTERS = "0" * 2 * ID_BYTES


def rendered(docs: pa.Table) -> tuple[npt.NDArray[np.uint64], Longs]:
    """(the samples of all documents, as words of 8 bytes; the len + 1 offsets of the documents in them).

    `docs` has `COLUMNS`; a field that is null is an empty string in `.json`.
    """
    count = len(docs)
    ids, _ = _ids(docs["doc_id"])
    texts = _strings(docs["text"])
    fields = [(name, _strings(docs[name])) for name in STRINGS]
    hashes = [(name, _ids(docs[name])) for name in HASHES]
    sizes = np.full(count, len('{"doc_id":""}') + 2 * ID_BYTES, dtype=np.int64)
    for name, strings in fields:
        sizes += len(f',"{name}":""')
        kernel.escaped_size(*strings, sizes)
    for name, (_, there) in hashes:
        sizes += len(f',"{name}":""') + 2 * ID_BYTES * there
    lengths = np.diff(texts[0])
    whole = 2 * kernel.RECORD + _padded(lengths) + _padded(sizes)
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(whole, out=offsets[1:])
    out = np.zeros(int(offsets[-1]), dtype=np.uint8)

    cursors = offsets[:-1].copy()
    kernel.headers(cursors, out, _literal(member_header(f"{_LETTERS}.txt", 0)), ids, lengths)
    kernel.plain(cursors, out, *texts)
    cursors += _padded(lengths) - lengths
    kernel.headers(cursors, out, _literal(member_header(f"{_LETTERS}.json", 0)), ids, sizes)
    kernel.same(cursors, out, _literal(b'{"doc_id":"'))
    kernel.hexed(cursors, out, ids, np.ones(count, dtype=bool))
    for name, strings in fields:
        kernel.same(cursors, out, _literal(f'","{name}":"'.encode()))
        kernel.escaped(cursors, out, *strings)
    for name, (values, there) in hashes:
        kernel.same(cursors, out, _literal(f'","{name}":"'.encode()))
        kernel.hexed(cursors, out, values, there)
    kernel.same(cursors, out, _literal(b'"}'))
    return out.view(np.uint64), offsets // WORD


def _padded(sizes: Longs) -> Longs:
    return -(-sizes // kernel.RECORD) * kernel.RECORD


def _literal(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)


def _strings(column: pa.ChunkedArray) -> tuple[Longs, Bytes]:
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
