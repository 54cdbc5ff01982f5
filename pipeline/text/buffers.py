"""Texts as Arrow buffers: the arrays that kernels take, and spans cut out of texts with the ledger's edits, for the rules
on lines and for the spans of deduplication, which each decide for themselves what to cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpusmill.common.kernel_cache import compiled
from corpusmill.schemas.tables import EDIT, ID

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


def view(text: pa.Array) -> tuple[I64, npt.NDArray[np.uint8]]:
    """(int64[n + 1] offsets, bytes) of a large_string array, not copied and not writable. Nulls count as empty."""
    if text.type != pa.large_string():
        text = text.cast(pa.large_string())
    if text.null_count:
        text = text.fill_null("")
    _, offsets, data = text.buffers()
    where, values = np.zeros(len(text) + 1, np.int64), np.zeros(0, np.uint8)
    if offsets is not None and len(text):
        where = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8)
    if data is not None and data.size and len(text):
        values = np.frombuffer(data, np.uint8)
    return frozen(where), frozen(values)


def arguments(text: pa.Array, rows: I64) -> tuple[I64, npt.NDArray[np.uint8], I64]:
    """What the kernels take: `view(text)` and `rows`, none of them writable, since Numba compiles again for every
    kind of array."""
    return *view(text), frozen(np.ascontiguousarray(rows, np.int64))


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written to: the type for which the kernels that read texts are compiled."""
    array = array.view()
    array.flags.writeable = False
    return array


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as a single array."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    return array


@compiled
def splice(data: Any, offsets: Any, spans: Any) -> Any:
    """(bytes, int64[D + 1] offsets) of the documents without the spans, int64[spans, 3 or more] of document, first byte
    and end counted from its start; sorted, not overlapping."""
    lost = 0
    for s in range(len(spans)):
        lost += spans[s, 2] - spans[s, 1]
    out = np.empty(offsets[-1] - offsets[0] - lost, np.uint8)
    bounds = np.zeros(len(offsets), np.int64)
    end, s = 0, 0
    for d in range(len(offsets) - 1):
        at = offsets[d]
        while s < len(spans) and spans[s, 0] == d:
            cut = offsets[d] + spans[s, 1]
            out[end : end + cut - at] = data[at:cut]
            end += cut - at
            at = offsets[d] + spans[s, 2]
            s += 1
        out[end : end + offsets[d + 1] - at] = data[at : offsets[d + 1]]
        end += offsets[d + 1] - at
        bounds[d + 1] = end
    return out, bounds


@compiled
def in_characters(data: Any, offsets: Any, rows: Any, starts: Any, stops: Any) -> Any:
    """int64[spans, 2]: offset and length in characters of spans of bytes, sorted by document and start; they may overlap."""
    found = np.empty((len(rows), 2), np.int64)
    at, passed = 0, 0
    for i in range(len(rows)):
        low = offsets[rows[i]]
        if i == 0 or rows[i] != rows[i - 1]:
            at, passed = low, 0
        while at < low + starts[i]:
            passed += data[at] & 0xC0 != 0x80
            at += 1
        length = 0
        for j in range(at, low + stops[i]):
            length += data[j] & 0xC0 != 0x80
        found[i, 0], found[i, 1] = passed, length
    return found


def hashes(data: npt.NDArray[np.uint8], offsets: I64, rows: I64) -> list[bytes]:
    """The `text_hash` of the documents at `rows`."""
    view = data.data
    return [xxhash.xxh3_128_digest(view[offsets[row] : offsets[row + 1]]) for row in rows.tolist()]


def with_hashes(column: pa.ChunkedArray, rows: I64, new: Sequence[bytes]) -> pa.Array:
    """The column `text_hash` with `new` ones at `rows`, which ascend."""
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(column.combine_chunks(), pa.array(mask), pa.array(new, ID))


def edits(stage: str, rows: I64, kinds: pa.StringArray, characters: I64) -> pa.ListArray:
    """For each document at `rows`, which ascend and repeat, its list of `EDIT`: cuts of these kinds, at `in_characters`."""
    columns = [
        pa.repeat(pa.scalar(stage, pa.string()), len(rows)),
        kinds,
        pa.array(characters[:, 0]),
        pa.array(characters[:, 1]),
        pa.repeat(pa.scalar(0, pa.int64()), len(rows)),
    ]
    _, heads = np.unique(rows, return_index=True)
    bounds = pa.array(np.r_[heads, len(rows)].astype(np.int32))
    return pa.ListArray.from_arrays(bounds, pa.StructArray.from_arrays(columns, fields=list(EDIT)))
