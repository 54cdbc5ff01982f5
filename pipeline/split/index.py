"""The sample of validation documents as an inverted index of their shingles, made once in each worker, and the kernels
that count which of them a document of train shares.

Shingles that occur in the same validation documents make one class: a template of two hundred shingles in a thousand
documents costs a document of train that has it two hundred counts and one walk over the thousand, not two hundred. A
class of many documents is a bitmap, and bitmaps are added up 64 documents at a time, in bit-sliced counters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.schemas.tables import ID

_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_DENSE = 4  # documents a word: so many entries of a list take more memory than the word
_FILTER = 16  # bits of the filter for each hash, at least: one in sixteen of those not in the index passes

# A validation document: its distinct shingle hashes, ascending.
SAMPLE = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("shingles", pa.large_list(pa.field("item", pa.uint64(), nullable=False)), nullable=False),
    ]
)


@compiled(inline="always")
def _mix(x: Any) -> Any:
    """The finaliser of splitmix64 (Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@compiled
def signatures_of_lists(starts: Any, members: Any) -> Any:
    """uint64[K]: a hash of each ascending list members[starts[k]:starts[k + 1]]."""
    found = np.empty(len(starts) - 1, np.uint64)
    for k in range(len(found)):
        value = np.uint64(0)
        for i in range(starts[k], starts[k + 1]):
            value = _mix(value ^ _mix(np.uint64(members[i]) + np.uint64(1)))
        found[k] = value
    return found


@compiled
def bitmaps(bounds: Any, members: Any, documents: int) -> Any:
    """(int64[C] the bitmap of each class, -1 for one that stays a list; uint64[B, W] the bitmaps): bit d of word w is
    document 64 w + d. Bitmaps are for lists of more than `_DENSE` documents a word."""
    words = (documents + 63) // 64
    row = np.full(len(bounds) - 1, -1, np.int64)
    count = 0
    for c in range(len(row)):
        if bounds[c + 1] - bounds[c] > _DENSE * words:
            row[c] = count
            count += 1
    maps = np.zeros((count, words), np.uint64)
    for c in range(len(row)):
        if row[c] >= 0:
            for k in range(bounds[c], bounds[c + 1]):
                document = np.int64(members[k])
                maps[row[c], document >> 6] |= np.uint64(1) << np.uint64(document & 63)
    return row, maps


@compiled
def _add(planes: Any, bitmap: Any, hits: int) -> None:
    """Add `hits` for each document of a bitmap: `planes[w, p]` holds bit p of the counts of 64 documents."""
    p = 0
    while hits >> p:
        if (hits >> p) & 1:
            for w in range(len(bitmap)):
                carry = bitmap[w]
                at = p
                while carry:
                    both = planes[w, at] & carry
                    planes[w, at] ^= carry
                    carry = both
                    at += 1
        p += 1


@compiled
def _spread(planes: Any, count: Any, touched: Any, n: int) -> int:
    """Move the counts of `planes` to `count`; documents that had none are noted in `touched[n:]`; the new `n`."""
    one = np.uint64(1)
    for w in range(len(planes)):
        some = np.uint64(0)
        for p in range(planes.shape[1]):
            some |= planes[w, p]
        if not some:
            continue
        for d in range(min(64, len(count) - 64 * w)):
            if (some >> np.uint64(d)) & one:
                hits = np.int64(0)
                for p in range(planes.shape[1]):
                    hits |= np.int64((planes[w, p] >> np.uint64(d)) & one) << p
                document = 64 * w + d
                if count[document] == 0:
                    touched[n] = document
                    n += 1
                count[document] += hits
        planes[w] = 0
    return n


@compiled
def filter_bits(keys: Any) -> Any:
    """(uint64[words] a filter with the upper bits of each key set, the shift that gives a key's bit)."""
    bits = 10
    while 1 << bits < _FILTER * len(keys):
        bits += 1
    field = np.zeros(1 << (bits - 6), np.uint64)
    shift = np.uint64(64 - bits)
    for key in keys:
        at = key >> shift
        field[at >> np.uint64(6)] |= np.uint64(1) << (at & np.uint64(63))
    return field, shift


@compiled
def beginnings(keys: Any) -> Any:
    """(int64[2^b + 1] where the ascending keys with each value of their upper b bits begin, 64 - b)."""
    bits = 1
    while 1 << bits < len(keys):
        bits += 1
    shift = np.uint64(64 - bits)
    first = np.zeros((1 << bits) + 1, np.int64)
    for key in keys:
        first[(key >> shift) + np.uint64(1)] += 1
    for i in range(1 << bits):
        first[i + 1] += first[i]
    return first, shift


@compiled
def compare(bounds: Any, hashes: Any, rows: Any, index: Any, best: Any, best_row: Any) -> None:
    """Raise `best`, float64[V, 2], and `best_row`, int64[V, 2], for the documents with the shingle sets
    hashes[bounds[i]:bounds[i + 1]], numbered `rows[i]`.

    Column 0 is the exact Jaccard similarity with a validation document, column 1 the share of the validation
    document's set that stands in this one. Of equals the first stays. `index` is (keys, class of each, filter, its
    shift, beginnings, their shift, bounds of the classes' lists, their members, the bitmap of each class, the
    bitmaps, sizes of the validation sets); a class below V is the document itself.
    """
    keys, classes, field, field_shift, first, first_shift, list_bounds, members, rows_of, maps, sizes = index
    bits = 1
    while sizes.size and sizes.max() >> bits:
        bits += 1
    planes = np.zeros((maps.shape[1], bits), np.uint64)
    count = np.zeros(len(sizes), np.int64)
    touched = np.empty(len(sizes), np.int64)
    class_count = np.zeros(len(list_bounds) - 1, np.int64)
    class_touched = np.empty(len(list_bounds) - 1, np.int64)
    for i in range(len(bounds) - 1):
        n, m, dense = 0, 0, False
        for j in range(bounds[i], bounds[i + 1]):
            key = hashes[j]
            at = key >> field_shift
            if not (field[at >> np.uint64(6)] >> (at & np.uint64(63))) & np.uint64(1):
                continue
            slot = key >> first_shift
            for k in range(first[slot], first[slot + np.uint64(1)]):
                if keys[k] == key:
                    number = classes[k]
                    if number < len(sizes):
                        if count[number] == 0:
                            touched[n] = number
                            n += 1
                        count[number] += 1
                    else:
                        number -= len(sizes)
                        if class_count[number] == 0:
                            class_touched[m] = number
                            m += 1
                        class_count[number] += 1
                    break
        for c in range(m):
            number = class_touched[c]
            hits = class_count[number]
            class_count[number] = 0
            if rows_of[number] >= 0:
                _add(planes, maps[rows_of[number]], hits)
                dense = True
                continue
            for k in range(list_bounds[number], list_bounds[number + 1]):
                document = members[k]
                if count[document] == 0:
                    touched[n] = document
                    n += 1
                count[document] += hits
        if dense:
            n = _spread(planes, count, touched, n)
        size = bounds[i + 1] - bounds[i]
        for t in range(n):
            document = touched[t]
            shared = count[document]
            count[document] = 0
            jaccard = shared / (sizes[document] + size - shared)
            inside = shared / sizes[document]
            if jaccard > best[document, 0]:
                best[document, 0], best_row[document, 0] = jaccard, rows[i]
            if inside > best[document, 1]:
                best[document, 1], best_row[document, 1] = inside, rows[i]


class Index(NamedTuple):
    """What `compare` takes: keys and classes [K], the filter and its shift, beginnings and their
    shift, bounds [C + 1] and members of the classes' lists, the bitmap of each class [C], the bitmaps [B, W], and the
    sizes [V] of the sets."""

    keys: npt.NDArray[np.uint64]
    classes: npt.NDArray[np.int64]
    field: npt.NDArray[np.uint64]
    field_shift: np.uint64
    first: npt.NDArray[np.int64]
    first_shift: np.uint64
    list_bounds: npt.NDArray[np.int64]
    members: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int64]
    maps: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.int64]


