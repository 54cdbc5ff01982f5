"""The features of a range of tokens, for training here and for scoring in `sums.py`.

Each is a number in [0, buckets). Of every distinct token: itself, and its character n-grams of 2 to 5 with its ends marked, whose
values are 1 / sqrt(how many the token has), so that they count as much as the token, however long it is. Of tokens that are near
each other, with value 1 and each once: pairs of neighbours; and, of tokens that have a class (named groups, negative and positive
words, profanity, negations, "you", quotation marks, ...), the class, runs of two and three classes within reach, and each
token near it beside the class. These let a model learn "group, negative word" from a few examples and find it with other words.

The values of a range are divided by the square root of their squares' sum (equal n-grams of two tokens are not merged for it).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.filter.toxicity.tokens import Tokens, mixed

LEAST, MOST = 2, 5  # characters of an n-gram
NEAR = 4  # tokens: how far from a token with a class words are looked at
REACH, LAST_REACH = 8, 5  # tokens to the next class of a run, and from the second to the third
_PAIRS_OF_CLASS = 2  # the next two tokens with a class
MOST_BESIDE: Final = 1 + 1 + _PAIRS_OF_CLASS + 1 + 2 * NEAR  # no token has more features beside its own

KNOWN, CLASS = 128, 127  # a token that training knew; the bits of its class


class Lexicon(NamedTuple):
    """A hash table of tokens: slots of `hashes` (0: empty) with `values`: KNOWN, or a class, or both."""

    hashes: Array  # uint64[2^n]
    values: Array  # uint8[2^n]


def lexicon(hashes: Array, values: Array) -> Lexicon:
    """The table of distinct token hashes and their values."""
    size = 1 << max(4, int(2 * len(hashes)).bit_length())
    table = Lexicon(np.zeros(size, np.uint64), np.zeros(size, np.uint8))
    _fill(hashes, values, table)
    return table


class Extracted(NamedTuple):
    """Features of ranges: those of range r lie in [offsets[r], offsets[r + 1]); one may be there more than once."""

    features: Array  # int32
    values: Array  # float32
    offsets: Array  # int64[R + 1]


def extracted(found: Tokens, ranges: Array, values: Array, buckets: int) -> Extracted:
    """Those of tokens [ranges[r, 0], ranges[r, 1]). `values` are the tokens' own (`looked_up`); `buckets` is a power of two."""
    distinct = distinct_of(found, buckets)
    most = int(_most(found, ranges).sum())
    out = Extracted(np.empty(most, np.int32), np.empty(most, np.float32), np.zeros(len(ranges) + 1, np.int64))
    _extract(found, ranges, values, distinct, np.zeros(buckets, np.uint8), out)
    return out._replace(
        features=out.features[: out.offsets[-1]].copy(), values=out.values[: out.offsets[-1]].copy()
    )


def looked_up(found: Tokens, table: Lexicon) -> Array:
    """uint8[tokens]: KNOWN and the class of each, 0 without."""
    values = np.empty(len(found.starts), np.uint8)
    _look_up(found.hashes, table, values)
    return values


class Distinct(NamedTuple):
    """The distinct tokens of a batch, and their own features: a token's n-grams are hashed once."""

    numbers: Array  # int32[tokens]: which of them each is
    features: Array  # int32
    offsets: Array  # int64[distinct + 1]: features of each, the token first


def distinct_of(found: Tokens, buckets: int) -> Distinct:
    count = len(found.starts)
    numbers, firsts = np.empty(count, np.int32), np.empty(count, np.int64)
    size = 1 << max(4, (2 * count).bit_length())
    firsts = firsts[: int(_number(found.hashes, np.full(size, -1, np.int32), numbers, firsts))]
    most = int(most_own(found.ends[firsts] - found.starts[firsts]).sum())
    features, offsets = np.empty(most, np.int32), np.zeros(len(firsts) + 1, np.int64)
    _own(found, firsts, np.uint64(buckets - 1), features, offsets)
    return Distinct(numbers, features, offsets)


def _most(found: Tokens, ranges: Array) -> Array:
    """int64[R]: no range has more features than this."""
    each = most_own(found.ends - found.starts) + MOST_BESIDE
    before = np.concatenate([[0], np.cumsum(each)])
    return np.asarray(before[ranges[:, 1]] - before[ranges[:, 0]])


@compiled
def _fill(hashes: Any, values: Any, table: Any) -> None:
    mask = np.uint64(len(table.hashes) - 1)
    for k in range(len(hashes)):
        slot = hashes[k] & mask
        while table.hashes[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table.hashes[slot], table.values[slot] = hashes[k], values[k]


@compiled
def _look_up(hashes: Any, table: Any, values: Any) -> None:
    mask = np.uint64(len(table.hashes) - 1)
    for k in range(len(hashes)):
        slot = hashes[k] & mask
        while table.hashes[slot] != 0 and table.hashes[slot] != hashes[k]:
            slot = (slot + np.uint64(1)) & mask
        values[k] = table.values[slot] if table.hashes[slot] != 0 else 0


@compiled
def _number(hashes: Any, slots: Any, numbers: Any, firsts: Any) -> Any:
    mask = np.uint64(len(slots) - 1)
    count = 0
    for t in range(len(hashes)):
        slot = hashes[t] & mask
        while slots[slot] >= 0 and hashes[firsts[slots[slot]]] != hashes[t]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot], firsts[count] = count, t
            count += 1
        numbers[t] = slots[slot]
    return count


