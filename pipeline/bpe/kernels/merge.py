"""Byte-pair merging of one pre-token: the pair of lowest rank first, the leftmost of equal ones, until none is left.

The result is that of `tokenizers` (a queue of pairs by rank, then place), whatever the vocabulary: short pre-tokens are
scanned for their best pair after each merge, long ones have a heap.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from pipeline.bpe.kernels.bytes import hash_bytes, pointer, same

ID_BITS: Final = 20
RANK_BITS: Final = 24
MAX_ID: Final = (1 << ID_BITS) - 2
NO_RANK: Final = (1 << RANK_BITS) - 1  # of a pair that is never merged; ranks are below it
PLACE_BITS: Final = 6
SCANNED: Final = 1 << PLACE_BITS  # bytes of a pre-token up to which scanning is faster than a heap
_NEVER: Final = 0x7FFFFFFF  # no pair, among ranks with places
_FIRST_NEVER: Final = NO_RANK << PLACE_BITS
_EMPTY: Final = 0xFFFFFFFFFFFFFFFF
_SPREAD: Final = 0x9E3779B97F4A7C15


class Merges(NamedTuple):
    """A vocabulary as the kernel reads it."""

    byte_ids: npt.NDArray[np.int32]  # [256]: the token of each byte
    pairs: npt.NDArray[np.uint64]  # [2^k]: left id (20 bits), right id (20), rank (24); open addressing
    merged: npt.NDArray[np.int32]  # [ranks]: the token that a merge makes
    whole: npt.NDArray[
        np.int32
    ]  # [2^k]: tokens that a pre-token may be as it is, + 1; empty without `ignore_merges`
    names: npt.NDArray[np.uint8]  # the bytes of all tokens
    starts: npt.NDArray[np.int64]  # [tokens + 1]: where each one's bytes begin


@nb.njit(cache=True, nogil=True)
def _place(key: Any, size: Any) -> Any:
    """Where a pair's key is looked for first in a table of `size` (a power of two)."""
    return np.int64((key * np.uint64(_SPREAD)) >> np.uint64(32)) & (size - 1)


class Pointers(NamedTuple):
    """The same inside the kernels, with the sizes of the tables."""

    byte_ids: Any
    pairs: Any
    pairs_size: int
    merged: Any
    whole: Any
    whole_size: int
    names: Any
    starts: Any


@nb.njit(cache=True, nogil=True)
def pointers(merges: Any) -> Any:
    """A vocabulary's arrays as pointers; they must outlive them."""
    return Pointers(
        pointer(merges.byte_ids), pointer(merges.pairs), len(merges.pairs), pointer(merges.merged),
        pointer(merges.whole), len(merges.whole), pointer(merges.names), pointer(merges.starts),
    )  # fmt: skip


@nb.njit(cache=True, nogil=True)
def fill_pairs(left: Any, right: Any, table: Any) -> None:
    """Enter pairs in the order of their ranks; of a pair that stands there twice the last rank counts."""
    for rank in range(len(left)):
        key = (np.uint64(left[rank]) << np.uint64(ID_BITS)) | np.uint64(right[rank])
        slot = _place(key, len(table))
        while table[slot] != np.uint64(_EMPTY) and table[slot] >> np.uint64(RANK_BITS) != key:
            slot = (slot + 1) & (len(table) - 1)
        table[slot] = (key << np.uint64(RANK_BITS)) | np.uint64(rank)


@nb.njit(cache=True, nogil=True)
def fill_whole(names: Any, starts: Any, table: Any) -> None:
    """Enter tokens by the hash of their bytes; tokens without bytes (special ones) are left out."""
    for token in range(len(starts) - 1):
        size = starts[token + 1] - starts[token]
        if size:
            value = hash_bytes(pointer(names), starts[token], size, starts[token + 1])
            slot = np.int64(value & np.uint64(len(table) - 1))
            while table[slot]:
                slot = (slot + 1) & (len(table) - 1)
            table[slot] = token + 1


@nb.njit(cache=True, nogil=True)
def _rank(left: Any, right: Any, merges: Any) -> Any:
    key = (np.uint64(left) << np.uint64(ID_BITS)) | np.uint64(right)
    slot = _place(key, merges.pairs_size)
    while True:
        found = merges.pairs[slot]
        if found >> np.uint64(RANK_BITS) == key:
            return np.int64(found & np.uint64(NO_RANK))
        if found == np.uint64(_EMPTY):
            return NO_RANK
        slot = (slot + 1) & (merges.pairs_size - 1)


