"""What the deduplication found, measured: recall and the S-curve on a sample compared with itself, pair by
pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from pipeline.dedup.banding import Banding
from pipeline.dedup.kernels import kernel
from pipeline.dedup.kernels.shingles import permutations
from pipeline.dedup.records import SAMPLE, Done, Job, Records, Slice, once, parts_of, read_slices, write
from pipeline.dedup.verify import load_nodes, load_sets
from schemas.manifest import hash_json

# Texts `a` and `b` of the sample, their exact similarity, and whether they share a band.
PAIR = np.dtype([("a", "<i8"), ("b", "<i8"), ("jaccard", "<f8"), ("hit", "?")])
LEAST = 0.5  # pairs below this similarity are not listed
HASHES = (
    4 << 20
)  # shingles of the sample, at most: what is over is left out, and the report says how much was used
BINS = tuple(round(0.5 + 0.05 * step, 2) for step in range(11))


@dataclass(frozen=True)
class Sample:
    """The published sample, drawn over all partitions."""

    records: Slice


def measure(job: Job, item: Sample) -> Done:
    """Publishes every pair of the sample with Jaccard similarity >= 0.5 (`pairs`), and the `texts`
    compared."""
    key = hash_json([job.key, "quality", item.records.xxh3])
    return once(job.work, "quality", key, lambda: _measure(job, item, key))


def _measure(job: Job, item: Sample, key: str) -> Done:
    sample = read_slices(job.work, [item.records], SAMPLE)
    sample, bounds, hashes = _load(job, sample)
    order = np.argsort(hashes, kind="stable")
    owner = np.repeat(np.arange(len(sample)), np.diff(bounds))[order]
    shared = _shared(hashes[order], owner, len(sample))
    size = np.diff(bounds)
    a, b = np.nonzero(np.triu(shared, 1))
    similarity = shared[a, b] / (size[a] + size[b] - shared[a, b])
    near = similarity >= LEAST
    pairs = np.zeros(int(near.sum()), PAIR)
    pairs["a"], pairs["b"], pairs["jaccard"] = a[near], b[near], similarity[near]
    bands, rows = job.banding
    used = permutations(job.params.num_perm, job.params.seed).first(bands * rows)
    keys = kernel.band_keys(kernel.sign_sets(bounds, hashes, *used), bands, rows)
    pairs["hit"] = (keys[pairs["a"]] == keys[pairs["b"]]).any(axis=1)
    files = {
        "pairs": write(job.work, "quality.pairs", pairs),
        "texts": write(job.work, "quality.texts", sample),
    }
    return Done(key=key, files=files)


def _load(job: Job, sample: Records) -> tuple[Records, npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """The texts of the sample whose sets fit, by ascending location, with their sets."""
    by_place = sample[np.argsort(sample["location"])]
    parts = parts_of(by_place["location"])
    nodes = []
    for part in np.unique(parts):
        found = load_nodes(job, int(part))
        nodes.append(found[np.searchsorted(found["location"], by_place["location"][parts == part])])
    sizes = np.concatenate([some["size"] for some in nodes]) if nodes else np.empty(0, np.int64)
    drawn = np.argsort(np.lexsort((by_place["lo"], by_place["hi"], by_place["draw"])))  # rank in the draw
    in_order = np.empty(len(sizes), np.int64)
    in_order[drawn] = sizes
    fits = (np.cumsum(in_order) <= HASHES)[drawn]
    sets = []
    for part, some in zip(np.unique(parts), nodes, strict=True):
        sets.append(load_sets(job, int(part), some[fits[parts == part]])[1])
    bounds = np.r_[0, np.cumsum(sizes[fits])].astype(np.int64)
    return by_place[fits], bounds, np.concatenate(sets) if sets else np.empty(0, np.uint64)


@njit(cache=True, nogil=True)
def _shared(hashes: Any, owner: Any, count: int) -> Any:
    """int32[count, count]: hashes that two texts share; `hashes` ascending, each with the text that it is
    of."""
    shared = np.zeros((count, count), np.int32)
    first = 0
    while first < len(hashes):
        last = first + 1
        while last < len(hashes) and hashes[last] == hashes[first]:
            last += 1
        for i in range(first, last):
            for j in range(i + 1, last):
                shared[owner[i], owner[j]] += 1
        first = last
    return shared


def wilson(found: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % confidence interval of a share (Wilson 1927); (0, 1) for a share of nothing."""
    if of == 0:
        return 0.0, 1.0
    share = found / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def share(found: int, of: int) -> dict[str, Any]:
    """A share with its interval; null when there was nothing to count."""
    low, high = wilson(found, of)
    value = round(found / of, 6) if of else None
    return {"value": value, "found": found, "of": of, "low": round(low, 6), "high": round(high, 6)}


def summary(
    pairs: Records, labels: npt.NDArray[np.int64], banding: Banding, similarity: float
) -> dict[str, Any]:
    """Recall and the empirical S-curve, from the sample's pairs.

    `labels` are the clusters of the sample's texts, -1 for none. `recall` counts pairs at least as similar as
    asked that ended in one cluster; `lsh_recall` those that shared a band. In the curve, `expected` is the
    mean of the theoretical probability over the pairs of each bin.
    """
    near = pairs[pairs["jaccard"] >= similarity]
    a, b = labels[near["a"]], labels[near["b"]]
    together = (a == b) & (a >= 0)
    curve = []
    for low, high in zip(BINS, [*BINS[1:], 2.0], strict=True):
        some = pairs[(pairs["jaccard"] >= low) & (pairs["jaccard"] < high)]
        expected = (
            round(math.fsum(banding.found(float(j)) for j in some["jaccard"]) / len(some), 6)
            if len(some)
            else None
        )
        curve.append({"jaccard": low, "expected": expected, **share(int(some["hit"].sum()), len(some))})
    return {
        "texts": len(labels),
        "recall": share(int(together.sum()), len(near)),
        "lsh_recall": share(int(near["hit"].sum()), len(near)),
        "curve": curve,
    }
