"""The weighted sums of the features of ranges of tokens: the score of each window and sentence, in one pass.

Ranges that overlap (a sentence and its window) are summed together, block by block: a block's features are listed once, each
with the tokens that it needs and with the one before it that is the same, and their weights fetched once, in a loop that does
nothing else, so that the processor waits for many rows at a time. A range then adds up those that lie inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.repetition import table_size
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.filter.toxicity.features import MOST_BESIDE, between, most_own, own_of
from corpusmill.pipeline.filter.toxicity.tokens import Tokens

LABELS = 5  # how many a model has
ROW = 8  # of a table: labels, and what else is known of the row
UNIT = 64  # sums are kept in whole numbers of 1 / UNIT of a weight, whatever their order
BLOCK: Final = 1024  # tokens: what one listing covers, unless a range is longer
KEPT: Final = 1 << 17  # tokens whose sums are kept; when there are more, all are forgotten
_COUNT = 5  # in a row of totals: its part of the squares


class _Near(NamedTuple):
    """A block's features, in the order of their tokens."""

    features: Array  # int32
    lows: Array  # int32: the first token that each needs
    highs: Array  # int32: the last


class _Listed(NamedTuple):
    """What is known of a block's features beside that; all of it is written again for every block."""

    starts: Array  # int64[tokens + 1]: where the features of each token begin
    befores: Array  # int32: the one before that is the same feature, -1 if there is none
    table: Array  # uint64: a hash table of features (upper half) with 1 + the last place of each
    weights: Array  # int16[features, ROW]
    totals: Array  # int32[tokens, ROW]: of each token


class _Kept(NamedTuple):
    """Tokens that were read before, and the sums of their own features. Hash table with open addressing: slots hold rows."""

    slots: Array  # int32: -1 for a free one
    hashes: Array  # uint64[capacity]
    totals: Array  # int32[capacity, ROW]
    lasts: Array  # int64[capacity]: 1 + where each was read last, of all tokens read
    counts: Array  # int64[2]: tokens kept; tokens read with them so far


class Rows:
    """A model's weights as `summed` reads them, with what it keeps of the tokens of one batch for the next ones.

    `weights`: int16[buckets, ROW], each feature's within one line of the processor's cache; buckets is a power of two.
    """

    def __init__(self, weights: Array) -> None:
        self.weights = np.zeros((len(weights), ROW), np.int16)
        self.weights[:, :LABELS] = weights
        self._free: list[_Kept] = []  # as many as threads that summed at a time

    def numbered(self, found: Tokens) -> tuple[_Kept, Array, Array]:
        """(what is known of tokens, int32[tokens] the row of each in it, int32[tokens] the one before that is the same or -1).

        Give it back by `keep` when it was used.
        """
        numbers, befores = np.empty(len(found.hashes), np.int32), np.empty(len(found.hashes), np.int32)
        kept = self._free.pop() if self._free else _nothing(KEPT)
        if not _number(found, self.weights, kept, numbers, befores):
            kept = _nothing(max(KEPT, 1 << len(numbers).bit_length()))
            _number(found, self.weights, kept, numbers, befores)
        return kept, numbers, befores

    def keep(self, kept: _Kept) -> None:
        """Of a batch of more distinct tokens than usual nothing is kept."""
        if len(kept.hashes) == KEPT:
            self._free.append(kept)


def summed(found: Tokens, parts: Sequence[Array], values: Array, rows: Rows) -> list[Array]:
    """For each array of ranges, float64[R, LABELS]: the sums of the features' values by their weights.

    `values` are the tokens' own (`features.looked_up`). What batches before had has no influence.
    """
    ranges = np.concatenate(parts)
    kept, numbers, befores = rows.numbered(found)
    order = np.argsort(ranges[:, 0], kind="stable")
    near, listed = _space(int((ranges[:, 1] - ranges[:, 0]).max(initial=BLOCK)))
    sums, squares = np.zeros((len(ranges), LABELS), np.int64), np.zeros(len(ranges), np.int64)
    wide = rows.weights.view(np.uint64), listed.weights.view(np.uint64)
    tokens = found.hashes, values, numbers, befores, kept.totals
    _sum(tokens, ranges, order, near, listed, wide, sums, squares)
    rows.keep(kept)
    scores = sums / (UNIT * np.sqrt(np.maximum(squares, 1)))[:, None]
    return np.split(scores, np.cumsum([len(part) for part in parts])[:-1])


def _nothing(capacity: int) -> _Kept:
    return _Kept(
        np.full(2 * capacity, -1, np.int32), np.empty(capacity, np.uint64), np.zeros((capacity, ROW), np.int32),
        np.zeros(capacity, np.int64), np.zeros(2, np.int64),
    )  # fmt: skip


def _space(tokens: int) -> tuple[_Near, _Listed]:
    """Space for the features of a block of so many tokens."""
    most = MOST_BESIDE * tokens
    near = _Near(np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32))
    listed = _Listed(
        np.empty(tokens + 1, np.int64), np.empty(most, np.int32), np.empty(table_size(most), np.uint64),
        np.empty((most, ROW), np.int16), np.empty((tokens, ROW), np.int32),
    )  # fmt: skip
    return near, listed


