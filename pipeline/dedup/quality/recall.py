"""Recall: every pair of the sample compared exactly, and whether it shares a band."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.dedup.quality.sample import SAMPLE, STRATA, scattered, shares, strata
from corpusmill.pipeline.dedup.shingle_sets import load_sets, places_of
from corpusmill.pipeline.engine.shuffle import Done, Records, Slice, once, read_slices, starts_of, write
from corpusmill.pipeline.text import minhash
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.manifest import hash_json

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

# Texts `a` < `b` of the sample, by place in it, their exact similarity, and whether they share a band.
PAIR = np.dtype([("a", "<i8"), ("b", "<i8"), ("jaccard", "<f8"), ("hit", "?")])
LEAST = 0.5  # pairs below this similarity are not listed
HASHES = (
    4 << 20
)  # shingles of the sample, at most: what is over is left out, and the summary says what was used
CELLS = 8 << 20  # counts of shared shingles held at once
COMPARED = 1 << 16  # pairs whose band keys are held at once


@dataclass(frozen=True)
class Sample:
    """The published sample, drawn over all partitions."""

    records: Slice


def measure(job: Job, item: Sample) -> Done:
    """Publishes every pair of the sample with Jaccard similarity >= 0.5 (`pairs`, PAIR) and the `texts`
    compared (SAMPLE, by location).

    The sets are those that the exact check stored. Bands are those of the whole set: of a text with more than
    `max_shingles`, of which only the first are signed, a hit is an estimate.
    """
    key = hash_json([job.key, "quality", item.records.xxh3])
    return once(job.work, "quality", key, lambda: _measure(job, item, key))


def _measure(job: Job, item: Sample, key: str) -> Done:
    sample, bounds, hashes = _load(job, read_slices(job.work, [item.records], SAMPLE))
    found = list(near_pairs(bounds, hashes))
    pairs = np.concatenate(found) if found else np.empty(0, PAIR)
    bands, rows = job.banding
    signed = Shingling(job.params, bands * rows).sign_sets(bounds, hashes)
    keys = minhash.band_keys(signed, bands, rows)
    for first in range(0, len(pairs), COMPARED):
        some = pairs[first : first + COMPARED]
        some["hit"] = (keys[some["a"]] == keys[some["b"]]).any(axis=1)
    files = {
        "pairs": write(job.work, "quality.pairs", pairs),
        "texts": write(job.work, "quality.texts", sample),
    }
    return Done(key=key, files=files)


def _load(job: Job, sample: Records) -> tuple[Records, I64, U64]:
    """The texts of the sample whose sets fit, by ascending location, with their sets.

    `HASHES` is shared out as the sample is: the strata of long texts lose some of theirs, and near-copies,
    whose draws are equal, go or stay together.
    """
    by_place = sample[np.argsort(sample["location"])]
    places = places_of(job, by_place["location"])
    fits = fitting(by_place, places["size"])
    bounds, hashes = load_sets(job, places[fits])
    return by_place[fits], bounds, hashes


def fitting(sample: Records, sizes: I64) -> npt.NDArray[np.bool_]:
    """Which texts of the sample fit `HASHES`, in each stratum those with the least draws."""
    stratum = strata(sample["draw"], sample["shingles"])
    order = np.lexsort((sample["lo"], sample["hi"], sample["draw"], stratum))
    wanted = np.bincount(stratum, sizes, STRATA).astype(np.int64)
    room = shares(wanted, HASHES)[stratum[order]]
    new = starts_of(stratum[order])
    running = np.cumsum(sizes[order])
    before = (running - sizes[order])[np.flatnonzero(new)][np.cumsum(new) - 1]
    fits = np.zeros(len(sample), bool)
    fits[order] = running - before <= room
    return fits


def near_pairs(bounds: I64, hashes: U64) -> Iterator[Records]:
    """All pairs of sets with similarity >= `LEAST` as `PAIR` records, by (a, b); `hit` is not set.

    Set i is hashes[bounds[i]:bounds[i + 1]], distinct. By inverted lists: of each hash the sets that have it.
    Hashes with the same list (of a template, most) are counted together. At most `CELLS` counts are held.
    """
    count = len(bounds) - 1
    size = np.diff(bounds)
    starts, owners, weights = _lists(hashes, np.repeat(np.arange(count), size))
    step = max(1, CELLS // max(1, count))
    for first in range(0, count, step):
        shared = _shared(starts, owners, weights, first, min(first + step, count), count)
        a, b = np.nonzero(shared)
        both = shared[a, b].astype(np.int64)
        a = a + first
        similarity = both / (size[a] + size[b] - both)
        near = similarity >= LEAST
        pairs = np.zeros(int(near.sum()), PAIR)
        pairs["a"], pairs["b"], pairs["jaccard"] = a[near], b[near], similarity[near]
        yield pairs


def _lists(hashes: U64, owner: I64) -> tuple[I64, I64, I64]:
    """(starts, owners, weights): the different lists of sets that share a hash, list k being
    owners[starts[k]:starts[k + 1]], ascending, and how many hashes have it."""
    order = np.argsort(hashes, kind="stable")
    owner = owner[order]
    firsts = np.flatnonzero(starts_of(hashes[order])) if len(order) else np.empty(0, np.int64)
    lengths = np.diff(np.r_[firsts, len(order)])
    several = lengths > 1
    if not several.any():
        return np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    marks = [scattered(owner.astype(np.uint64), salt) for salt in (1, 2)]
    # Equal lists have equal sums; two of 64 bits tell different ones apart.
    sums = np.stack([np.add.reduceat(mark, firsts)[several] for mark in marks], axis=1)
    _, chosen, weights = np.unique(sums, axis=0, return_index=True, return_counts=True)
    firsts, lengths = firsts[several][chosen], lengths[several][chosen]
    starts = np.r_[0, np.cumsum(lengths)]
    places = np.repeat(firsts - starts[:-1], lengths) + np.arange(starts[-1])
    return starts, owner[places], weights.astype(np.int64)


@compiled
def _shared(starts: Any, owners: Any, weights: Any, low: int, high: int, count: int) -> Any:
    """int32[high - low, count]: hashes that set `low` + i shares with each set after it."""
    shared = np.zeros((high - low, count), np.int32)
    for k in range(len(weights)):
        for i in range(starts[k], starts[k + 1]):
            if low <= owners[i] < high:
                row = shared[owners[i] - low]
                for j in range(i + 1, starts[k + 1]):
                    row[owners[j]] += weights[k]
    return shared
