"""Recall on a sample: drawn per partition so that near-copies are drawn together, then every pair of it compared exactly,
and whether it shares a band.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.job import Job, copy_fields
from corpusmill.pipeline.dedup.shingle_sets import load_sets, places_of
from corpusmill.pipeline.engine.shuffle import Done, Records, Slice, once, read_slices, starts_of, write
from corpusmill.pipeline.text import minhash
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.manifest import hash_json

SAMPLE = np.dtype([("draw", "<u8"), ("hi", "<u8"), ("lo", "<u8"), ("location", "<i8"), ("shingles", "<i8")])
CROWD = 8  # texts of a stratum with one and the same draw: a template must not be the whole sample
MOST = 5_000  # texts, whatever is asked for: their pairs are listed in memory
STRATA = 64
_LONGEST = 1 << 36  # shingles; longer texts are of one stratum, and the arithmetic stays exact

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
# Texts `a` < `b` of the sample, by place in it, their exact similarity, and whether they share a band.
PAIR = np.dtype([("a", "<i8"), ("b", "<i8"), ("jaccard", "<f8"), ("hit", "?")])
LEAST = 0.5  # pairs below this similarity are not listed
# Shingles of the sample, at most: what is over is left out, and the summary counts what was used.
HASHES = 4 << 20
CELLS = 8 << 20  # counts of shared shingles held at once
COMPARED = 1 << 16  # pairs whose band keys are held at once


def scattered(keys: U64, salt: int) -> U64:
    """Each key mixed to 64 even bits of its own for each `salt` (SplitMix64)."""
    x = keys + np.uint64((salt * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: U64 = x ^ (x >> np.uint64(31))
    return mixed


def strata(draws: U64, shingles: I64) -> I64:
    """The stratum of each text: the binary logarithm of its shingles, rounded up or down by its draw.

    A factor between 1 and 2, the same for equal draws, comes first: near-copies, which have equal draws, part
    only if the factor falls between them (127 and 129 shingles: one time in forty).
    """
    factor = (scattered(draws, 1) >> np.uint64(48)).astype(np.int64) + (1 << 16)
    scaled = np.minimum(np.maximum(shingles, 1), _LONGEST) * factor
    found: I64 = np.frexp(scaled.astype(np.float64))[1].astype(np.int64) - 17
    return found


def sample_records(draws: U64, texts: Records) -> Records:
    """`SAMPLE` records of distinct texts: records with hi, lo, location and shingles, and their draws."""
    records = np.empty(len(texts), SAMPLE)
    records["draw"] = draws
    return copy_fields(texts, records, ("hi", "lo", "location", "shingles"))


def draw(records: Records, size: int) -> Records:
    """The sample out of `SAMPLE` records: at most `size` texts, each once, by (draw, hi, lo).

    What is sampled: the distinct texts with shingles, in strata by their number of shingles (powers of two,
    `strata`). Each stratum has an equal share of `size`; what one cannot use goes to the others. Within a
    stratum those with the least draws are taken, at most `CROWD` of one draw.

    The draw is a min-hash of the shingles that has no part in the signature, mixed so that it is even whatever the
    size: near-copies are drawn together with a probability of their similarity, and whether they are found has no
    part in it (coordinated sampling: Cohen and Kaplan 2007). Single documents drawn at random would contain almost no
    pair. Of two similar pairs the more similar one is the likelier drawn, in proportion.

    Drawing from draws of parts gives the draw of the whole: in a part no stratum's share is less than in the whole.
    """
    names = ("draw", "shingles", "hi", "lo")
    records = records[np.lexsort([records[name] for name in ("location", *names[::-1])])]
    records = records[starts_of(*(records[name] for name in names))]
    stratum = strata(records["draw"], records["shingles"])
    order = np.lexsort((records["lo"], records["hi"], records["draw"], stratum))
    records, stratum = records[order], stratum[order]
    few = _place(starts_of(stratum, records["draw"])) < CROWD
    records, stratum = records[few], stratum[few]
    most = shares(np.bincount(stratum, minlength=STRATA).astype(np.int64), min(size, MOST))
    records = records[_place(starts_of(stratum)) < most[stratum]]
    return records[np.lexsort((records["lo"], records["hi"], records["draw"]))]


def _place(starts: npt.NDArray[np.bool_]) -> I64:
    """The place of each row in its run."""
    first = np.flatnonzero(starts)
    return np.arange(len(starts)) - np.repeat(first, np.diff(np.r_[first, len(starts)]))


def shares(sizes: I64, total: int) -> I64:
    """How many of each stratum: equal parts of `total`, none more than it has, what is left to the first ones.

    For smaller sizes no share of what is there is smaller, which is what lets parts be drawn from by themselves.
    """
    level, used = 0, 0
    for size in np.sort(sizes).tolist():
        open_strata = int((sizes > level).sum())
        if used + (size - level) * open_strata > total:
            level += (total - used) // max(1, open_strata)
            break
        used += (size - level) * open_strata
        level = size
    found: npt.NDArray[Any] = np.minimum(sizes, level)
    more = np.flatnonzero(sizes > level)[: max(0, total - int(found.sum()))]
    found[more] += 1
    return found


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
    space = shares(wanted, HASHES)[stratum[order]]
    new = starts_of(stratum[order])
    running = np.cumsum(sizes[order])
    before = (running - sizes[order])[np.flatnonzero(new)][np.cumsum(new) - 1]
    fits = np.zeros(len(sample), bool)
    fits[order] = running - before <= space
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
    # Equal lists have equal sums; two of 64 bits distinguish different ones.
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