@compiled
def _number(found: Any, weights: Any, kept: Any, numbers: Any, befores: Any) -> Any:
    """Put the row of each token into `numbers`, with new rows for new tokens, and the token before that is the same into
    `befores`; whether there was space for all."""
    slots, hashes, totals, lasts, counts = kept
    mask, buckets = np.uint64(len(slots) - 1), np.uint64(len(weights) - 1)
    longest = np.int64(0)
    for t in range(len(numbers)):
        longest = max(longest, found.ends[t] - found.starts[t])
    features = np.empty(most_own(longest), np.int32)
    count, read = counts[0], counts[1]
    for t in range(len(numbers)):
        own = found.hashes[t]
        slot = own & mask
        row = slots[slot]
        while row >= 0 and hashes[row] != own:
            slot = (slot + np.uint64(1)) & mask
            row = slots[slot]
        if row < 0:
            if count == len(hashes):
                return False
            row = np.int32(count)
            slots[slot], hashes[row] = row, own
            _total(weights, features, own_of(found, t, buckets, features, 0), totals[row])
            count += 1
        numbers[t] = row
        befores[t] = max(lasts[row] - read, 0) - 1
        lasts[row] = read + t + 1
    counts[0], counts[1] = count, read + len(numbers)
    return True


@compiled
def _total(weights: Any, features: Any, count: Any, total: Any) -> None:
    """What a token of these features, itself and its character n-grams, adds to each label; and how many squares."""
    total[_COUNT] = 1 + (count > 1)
    for label in range(LABELS):
        grams = 0
        for k in range(1, count):
            grams += weights[features[k], label]
        value = np.float64(weights[features[0], label])
        if count > 1:
            value += grams / np.sqrt(np.float64(count - 1))
        total[label] = np.int32(np.rint(UNIT * value))


@compiled
def _link(features: Any, count: Any, table: Any, befores: Any) -> None:
    """For each of `count` features, the place of the one before that is the same, or -1."""
    size = table_size(count)
    mask = np.uint64(size - 1)
    table[:size] = 0
    for k in range(count):
        feature = np.uint64(features[k])
        slot = feature & mask
        while table[slot] != 0 and table[slot] >> np.uint64(32) != feature:
            slot = (slot + np.uint64(1)) & mask
        befores[k] = np.int32(table[slot] & np.uint64(0xFFFFFFFF)) - 1
        table[slot] = feature << np.uint64(32) | np.uint64(k + 1)


@compiled
def _sum(
    tokens: Any, ranges: Any, order: Any, near: Any, listed: Any, wide: Any, sums: Any, squares: Any
) -> None:
    features, lows, highs = near
    starts, befores, table, weights, totals = listed
    hashes, values, numbers, same, kept = tokens
    rows, fetched = wide  # the model's weights and the block's, two of 64 bits a feature
    mask = np.uint64(len(rows) - 1)
    at = 0
    while at < len(order):
        begin, end = ranges[order[at], 0], ranges[order[at], 1]
        stop = at + 1
        while stop < len(order) and ranges[order[stop], 0] <= end and ranges[order[stop], 1] <= begin + BLOCK:
            end = max(end, ranges[order[stop], 1])
            stop += 1
        count = 0
        for t in range(begin, end):
            for k in range(ROW):
                totals[t - begin, k] = kept[numbers[t], k]
            starts[t - begin] = count
            count = between(hashes, values, t, begin, end, mask, near, count)
        starts[end - begin] = count
        _link(features, count, table, befores)
        for k in range(count):
            fetched[k, 0] = rows[features[k], 0]
            fetched[k, 1] = rows[features[k], 1]
        for number in range(at, stop):
            r = order[number]
            first, last = ranges[r, 0], ranges[r, 1]
            square = a = b = c = d = e = np.int64(0)
            for t in range(first, last):
                if same[t] < first:  # else the range has had it
                    own = t - begin
                    square += totals[own, _COUNT]
                    a += totals[own, 0]
                    b += totals[own, 1]
                    c += totals[own, 2]
                    d += totals[own, 3]
                    e += totals[own, 4]
            x = y = z = v = w = np.int64(0)
            lowest = starts[first - begin]
            for k in range(lowest, starts[last - begin]):
                if lows[k] < first or highs[k] >= last:
                    continue
                before = befores[k]
                while before >= lowest and (lows[before] < first or highs[before] >= last):
                    before = befores[before]
                if before >= lowest:
                    continue  # the range has had it
                square += 1
                x += weights[k, 0]
                y += weights[k, 1]
                z += weights[k, 2]
                v += weights[k, 3]
                w += weights[k, 4]
            squares[r] = square
            sums[r, 0], sums[r, 1], sums[r, 2] = a + UNIT * x, b + UNIT * y, c + UNIT * z
            sums[r, 3], sums[r, 4] = d + UNIT * v, e + UNIT * w
        at = stop
