"""Blocks of windows, and windows: what is compared across the corpus.

A block is the windows of N consecutive tokens that elect the same anchor, 13 of them on average for N = 50. Where
a run of tokens is repeated, so are the blocks inside it, whatever stands around it; only those at its ends
differ, and of these alone single windows are compared.

A unit hashes to 64 bits by two polynomials of its token hashes, one modulo 2^64 and one modulo a prime, so that no
structure of a text (Thue-Morse words meet in the first) fools both. Units are equal if these and their
anchors' 64 bits are; only units with the same anchor can meet by chance in the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.substrings.anchor_kernels import (
    ROLL,
    elected,
    grams,
    holds,
    most_tokens,
    named,
    tokens,
)
from corpusmill.pipeline.text.word_hashes import mix64

# `count` windows of the text in `row`, the first at token `token`; `start` and `length` in bytes of the text.
UNIT = np.dtype(
    [("key", "<u8"), ("check", "<u8"), ("row", "<u4"), ("count", "<u4"), ("token", "<u4"), ("start", "<u4"),
     ("length", "<u4")]
)  # fmt: skip
LONGEST = 1 << 32  # bytes of a text: more do not fit a unit
PRIME = np.uint64(4294967291)  # the largest below 2^32
BASE = np.uint64(2654435769)
_HALF = np.uint64(32)


@compiled(inline="always")
def _put(
    unit: Any, key: Any, rolling: Any, check: Any, row: int, count: int, token: int, starts: Any, n: int
) -> None:
    unit.key = key
    unit.check = mix64(rolling ^ mix64(check + (np.uint64(count) << _HALF)))
    unit.row = row
    unit.count = count
    unit.token = token
    unit.start = starts[token]
    unit.length = starts[token + count - 1 + n] - starts[token]


@compiled
def blocks(
    offsets: Any, data: Any, rows: Any, begin: int, table: Any, k: int, w: int, slots: Any, out: Any
) -> Any:
    """Blocks whose anchor is in the set `slots`: of the texts `rows[begin:]`, as many whole texts as fit `out`
    (`UNIT`), in order; key is the anchor.

    Returns (the first of `rows` that is not done, blocks written, room that this text needs).
    """
    n = k + w - 1
    shift = np.uint64(64)
    size = len(slots)
    while size > 1:
        shift -= np.uint64(1)
        size >>= 1
    room = most_tokens(offsets, rows[begin:])
    hashes, starts = np.empty(room, np.uint64), np.empty(room, np.int64)
    anchors = np.empty(room, np.uint64)
    found = 0
    for i in range(begin, len(rows)):
        row = rows[i]
        count = tokens(data, offsets[row], offsets[row + 1], table, hashes, starts)
        if count < n:
            continue
        grams(hashes, count, k, anchors)
        before = found
        first, last = 0, elected(anchors, 0, w, -1)
        for window in range(1, count - n + 2):
            best = elected(anchors, window, w, last) if window <= count - n else -1
            if best == last:
                continue
            name = named(anchors[last])
            if holds(slots, shift, name):
                if found < len(out):
                    rolling, check = np.uint64(0), np.uint64(0)
                    for j in range(first, window - 1 + n):
                        rolling = rolling * ROLL + hashes[j]
                        check = (check * BASE + (hashes[j] >> _HALF)) % PRIME
                    _put(out[found], name, rolling, check, row, window - first, first, starts, n)
                found += 1
            first, last = window, best
        if found > len(out):
            return i, before, found - before
    return len(rows), found, 0


@compiled
def windows(offsets: Any, data: Any, units: Any, table: Any, n: int) -> Any:
    """The single windows of n tokens (`UNIT`) of blocks, in order, one `count` after the other."""
    total, longest = 0, np.int64(0)
    for unit in units:
        total += unit.count
        longest = max(longest, np.int64(unit.length))
    # A block begins and ends with a token: on its own it has the same tokens as in its text.
    hashes, starts = np.empty(longest // 2 + 2, np.uint64), np.empty(longest // 2 + 2, np.int64)
    top, top_prime = np.uint64(1), np.uint64(1)
    for _ in range(n):
        top *= ROLL
        top_prime = top_prime * BASE % PRIME
    out = np.empty(total, units.dtype)
    found = 0
    for unit in units:
        begin = offsets[unit.row] + np.int64(unit.start)
        tokens(data, begin, begin + np.int64(unit.length), table, hashes, starts)
        rolling, check = np.uint64(0), np.uint64(0)
        for j in range(n):
            rolling = rolling * ROLL + hashes[j]
            check = (check * BASE + (hashes[j] >> _HALF)) % PRIME
        for window in range(np.int64(unit.count)):
            if window:
                new, old = hashes[window + n - 1], hashes[window - 1]
                rolling = rolling * ROLL + new - old * top
                gone = (old >> _HALF) * top_prime % PRIME
                check = (check * BASE + (new >> _HALF) + (PRIME - gone)) % PRIME
            _put(out[found], unit.key, rolling, check, unit.row, 1, window, starts, n)
            out[found].token = np.int64(unit.token) + window
            out[found].start = np.int64(unit.start) + starts[window]
            found += 1
    return out