@nb.njit(cache=True, nogil=True)
def merge(data: Any, at: Any, size: Any, merges: Any, ids: Any, ranks: Any, before: Any, after: Any) -> Any:
    """Tokens of the `size` bytes at `at` into the front of `ids`; their number.

    merges: `Pointers`. ids, ranks, before, after: pointers to int32[size]; the last three are room to work in.
    """
    if merges.whole_size:
        slot = np.int64(hash_bytes(data, at, size, at + size) & np.uint64(merges.whole_size - 1))
        while merges.whole[slot]:
            token = merges.whole[slot] - 1
            start = merges.starts[token]
            if merges.starts[token + 1] - start == size and same(data, at, merges.names, start, size):
                ids[0] = token
                return 1
            slot = (slot + 1) & (merges.whole_size - 1)
    for i in range(size):
        ids[i] = merges.byte_ids[data[at + i]]
    if size <= SCANNED:
        return _by_scan(size, merges, ids, ranks, before, after)
    return _by_heap(size, merges, ids, ranks, before, after)


@nb.njit(cache=True, nogil=True)
def _by_scan(size: int, merges: Any, ids: Any, ranks: Any, before: Any, after: Any) -> Any:
    """`ranks` holds each pair's rank and place in one number, so that the least of them, which the processor finds eight at
    a time, is the leftmost pair of the lowest rank. What is merged away keeps its place, and loses its rank."""
    for i in range(size - 1):
        ranks[i] = _rank(ids[i], ids[i + 1], merges) << PLACE_BITS | i
        after[i], before[i + 1] = i + 1, i
    before[0], after[size - 1] = -1, size
    ranks[size - 1] = _NEVER
    while True:
        low = np.int32(_NEVER)
        for i in range(size):
            low = min(low, ranks[i])
        if low >= _FIRST_NEVER:
            break
        here = low & ((1 << PLACE_BITS) - 1)
        gone = after[here]
        ids[here] = merges.merged[low >> PLACE_BITS]
        right = after[gone]
        after[here], ranks[gone], ranks[here] = right, _NEVER, _NEVER
        if right < size:
            before[right] = here
            ranks[here] = _rank(ids[here], ids[right], merges) << PLACE_BITS | here
        left = before[here]
        if left >= 0:
            ranks[left] = _rank(ids[left], ids[here], merges) << PLACE_BITS | left
    return _gather(size, ids, after)


@nb.njit(cache=True, nogil=True)
def _gather(size: int, ids: Any, after: Any) -> Any:
    """The tokens that are left, to the front; their number."""
    kept: Any = np.int64(0)
    i: Any = np.int64(0)
    while i < size:
        ids[kept] = ids[i]
        kept += 1
        i = np.int64(after[i])
    return kept


@nb.njit(cache=True, nogil=True)
def _by_heap(size: int, merges: Any, ids: Any, ranks: Any, before: Any, after: Any) -> Any:
    heap = np.empty(3 * size, np.uint64)
    kept = _with_heap(size, merges, ids, ranks, before, after, pointer(heap))
    return kept if len(heap) else 0  # in use until here


@nb.njit(cache=True, nogil=True)
def _with_heap(size: int, merges: Any, ids: Any, ranks: Any, before: Any, after: Any, heap: Any) -> Any:
    """A heap of (rank, place); what became of a pair since it was pushed shows in its rank. `before` and `after` link the
    places that are left."""
    count = 0
    for place in range(size):
        before[place], after[place] = place - 1, place + 1
        ranks[place] = _rank(ids[place], ids[place + 1], merges) if place + 1 < size else NO_RANK
        if ranks[place] != NO_RANK:
            heap[count] = (np.uint64(ranks[place]) << np.uint64(32)) | np.uint64(place)
            count += 1
    for place in range(count // 2 - 1, -1, -1):
        _sink(heap, place, count)
    while count:
        top = heap[0]
        count -= 1
        heap[0] = heap[count]
        _sink(heap, 0, count)
        i: Any = np.int64(top & np.uint64(0xFFFFFFFF))
        rank = np.int64(top >> np.uint64(32))
        if ranks[i] != rank:
            continue
        gone = after[i]
        ids[i] = merges.merged[rank]
        ranks[gone] = NO_RANK
        after[i] = after[gone]
        if after[i] < size:
            before[after[i]] = i
            ranks[i] = _rank(ids[i], ids[after[i]], merges)
            count = _push(heap, count, ranks[i], i)
        else:
            ranks[i] = NO_RANK
        if before[i] >= 0:
            left = before[i]
            ranks[left] = _rank(ids[left], ids[i], merges)
            count = _push(heap, count, ranks[left], left)
    return _gather(size, ids, after)


@nb.njit(cache=True, nogil=True)
def _push(heap: Any, count: Any, rank: Any, place: Any) -> Any:
    if rank == NO_RANK:
        return count
    entry = (np.uint64(rank) << np.uint64(32)) | np.uint64(place)
    i = count
    while i > 0 and heap[(i - 1) >> 1] > entry:
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
    heap[i] = entry
    return count + 1


@nb.njit(cache=True, nogil=True)
def _sink(heap: Any, i: Any, count: Any) -> None:
    entry = heap[i]
    while 2 * i + 1 < count:
        child = 2 * i + 1
        if child + 1 < count and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = entry