@compiled
def _own(found: Any, firsts: Any, mask: Any, features: Any, offsets: Any) -> None:
    """The token and its n-grams, of each distinct token."""
    n = 0
    for d in range(len(firsts)):
        n = own_of(found, firsts[d], mask, features, n)
        offsets[d + 1] = n


@compiled(inline="always")
def most_own(characters: Any) -> Any:
    """No token of so many characters has more features of its own."""
    return (characters + 2) * (MOST - LEAST + 1) + 1


@compiled(inline="always")
def own_of(found: Any, t: Any, mask: Any, features: Any, n: Any) -> Any:
    """Write token `t` and its n-grams to `features`, from `n` on; where they end."""
    points, start, end = found.points, found.starts[t], found.ends[t]
    features[n] = mixed(found.hashes[t], 1) & mask
    n += 1
    if end - start > 1 or points[start] > 127:
        for i in range(start - 1, end):
            x = np.uint64(11)
            for j in range(i, min(i + MOST, end + 1)):
                c = np.uint32(60) if j < start else np.uint32(62)
                if start <= j < end:
                    c = points[j]
                x = mixed(x, c)
                if j > i:
                    features[n] = mixed(x, 3) & mask
                    n += 1
    return n


@compiled(inline="always")
def between(hashes: Any, values: Any, t: Any, first: Any, last: Any, mask: Any, near: Any, n: Any) -> Any:
    """Write to `near`, from `n` on, the features that token `t` has with others of [first, last), and those of its class,
    each with the first and the last token that it needs; where they end."""
    features, lows, highs = near
    if t > first:
        features[n] = mixed(mixed(hashes[t - 1], hashes[t]), 2) & mask
        lows[n], highs[n] = t - 1, t
        n += 1
    own = values[t] & CLASS
    if own == 0:
        return n
    features[n] = mixed(mixed(np.uint64(own), 1), 4) & mask
    lows[n], highs[n] = t, t
    n += 1
    seen = 0
    for u in range(t + 1, min(last, t + 1 + REACH)):
        second = values[u] & CLASS
        if second == 0:
            continue
        seen += 1
        pair = mixed(np.uint64(own), second)
        features[n] = mixed(mixed(pair, 2), 4) & mask
        lows[n], highs[n] = t, u
        n += 1
        if seen == _PAIRS_OF_CLASS:
            break
        for v in range(u + 1, min(last, u + 1 + LAST_REACH)):
            third = values[v] & CLASS
            if third:
                features[n] = mixed(mixed(mixed(pair, third), 3), 4) & mask
                lows[n], highs[n] = t, v
                n += 1
                break
    for u in range(max(first, t - NEAR), min(last, t + NEAR + 1)):
        if u != t:
            features[n] = mixed(mixed(mixed(np.uint64(own), hashes[u]), 1 if u > t else 2), 5) & mask
            lows[n], highs[n] = min(t, u), max(t, u)
            n += 1
    return n


@compiled
def _extract(found: Any, ranges: Any, values: Any, distinct: Any, seen: Any, out: Any) -> None:
    mask = np.uint64(len(seen) - 1)
    had = np.full(len(distinct.offsets), -1, np.int64)
    features = np.empty(MOST_BESIDE, np.int32)
    near = features, np.empty(MOST_BESIDE, np.int32), np.empty(MOST_BESIDE, np.int32)
    n = 0
    for r in range(len(ranges)):
        first, last = ranges[r, 0], ranges[r, 1]
        begin, squares = n, 0
        for t in range(first, last):
            d = distinct.numbers[t]
            if had[d] != r:
                had[d] = r
                a, b = distinct.offsets[d], distinct.offsets[d + 1]
                squares += 1 + (b - a > 1)
                for k in range(a, b):
                    out.features[n] = distinct.features[k]
                    out.values[n] = 1 if k == a else 1 / np.sqrt(np.float64(b - a - 1))
                    n += 1
        alone = n
        for t in range(first, last):
            for k in range(between(found.hashes, values, t, first, last, mask, near, 0)):
                if not seen[features[k]]:
                    seen[features[k]] = 1
                    out.features[n], out.values[n] = features[k], 1
                    n += 1
        for k in range(alone, n):
            seen[out.features[k]] = 0
        length = np.sqrt(np.float64(max(squares + n - alone, 1)))
        for k in range(begin, n):
            out.values[k] /= length
        out.offsets[r + 1] = n
