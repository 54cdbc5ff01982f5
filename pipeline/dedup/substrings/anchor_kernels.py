"""Numba kernels from texts to what is compared across the corpus: tokens, anchors, blocks of windows, single windows.

A token begins where a word begins, by the word rule of `pipeline/text/word_rule.py`, and ends where the next one begins
or the text ends. What precedes the first word of a text is no token. Nothing is folded: two runs of tokens are equal
if every byte is, from the first letter of the first word to the last separator before the next word. A token hashes to
64 bits by FNV-1a over its bytes, finished by MurmurHash3's mixer.

Anchors are a few of the runs of k tokens, chosen so that equal texts choose the same. Of the w = N - k + 1 runs of k
tokens in a window of N tokens the one with the least hash, the rightmost of equals, is elected (Schleimer, Wilkerson and
Aiken 2003, "Winnowing"). Equal windows elect equal anchors, wherever they are; consecutive windows mostly elect the same,
so that there are about 2 / (w + 1) anchors per token.

A block is the windows of N consecutive tokens that elect the same anchor, 13 of them on average for N = 50. Where
a run of tokens is repeated, so are the blocks inside it, whatever stands around it; only those at its ends
differ, and of these alone single windows are compared.

A block or window hashes to 64 bits by two polynomials of its token hashes, one modulo 2^64 and one modulo a prime, so that
no structure of a text (Thue-Morse words collide in the first) defeats both. Two are equal if these and their anchors' 64
bits are; only those with the same anchor can collide by chance in the first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.minhash import ROLL, roll
from corpusmill.pipeline.text.word_hashes import FNV_BASIS, FNV_PRIME, code_point, mix64

# What a character does: end a word, go on with whatever is there, belong to a word of several, be one alone.
BETWEEN, GOES_ON, INSIDE, ALONE = range(4)
RULE = f"1/{word_rule.RULE}"  # of tokens and their hashes; raised with every change of either

MANY = np.uint64(1)  # the lowest bit of an anchor: it was elected more than once in its partition
SHORTEST = 12  # tokens of an anchor: shorter ones repeat by themselves
# `count` windows of the text in `row`, the first at token `token`; `start` and `length` in bytes of the text.
UNIT = np.dtype(
    [("key", "<u8"), ("check", "<u8"), ("row", "<u4"), ("count", "<u4"), ("token", "<u4"), ("start", "<u4"),
     ("length", "<u4")]
)  # fmt: skip
LONGEST = 1 << 32  # bytes of a text: more do not fit a unit
PRIME = np.uint64(4294967291)  # the largest below 2^32
BASE = np.uint64(2654435769)
_HALF = np.uint64(32)


@lru_cache(maxsize=1)
def classes() -> npt.NDArray[np.uint8]:
    """uint8[0x110000]: what each code point does."""
    rule = word_rule.rule()
    kind = (rule.entries >> word_rule.CLASS_SHIFT).astype(np.uint8)
    composed = kind == word_rule.COMPOSED
    piece = rule.entries[composed] & ((1 << word_rule.CLASS_SHIFT) - 1)
    kind[composed] = rule.pieces[piece, 0] >> word_rule.CLASS_SHIFT
    found = np.full(len(kind), GOES_ON, np.uint8)  # marks and what is passed over
    found[kind == word_rule.SEPARATOR] = BETWEEN
    found[np.isin(kind, (word_rule.LETTER, word_rule.JOIN, word_rule.HANGUL))] = INSIDE
    found[kind == word_rule.ALONE] = ALONE
    return found


@compiled
def most_tokens(offsets: Any, rows: Any) -> int:
    """Length of an array for the tokens of the longest text: two words of one byte have another between them."""
    longest = 0
    for row in rows:
        longest = max(longest, offsets[row + 1] - offsets[row])
    return longest // 2 + 2


@compiled
def tokens(data: Any, start: int, stop: int, table: Any, hashes: Any, starts: Any) -> int:
    """Tokens of UTF-8 `data[start:stop]`, `table` from `classes`: their hashes, and where they start, in bytes
    from `start`, with the end of the text as one more; how many. Both arrays have `most_tokens` elements."""
    count = 0
    state = np.int64(BETWEEN)
    token = FNV_BASIS
    i = start
    while i < stop:
        byte = data[i]
        if byte < 0x80:
            kind, end = table[byte], i + 1
        else:
            point, end = code_point(data, i, stop)
            kind = table[point] if point < 0x110000 else np.uint8(BETWEEN)
        if kind == ALONE or (kind == INSIDE and state != INSIDE):
            if count:
                hashes[count - 1] = mix64(token)
            starts[count] = i - start
            count += 1
            token = FNV_BASIS
        if kind != GOES_ON:
            state = np.int64(kind)
        while i < end:
            token = (token ^ np.uint64(data[i])) * FNV_PRIME
            i += 1
    if count:
        hashes[count - 1] = mix64(token)
    starts[count] = stop - start
    return count


class Winnow(NamedTuple):
    """Anchors of `k` tokens; one is elected of every `w`."""

    k: int
    w: int

    @property
    def tokens(self) -> int:
        """In a window."""
        return self.k + self.w - 1

    @classmethod
    def of(cls, min_tokens: int) -> Winnow:
        """Half of the window is the anchor: few are elected, and they rarely repeat without the window."""
        k = min(min_tokens, max(SHORTEST, min_tokens // 2))
        return cls(k, min_tokens - k + 1)


@compiled(inline="always")
def elected(hashes: Any, window: int, w: int, last: int) -> int:
    """Where the anchor of a window begins among the hashes of all runs of k tokens, given that of the window before it (-1: none)."""
    newest = window + w - 1
    if last >= window:
        return newest if hashes[newest] <= hashes[last] else last
    best = window
    for i in range(window + 1, newest + 1):
        if hashes[i] <= hashes[best]:
            best = i
    return best


@compiled(inline="always")
def named(gram: Any) -> Any:
    """The anchor of an elected gram, its lowest bit 0: mixed again, because the elected are the
    least ones, and ranges and hash tables want numbers of all sizes."""
    return mix64(gram) & ~MANY


@compiled
def winnow(offsets: Any, data: Any, rows: Any, table: Any, k: int, w: int) -> Any:
    """(elected anchors of the texts at `rows`, uint64; how many tokens they have). Of a text shorter than a
    window none."""
    capacity = most_tokens(offsets, rows)
    hashes, starts = np.empty(capacity, np.uint64), np.empty(capacity, np.int64)
    out = np.empty(1024, np.uint64)
    found, total = 0, 0
    for row in rows:
        count = tokens(data, offsets[row], offsets[row + 1], table, hashes, starts)
        total += count
        if count < k + w - 1:
            continue
        last = -1
        for window in range(roll(hashes, count, k, hashes) - w + 1):
            best = elected(hashes, window, w, last)
            if best != last:
                last = best
                if found == len(out):
                    larger = np.empty(2 * found, np.uint64)
                    larger[:found] = out
                    out = larger
                out[found] = named(hashes[best])
                found += 1
    return out[:found], total


@compiled
def distinct(anchors: Any) -> int:
    """Sorted anchors to distinct ones, in place, with `MANY` on those that were there twice; how many."""
    count = 0
    for i in range(len(anchors)):
        if count and anchors[i] == anchors[count - 1] & ~MANY:
            anchors[count - 1] |= MANY
        else:
            anchors[count] = anchors[i]
            count += 1
    return count


@compiled
def hash_set(anchors: Any) -> Any:
    """Anchors for `holds`: open addressing by their upper bits, uint64[a power of two], 0 where none is."""
    bits = 4
    while (1 << bits) < 2 * len(anchors):
        bits += 1
    slots = np.zeros(1 << bits, np.uint64)
    for anchor in anchors:
        value = anchor | MANY
        i = np.int64(value >> np.uint64(64 - bits))
        while slots[i] != 0 and slots[i] != value:
            i = (i + 1) & (len(slots) - 1)
        slots[i] = value
    return slots


@compiled(inline="always")
def holds(slots: Any, shift: Any, anchor: Any) -> bool:
    """Whether the anchor is in the set; `shift` is 64 - log2(slots)."""
    value = anchor | MANY
    i = np.int64(value >> shift)
    while slots[i] != 0:
        if slots[i] == value:
            return True
        i = (i + 1) & (len(slots) - 1)
    return False


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

    Returns (the first of `rows` that is not done, blocks written, length of `out` that this text needs).
    """
    n = k + w - 1
    shift = np.uint64(64)
    size = len(slots)
    while size > 1:
        shift -= np.uint64(1)
        size >>= 1
    capacity = most_tokens(offsets, rows[begin:])
    hashes, starts = np.empty(capacity, np.uint64), np.empty(capacity, np.int64)
    anchors = np.empty(capacity, np.uint64)
    found = 0
    for i in range(begin, len(rows)):
        row = rows[i]
        count = tokens(data, offsets[row], offsets[row + 1], table, hashes, starts)
        if count < n:
            continue
        roll(hashes, count, k, anchors)
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
