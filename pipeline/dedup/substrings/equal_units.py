"""Equal anchors and equal units: which are repeated, which comes first, and what becomes of the others.

Hash tables where records are many: they keep the order of the records, which is what the answers refer to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.substrings.anchor_kernels import MANY, ROLL
from corpusmill.pipeline.engine.shuffle import Records, starts_of

STAYS, GONE, CONTESTED = range(
    3
)  # and above: contested, of the documents with the anchor the second, third ...


@compiled
def _slots(count: int) -> Any:
    """Empty slots for `count` indices, and how far a mixed key is shifted to point at one."""
    bits = 4
    while (1 << bits) < 2 * count:
        bits += 1
    return np.full(1 << bits, -1, np.int32), np.uint64(64 - bits)


@compiled
def repeated(anchors: Any) -> Any:
    """uint8[n]: whether an anchor is there more than once, or says `MANY` of itself."""
    slots, shift = _slots(len(anchors))
    flags = np.empty(len(anchors), np.uint8)
    for i in range(len(anchors)):
        flags[i] = np.uint8(anchors[i] & MANY)
        value = anchors[i] >> np.uint64(1)
        at = np.int64(value * ROLL >> shift)
        while slots[at] >= 0 and anchors[slots[at]] >> np.uint64(1) != value:
            at = (at + 1) & (len(slots) - 1)
        if slots[at] < 0:
            slots[at] = i
        else:
            flags[i] = 1
            flags[slots[at]] = 1
    return flags


@compiled
def group(key: Any, check: Any) -> Any:
    """Equal units: (int32[n] the group of each, int32[groups] the first of each), numbered as they come."""
    slots, shift = _slots(len(key))
    which, firsts = np.empty(len(key), np.int32), np.empty(len(key), np.int32)
    groups = 0
    for i in range(len(key)):
        at = np.int64(check[i] * ROLL >> shift)
        while True:
            held = slots[at]
            if held < 0:
                slots[at] = groups
                which[i] = groups
                firsts[groups] = i
                groups += 1
                break
            first = firsts[held]
            if check[first] == check[i] and key[first] == key[i]:
                which[i] = held
                break
            at = (at + 1) & (len(slots) - 1)
    return which, firsts[:groups].copy()


def settle(blocks: Records) -> npt.NDArray[np.uint32]:
    """uint32[n]: what becomes of blocks (`key` the anchor, `check` the tokens) for the others of the corpus.

    `GONE`: an equal one comes before it, by (rank, ident), or in the order of the records. `STAYS`: it is the first,
    and every block with its anchor is equal to it, so that its windows occur in such blocks alone. `CONTESTED` and
    above: it is the first of its kind, but its windows may occur in other blocks with the anchor; the number
    orders these blocks as their documents are ordered.
    """
    result = np.full(len(blocks), GONE, np.uint32)
    order = np.lexsort([blocks[name] for name in ("ident", "rank", "check", "key")])
    best = order[starts_of(blocks["key"][order], blocks["check"][order])]
    best = best[np.lexsort([blocks[name][best] for name in ("ident", "rank", "key")])]
    heads = np.flatnonzero(starts_of(blocks["key"][best]))
    sizes = np.diff(np.r_[heads, len(best)])
    place = np.arange(len(best)) - np.repeat(heads, sizes)
    result[best] = np.where(np.repeat(sizes, sizes) > 1, CONTESTED + place, STAYS)
    return result


@compiled
def beaten(key: Any, check: Any, order: Any) -> Any:
    """uint8[n]: `GONE` if an equal window has a lower order, or the same and stands before it."""
    slots, shift = _slots(len(key))
    flags = np.full(len(key), STAYS, np.uint8)
    for i in range(len(key)):
        at = np.int64(key[i] * ROLL >> shift)
        while True:
            best = slots[at]
            if best < 0:
                slots[at] = i
                break
            if key[best] == key[i] and check[best] == check[i]:
                if order[i] < order[best]:
                    flags[best] = GONE
                    slots[at] = i
                else:
                    flags[i] = GONE
                break
            at = (at + 1) & (len(slots) - 1)
    return flags


@compiled
def fates(row: Any, token: Any, which: Any, firsts: Any, flags: Any, n: int) -> Any:
    """uint32[units]: what becomes of each, given what becomes of the first of its group.

    Those of a group whose first is not gone go as well, but for what overlaps the first in its text: they share
    tokens, and cutting one would cut into the other.
    """
    result = np.empty(len(row), np.uint32)
    for i in range(len(row)):
        group = which[i]
        first = firsts[group]
        result[i] = flags[group]
        if i != first and not (row[i] == row[first] and np.int64(token[i]) < np.int64(token[first]) + n):
            result[i] = GONE
    return result


@compiled
def union(units: Any, n: int) -> Any:
    """int64[spans, 4] (row, start, stop, tokens): the union of units sorted by row and start."""
    out = np.empty((len(units), 4), np.int64)
    found = -1
    end = np.int64(0)  # the token after the span
    for unit in units:
        start, stop = np.int64(unit.start), np.int64(unit.start) + np.int64(unit.length)
        last = np.int64(unit.token) + np.int64(unit.count) - 1 + n
        if found >= 0 and out[found, 0] == unit.row and start <= out[found, 2]:
            if stop > out[found, 2]:
                out[found, 2] = stop
                out[found, 3] += last - end
                end = last
        else:
            found += 1
            out[found, 0], out[found, 1], out[found, 2] = unit.row, start, stop
            out[found, 3] = last - np.int64(unit.token)
            end = last
    return out[: found + 1].copy()
