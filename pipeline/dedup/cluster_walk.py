"""Which texts of a cluster stay: the kernels.

Texts are numbered in survivor order throughout, so a smaller number is always the better one to keep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

FRONT = 64  # texts of a cluster that may prove to stay in one round, at most
PAIRS = 1 << 22  # pairs of one cluster compared in a round, at most (or those of one text)
ROUNDS = 20  # rounds in which pairs are still compared: about 900 survivors of one cluster


@compiled
def _width(members: Any, start: int, stop: int, survivor: Any, front: int) -> int:
    """How many open texts of a cluster come to the front: fewer when it is so large that pairs would swamp
    memory."""
    still_open = 0
    for i in range(start, stop):
        still_open += survivor[members[i]] < 0
    return max(1, min(front, PAIRS // max(1, still_open)))


@compiled
def _front_pairs(members: Any, starts: Any, sizes: Any, survivor: Any, front: int, least: float) -> Any:
    """Pairs of the first `front` open texts of each cluster with the open texts after them. Two sets of which
    one is less than `least` times as large as the other are left out."""
    a = np.empty(1024, np.int64)
    b = np.empty(1024, np.int64)
    count = 0
    for cluster in range(len(starts) - 1):
        seen = 0
        width = _width(members, starts[cluster], starts[cluster + 1], survivor, front)
        for i in range(starts[cluster], starts[cluster + 1]):
            if survivor[members[i]] >= 0:
                continue
            seen += 1
            if seen > width:
                break
            for j in range(i + 1, starts[cluster + 1]):
                if survivor[members[j]] >= 0:
                    continue
                x, y = sizes[members[i]], sizes[members[j]]
                if min(x, y) < (1 - 1e-12) * least * max(x, y):
                    continue
                if count == len(a):
                    a = np.concatenate((a, np.empty(count, np.int64)))
                    b = np.concatenate((b, np.empty(count, np.int64)))
                a[count], b[count] = members[i], members[j]
                count += 1
    return a[:count], b[:count]


@compiled
def _settle(
    members: Any, starts: Any, survivor: Any, score: Any, protected: Any, front: int, threshold: float,
    first: Any, right: Any, value: Any,
) -> int:  # fmt: skip
    """The walk: of the first `front` open texts of each cluster, each not yet removed stays, and removes the
    open texts after it that are known to be similar and are not protected. Returns how many texts are still
    open.

    Known pairs by left end: those of text x are right[first[x]:first[x + 1]], with their similarity in
    `value`.
    """
    still_open = 0
    for cluster in range(len(starts) - 1):
        seen = 0
        width = front
        if front < len(survivor):  # otherwise the last walk, on what is known
            width = _width(members, starts[cluster], starts[cluster + 1], survivor, front)
        for i in range(starts[cluster], starts[cluster + 1]):
            x = members[i]
            # A text that this very walk removed was open at its beginning: it counts for the front.
            if survivor[x] >= 0 and survivor[x] < len(survivor):
                continue
            seen += 1
            if seen > width:
                still_open += survivor[x] < 0
                continue
            if survivor[x] >= 0:
                continue
            survivor[x] = x + len(survivor)
            score[x] = 1.0
            for p in range(first[x], first[x + 1]):
                y = right[p]
                if survivor[y] < 0 and not protected[y] and value[p] >= threshold:
                    survivor[y] = x + len(survivor)
                    score[y] = value[p]
        for i in range(starts[cluster], starts[cluster + 1]):
            if survivor[members[i]] >= len(survivor):
                survivor[members[i]] -= len(survivor)
    return still_open


Compare = Callable[[int, I64, I64], F64]


def elect(
    labels: I64, sizes: I64, protected: npt.NDArray[np.bool_], known: tuple[I64, I64, F64],
    threshold: float, least: float, compare: Compare,
) -> tuple[I64, F64, int]:  # fmt: skip
    """Which text stays in place of each: (int64[n] survivors, float64[n] similarity to them, texts cut
    short).

    Within a cluster texts are taken in survivor order: one that is similar (`threshold`) to an earlier text
    that stays is removed for the first such; every other stays, and so do those `protected`. No text goes for
    its likeness to one that went. `labels` are components, `sizes` of shingle sets, `known` the pairs (a < b)
    whose similarity is known; `compare(round, a, b)` gives that of further pairs, asked only of sets whose
    sizes have at least the ratio `least`. Clusters with more survivors than `ROUNDS` allow are finished on
    known pairs alone: they keep more, never less. The third result counts the texts so judged.
    """
    count = len(labels)
    members = np.lexsort((np.arange(count), labels))
    starts = (
        np.flatnonzero(np.r_[True, labels[members][1:] != labels[members][:-1], True])
        if count
        else np.zeros(1, int)
    )
    survivor, score = np.full(count, -1, np.int64), np.ones(count)
    a, b, value = known
    front, still_open = 1, count
    for turn in range(ROUNDS):
        if still_open == 0:
            return survivor, score, 0
        left, right = _front_pairs(members, starts, sizes, survivor, front, least)
        fresh = ~np.isin(left * count + right, a * count + b)
        left, right = left[fresh], right[fresh]
        if len(left):
            a, b, value = np.r_[a, left], np.r_[b, right], np.r_[value, compare(turn, left, right)]
        still_open = _settle(
            members, starts, survivor, score, protected, front, threshold, *by_left(count, a, b, value)
        )
        front = min(2 * front, FRONT)
    if still_open:
        # The front is every text: nothing stays open.
        _settle(members, starts, survivor, score, protected, count, threshold, *by_left(count, a, b, value))
    return survivor, score, still_open


def by_left(count: int, a: I64, b: I64, value: F64) -> tuple[I64, I64, F64]:
    """Pairs as adjacency by their left end: (first, right, value)."""
    order = np.lexsort((b, a))
    first = np.searchsorted(a[order], np.arange(count + 1))
    return first.astype(np.int64), b[order], value[order]