def sets_of(sample: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """(bounds int64[V + 1], hashes) of the shingle sets of a table of `SAMPLE`."""
    column = sample["shingles"].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], SAMPLE.field("shingles").type)
    bounds = column.offsets.to_numpy().astype(np.int64)
    hashes = column.values.to_numpy(zero_copy_only=False)
    return bounds - bounds[0], hashes[bounds[0] : bounds[-1]]


def build(sample: pa.Table) -> Index:
    """The index of a table of `SAMPLE`."""
    bounds, hashes = sets_of(sample)
    sizes = np.diff(bounds)
    owner = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    order = np.argsort(hashes, kind="stable")  # owners ascend within a hash
    hashes, owner = hashes[order], owner[order]
    begins = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]]) if len(hashes) else np.zeros(0, np.int64)
    keys = hashes[begins]
    starts = np.r_[begins, len(hashes)].astype(np.int64)
    lengths = np.diff(starts)
    classes = owner[begins].astype(np.int64)  # of a shingle of one document: that document
    shared = np.flatnonzero(lengths > 1)
    # Equal lists, by a hash of 64 bits: two different ones among a million meet with a chance of one in 10^7.
    names = signatures_of_lists(starts, owner)[shared]
    _, examples, numbers = np.unique(names, return_index=True, return_inverse=True)
    classes[shared] = len(sizes) + numbers
    examples = shared[examples]
    list_bounds = np.r_[0, np.cumsum(lengths[examples])].astype(np.int64)
    within = np.arange(list_bounds[-1]) - np.repeat(list_bounds[:-1], lengths[examples])
    members = owner[np.repeat(starts[examples], lengths[examples]) + within]
    field, field_shift = filter_bits(keys)
    first, first_shift = beginnings(keys)
    rows, maps = bitmaps(list_bounds, members, len(sizes))
    return Index(
        keys, classes, field, field_shift, first, first_shift, list_bounds, members, rows, maps, sizes
    )


@lru_cache(maxsize=1)
def load(folder: Folder, path: str, xxh3: str) -> Index:
    """The index of a published sample."""
    return build(read_table(folder / path, xxh3))


def empty_best(count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """What `compare` raises: (float64[count, 2], int64[count, 2])."""
    return np.zeros((count, 2)), np.full((count, 2), -1, np.int64)
