"""The figures of `measured` in `quality.json`: shares with their confidence intervals, curves and strata."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.quality.recall import LEAST
from corpusmill.pipeline.engine.shuffle import Records
from corpusmill.pipeline.engine.unionfind import components

Z95 = 1.959964

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Facts = dict[str, Any]
Count = Callable[[Flags, Flags], Facts]  # (which things are meant, which are found) -> their share
BINS = tuple(round(LEAST + 0.05 * step, 2) for step in range(11))


def wilson(found: float, of: float, z: float = Z95) -> tuple[float, float]:
    """The 95 % confidence interval of a share (Wilson 1927); (0, 1) for a share of nothing."""
    if of == 0:
        return 0.0, 1.0
    share = found / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def share(found: int, of: int, independent: float | None = None) -> dict[str, Any]:
    """A share with its interval; null when there was nothing to count.

    Where the things counted depend on one another, `independent` says as how many the interval takes them
    (`effective`), at most `of`.
    """
    if independent is None or independent >= of:
        low, high = wilson(found, of)
        effective: dict[str, Any] = {}
    else:
        low, high = wilson(found * independent / of, independent)
        effective = {"effective": round(independent, 1)}
    value = round(found / of, 6) if of else None
    interval = {"low": round(low, 6), "high": round(high, 6)}
    return {"value": value, "found": found, "of": of, **interval, **effective}


def summary(
    banding: Banding, similarity: float, texts: Records, pairs: Records, labels: I64, planted: Records,
    precision: Facts,
) -> Facts:  # fmt: skip
    """Recall, the empirical S-curve and precision.

    `texts` (SAMPLE) and `pairs` (recall.PAIR) are what `measure` published, `labels` the clusters of the
    texts, -1 for none; `planted` are PLANTED records, their `found` set. `recall` counts pairs at least as
    similar as asked that ended in one cluster (planted copies that met a text as similar), `lsh_recall` those
    that shared a band; `expected` is the mean of the theoretical probability over the same pairs.

    Intervals are Wilson's, at 95 %. Pairs of one cluster of the sample are not independent: theirs count as
    Kish's effective number of clusters, which is on the safe side.
    """
    a, b = labels[pairs["a"]], labels[pairs["b"]]
    together = (a == b) & (a >= 0)
    groups = components(len(texts), pairs["a"], pairs["b"])[pairs["a"]]
    near = pairs["jaccard"] >= similarity
    grouped = _counter(groups)
    alone = _counter(np.arange(len(planted)))
    meant = planted["jaccard"] >= similarity
    jaccards = np.r_[pairs["jaccard"], planted["jaccard"]]
    both = _counter(np.r_[groups, len(texts) + np.arange(len(planted))])
    hits = np.r_[pairs["hit"], planted["hit"]]
    return {
        "texts": len(texts),
        "strata": _strata(texts, pairs, near, together, grouped),
        "recall": grouped(near, together),
        "lsh_recall": {**grouped(near, pairs["hit"]), "expected": _expected(banding, pairs["jaccard"][near])},
        "curve": _curve(banding, pairs["jaccard"], pairs["hit"], grouped),
        "planted": {
            "texts": len(planted),
            "recall": alone(meant, planted["found"]),
            "lsh_recall": {
                **alone(meant, planted["hit"]),
                "expected": _expected(banding, planted["jaccard"][meant]),
            },
            "curve": _curve(banding, planted["jaccard"], planted["hit"], alone),
        },
        "combined_curve": _curve(banding, jaccards, hits, both),
        "precision": precision,
    }


def _counter(groups: I64) -> Count:
    """Shares of things that belong to groups of dependent ones."""

    def count(meant: Flags, found: Flags) -> Facts:
        of = int(meant.sum())
        sizes = np.unique(groups[meant], return_counts=True)[1].astype(np.float64)
        independent = of * of / float((sizes**2).sum()) if of else 0.0
        return share(int((meant & found).sum()), of, independent)

    return count


def _expected(banding: Banding, jaccards: npt.NDArray[np.float64]) -> float | None:
    if len(jaccards) == 0:
        return None
    distinct, counts = np.unique(jaccards, return_counts=True)
    terms = (banding.found(j) * n for j, n in zip(distinct.tolist(), counts.tolist(), strict=True))
    return round(math.fsum(terms) / len(jaccards), 6)


def _curve(banding: Banding, jaccards: npt.NDArray[np.float64], hits: Flags, count: Count) -> list[Facts]:
    """Share of pairs that share a band, by bins of 0.05 from 0.5 on; the last is 1 alone."""
    curve = []
    for low, high in zip(BINS, [*BINS[1:], 2.0], strict=True):
        some = (jaccards >= low) & (jaccards < high)
        expected = _expected(banding, jaccards[some])
        middle = round(math.fsum(jaccards[some]) / int(some.sum()), 6) if some.any() else None
        curve.append({"jaccard": low, "mean": middle, "expected": expected, **count(some, hits)})
    return curve


def _strata(texts: Records, pairs: Records, near: Flags, together: Flags, count: Count) -> list[Facts]:
    """Texts of the sample by powers of two of their shingles, and the recall of pairs by the shorter text."""
    size = np.frexp(np.maximum(texts["shingles"], 1).astype(np.float64))[1] - 1
    shorter = np.minimum(size[pairs["a"]], size[pairs["b"]])
    return [
        {
            "from": 1 << step,
            "to": (2 << step) - 1,
            "texts": int((size == step).sum()),
            "recall": count(near & (shorter == step), together),
        }
        for step in np.unique(size).tolist()
    ]
