"""Over all ways to make words of pieces: expected occurrences (forward and backward), the likeliest way (Viterbi), and what the
likelihood loses without a piece.

Words and pieces are `data[bounds[i]:bounds[i + 1]]` (uint8, int64). `units`: the pieces as a trie (`bpe/kernels/tokens.py`), by
their number. `scores`: float64[pieces], log probabilities. Every byte is a piece, so there is a way. Words are taken one after
the other: sums are the same in every process.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.tokens import ROOT, step


@compiled
def _longest(bounds: Any) -> int:
    most = 0
    for i in range(len(bounds) - 1):
        most = max(most, bounds[i + 1] - bounds[i])
    return most


@compiled
def _added(a: float, b: float) -> float:
    """log(exp(a) + exp(b)), of which one at most is minus infinity."""
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high))


@compiled
def expect(data: Any, bounds: Any, counts: Any, units: Any, scores: Any, expected: Any) -> float:
    """Add to `expected` (float64[pieces]) how often each piece is expected in the words, each `counts[i]` times; the words' log
    likelihood."""
    most = _longest(bounds)
    ahead, behind = np.empty(most + 1), np.empty(most + 1)
    likelihood = 0.0
    for word in range(len(counts)):
        start = bounds[word]
        size = bounds[word + 1] - start
        ahead[: size + 1] = -np.inf
        ahead[0] = 0.0
        for i in range(size):
            base = np.int64(ROOT)
            for k in range(i, size):
                there, piece, base = step(data[start + k], base, units)
                if not there:
                    break
                if piece >= 0:
                    ahead[k + 1] = _added(ahead[k + 1], ahead[i] + scores[piece])
        total = ahead[size]
        behind[: size + 1] = -np.inf
        behind[size] = 0.0
        for i in range(size - 1, -1, -1):
            base = np.int64(ROOT)
            for k in range(i, size):
                there, piece, base = step(data[start + k], base, units)
                if not there:
                    break
                if piece >= 0:
                    rest = scores[piece] + behind[k + 1]
                    behind[i] = _added(behind[i], rest)
                    expected[piece] += counts[word] * math.exp(ahead[i] + rest - total)
        likelihood += counts[word] * total
    return likelihood


@compiled
def _best(
    data: Any, start: int, size: int, units: Any, scores: Any, without: int, best: Any, begins: Any, taken: Any
) -> None:  # fmt: skip
    """The likeliest way to make the `size` bytes at `start` of pieces other than `without`: `taken[k]` ends at k, and begins at
    `begins[k]`."""
    best[: size + 1] = -np.inf
    best[0] = 0.0
    for i in range(size):
        base = np.int64(ROOT)
        for k in range(i, size):
            there, piece, base = step(data[start + k], base, units)
            if not there:
                break
            if piece >= 0 and piece != without:
                value = best[i] + scores[piece]
                if value > best[k + 1]:
                    best[k + 1] = value
                    begins[k + 1], taken[k + 1] = i, piece


@compiled
def occurrences(data: Any, bounds: Any, counts: Any, units: Any, scores: Any, found: Any) -> None:
    """Add to `found` (float64[pieces]) how often each piece occurs in the likeliest ways to make the words."""
    most = _longest(bounds) + 1
    best, begins, taken = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64)
    for word in range(len(counts)):
        start = bounds[word]
        at = bounds[word + 1] - start
        _best(data, start, at, units, scores, -1, best, begins, taken)
        while at > 0:
            found[taken[at]] += counts[word]
            at = begins[at]


@compiled
def losses(data: Any, bounds: Any, units: Any, scores: Any, found: Any, lost: Any) -> None:
    """`lost` (float64[pieces]): about how much log likelihood goes with each piece, if its occurrences (`found`) are made of the
    likeliest other pieces; infinity for bytes, which stay, and minus infinity for pieces that do not occur."""
    most = _longest(bounds) + 1
    best, begins, taken = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64)
    total = 0.0
    for piece in range(len(found)):
        total += found[piece]
    for piece in range(len(found)):
        start = bounds[piece]
        size = bounds[piece + 1] - start
        if size == 1:
            lost[piece] = np.inf
            continue
        if found[piece] == 0:
            lost[piece] = -np.inf
            continue
        _best(data, start, size, units, scores, piece, best, begins, taken)
        parts, at = 0, size
        while at > 0:
            parts += 1
            at = begins[at]
        rest = math.log(total + found[piece] * (parts - 1))
        other = 0.0
        at = size
        while at > 0:
            other += math.log(found[taken[at]] + found[piece]) - rest
            at = begins[at]
        lost[piece] = found[piece] * (math.log(found[piece]) - math.log(total) - other)
