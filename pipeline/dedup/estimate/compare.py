"""All pairs of a small sample of shingle sets that share a shingle, by an inverted index, exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.estimate.corpus import BINS

GROUPS = 20  # of the jackknife
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


SLOTS = 1 << 25  # at most


class Index(NamedTuple):
    """Documents by shingle, of those shingles that several documents may have. Document d has `place[i]` for i
    in bounds[d]:bounds[d + 1], and `holders[starts[p] : starts[p + 1]]` hold the shingle at place p."""

    sizes: I64  # distinct shingles of each document, all of them
    bounds: I64
    place: I64
    starts: I64
    holders: npt.NDArray[np.int32]


class Compared(NamedTuple):
    """Weighed pairs of the sample. `similar`: those at the similarity or above, `seen` without weights;
    `without`: the jackknife's values of `similar`, a group left out each."""

    pairs: F64
    similar: float
    seen: int
    without: F64


def index(bounds: I64, hashes: npt.NDArray[np.uint64]) -> Index:
    """The inverted index of shingle sets, as `Shingling.sets` gives them."""
    sizes = np.diff(bounds)
    # Most shingles are of one document alone: sorting the rest is several times as fast.
    several = _several(hashes)
    kept = np.r_[0, np.cumsum(several)][bounds].astype(np.int64)
    hashes = hashes[several]
    order = np.argsort(hashes)
    ordered = hashes[order]
    new = np.ones(len(ordered), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = np.r_[np.flatnonzero(new), len(ordered)].astype(np.int64)
    place = np.empty(len(ordered), np.int64)
    place[order] = np.cumsum(new) - 1
    document = np.repeat(np.arange(len(sizes), dtype=np.int32), np.diff(kept))
    return Index(sizes, kept, place, starts, document[order])


@compiled
def _several(hashes: Any) -> Any:
    """Whether the lower bits of each hash occur more than once."""
    slots = 1024
    while slots < SLOTS and slots < 8 * len(hashes):
        slots *= 2
    seen = np.zeros(slots, np.uint8)
    mask = np.uint64(slots - 1)
    for value in hashes:
        slot = value & mask
        seen[slot] = min(2, seen[slot] + 1)
    result = np.empty(len(hashes), np.bool_)
    for i in range(len(hashes)):
        result[i] = seen[hashes[i] & mask] > 1
    return result


def work_of(found: Index) -> int:
    """How often two documents meet in a shingle."""
    holders = np.diff(found.starts)
    return int((holders * (holders - 1)).sum())


def compare(found: Index, draws: npt.NDArray[np.uint64], threshold: float, similarity: float) -> Compared:
    """Every pair with a common shingle, weighed by one over the probability that both were drawn.

    Pairs of equal draws come and go together: where a group of draws is left out they are grown by G / (G - 1),
    other pairs by the square of it.
    """
    group = (draws % np.uint64(GROUPS)).astype(np.int64)
    pairs, same, cross, count = _compare(
        found.sizes, found.bounds, found.place, found.starts, found.holders, group, threshold, similarity
    )
    grown = GROUPS / (GROUPS - 1)
    # `cross` has each pair in the groups of both of its ends.
    without = (same.sum() - same) * grown + (cross.sum() / 2 - cross) * grown**2
    return Compared(pairs, float(same.sum() + cross.sum() / 2), int(count), without)


@compiled
def _compare(
    sizes: Any,
    bounds: Any,
    place: Any,
    starts: Any,
    holders: Any,
    group: Any,
    threshold: float,
    similarity: float,
) -> Any:
    pairs = np.zeros(BINS)
    same = np.zeros(GROUPS)
    cross = np.zeros(GROUPS)
    count = 0
    shared = np.zeros(len(sizes), np.int32)
    touched = np.empty(len(sizes), np.int32)
    for i in range(len(sizes)):
        met = 0
        for k in range(bounds[i], bounds[i + 1]):
            for slot in range(starts[place[k]], starts[place[k] + 1]):
                j = holders[slot]
                if j < i:
                    if shared[j] == 0:
                        touched[met] = j
                        met += 1
                    shared[j] += 1
        for m in range(met):
            j = touched[m]
            jaccard = shared[j] / (sizes[i] + sizes[j] - shared[j])
            shared[j] = 0
            weight = 1.0 / (jaccard * threshold + (1 - jaccard) * threshold * threshold)
            pairs[min(BINS - 1, int(jaccard * BINS))] += weight
            if jaccard >= similarity:
                count += 1
                if group[i] == group[j]:
                    same[group[i]] += weight
                else:
                    cross[group[i]] += weight
                    cross[group[j]] += weight
    return pairs, same, cross, count
