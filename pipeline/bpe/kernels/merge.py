"""The merges of a vocabulary as tables, and byte-pair merging as it is defined: the pair of the lowest rank first, the
leftmost of equal ones, until none is left.

The result is that of `tokenizers` (a queue of pairs by rank, then place), whatever the vocabulary.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.buffers import pointer

ID_BITS: Final = 20
RANK_BITS: Final = 24
MAX_ID: Final = (1 << ID_BITS) - 2
NO_RANK: Final = (1 << RANK_BITS) - 1  # of a pair that is never merged; ranks are below it
EMPTY: Final = 0xFFFFFFFFFFFFFFFF
_SPREAD: Final = 0x9E3779B97F4A7C15


class Merges(NamedTuple):
    """The merges of a vocabulary as the kernel reads them."""

    byte_ids: npt.NDArray[np.int32]  # [256]: the token of each byte
    pairs: npt.NDArray[np.uint64]  # [2^k]: left id (20 bits), right id (20), rank (24); open addressing
    merged: npt.NDArray[np.int32]  # [ranks]: the token that a merge makes


class Pointers(NamedTuple):
    """The same inside the kernels, with the size of the table."""

    byte_ids: Any
    pairs: Any
    pairs_size: int
    merged: Any


@compiled
def pointers(merges: Any) -> Any:
    """Arrays of merges as pointers; they must outlive them."""
    return Pointers(
        pointer(merges.byte_ids), pointer(merges.pairs), len(merges.pairs), pointer(merges.merged)
    )


@compiled
def pair_key(left: Any, right: Any) -> Any:
    """A pair of tokens in one number."""
    return (np.uint64(left) << np.uint64(ID_BITS)) | np.uint64(right)


@compiled
def pair_hash(key: Any) -> Any:
    """Of a pair's key, to be cut to the size of a table."""
    return np.int64((key * np.uint64(_SPREAD)) >> np.uint64(32))


@compiled
def fill_pairs(pairs: Any, first: int, table: Any) -> None:
    """Enter pairs (int32[n, 2]), whose ranks begin with `first`; of a pair that stands there twice the last rank counts."""
    for rank in range(first, first + len(pairs)):
        key = pair_key(pairs[rank - first, 0], pairs[rank - first, 1])
        slot = pair_hash(key) & (len(table) - 1)
        while table[slot] != np.uint64(EMPTY) and table[slot] >> np.uint64(RANK_BITS) != key:
            slot = (slot + 1) & (len(table) - 1)
        table[slot] = (key << np.uint64(RANK_BITS)) | np.uint64(rank)


@compiled
def rank_of(left: Any, right: Any, pairs: Any, size: Any) -> Any:
    """The rank of a pair in a table of `size`, or `NO_RANK`."""
    key = pair_key(left, right)
    slot = pair_hash(key) & (size - 1)
    while True:
        found = pairs[slot]
        if found >> np.uint64(RANK_BITS) == key:
            return np.int64(found & np.uint64(NO_RANK))
        if found == np.uint64(EMPTY):
            return np.int64(NO_RANK)
        slot = (slot + 1) & (size - 1)


@compiled
def merge(data: Any, at: Any, size: Any, merges: Any, ids: Any, ranks: Any, before: Any, after: Any) -> Any:
    """Tokens of the `size` bytes at `at` into the front of `ids`; their number. `ranks[0]`: the rank of the last merge.

    merges: `Pointers`. ids, ranks, before, after: pointers to int32[size]; the last three are work arrays.
    """
    for i in range(size):
        ids[i] = merges.byte_ids[data[at + i]]
    heap = np.empty(3 * size, np.uint64)
    kept = _with_heap(size, merges, ids, ranks, before, after, pointer(heap))
    return kept if len(heap) else 0  # in use until here


@compiled
def _gather(size: int, ids: Any, after: Any) -> Any:
    """The tokens that are left, to the front; their number."""
    kept: Any = np.int64(0)
    i: Any = np.int64(0)
    while i < size:
        ids[kept] = ids[i]
        kept += 1
        i = np.int64(after[i])
    return kept


@compiled
def _with_heap(size: int, merges: Any, ids: Any, ranks: Any, before: Any, after: Any, heap: Any) -> Any:
    """A heap of (rank, place); what became of a pair since it was pushed shows in its rank. `before` and `after` link the
    places that are left."""
    count = 0
    last: Any = np.int64(-1)
    for place in range(size):
        before[place], after[place] = place - 1, place + 1
        ranks[place] = (
            rank_of(ids[place], ids[place + 1], merges.pairs, merges.pairs_size)
            if place + 1 < size
            else NO_RANK
        )
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
        gone, last = after[i], rank
        ids[i] = merges.merged[rank]
        ranks[gone] = NO_RANK
        after[i] = after[gone]
        if after[i] < size:
            before[after[i]] = i
            ranks[i] = rank_of(ids[i], ids[after[i]], merges.pairs, merges.pairs_size)
            count = _push(heap, count, ranks[i], i)
        else:
            ranks[i] = NO_RANK
        if before[i] >= 0:
            left = before[i]
            ranks[left] = rank_of(ids[left], ids[i], merges.pairs, merges.pairs_size)
            count = _push(heap, count, ranks[left], left)
    ranks[0] = last
    return _gather(size, ids, after)


@compiled
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


@compiled
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
