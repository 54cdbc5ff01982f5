"""The estimator's constants that are fitted to runs of the stage, and how alike unrelated texts are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import corpus


def fit(runs: Sequence[dict[str, Any]], known: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Seconds for a unit of each step: least squares on relative errors, no constant below 0. Those of `known` are
    taken as they are."""
    from corpusmill.pipeline.dedup.banding import banding
    from corpusmill.pipeline.dedup.estimate.quantities import quantities, widths
    from corpusmill.pipeline.dedup.estimate.step_loads import loads

    units: dict[str, list[dict[str, float]]] = {}
    seconds: dict[str, list[float]] = {}
    for item in runs:
        params = item["params"]
        q = quantities(item["corpus"], params, banding(params))
        for load in loads(q, widths(params), params):
            units.setdefault(load.name, []).append(load.units)
            seconds.setdefault(load.name, []).append(
                item["steps"].get(load.name, {"seconds": 0.0})["seconds"]
            )
    found: dict[str, dict[str, float]] = {}
    for step, rows in units.items():
        apart = dict(known.get(step, {}))
        if "slices" in rows[0] and "slices" not in apart:
            apart |= known["every step"]
        names = [name for name in rows[0] if name not in apart]
        matrix = np.array([[row[name] for name in names] for row in rows])
        rest = np.array(seconds[step]) - [
            sum(price * row[name] for name, price in apart.items()) for row in rows
        ]
        prices = not_negative(matrix, np.maximum(rest, 1e-6), np.maximum(seconds[step], 1e-3))
        found[step] = {**apart, **dict(zip(names, (float(price) for price in prices), strict=True))}
    return {**found, "files together": known["files together"]}


def not_negative(matrix: Any, wanted: Any, weight: Any) -> Any:
    """x >= 0 with the least sum of ((matrix x - wanted) / weight)^2: the best of all sets of positive ones."""
    scale = np.maximum(matrix.max(axis=0), 1e-12)
    scaled = matrix / scale / weight[:, None]
    best, least = np.zeros(matrix.shape[1]), np.inf
    for chosen in range(1, 1 << matrix.shape[1]):
        some = [i for i in range(matrix.shape[1]) if chosen >> i & 1]
        if len(some) > len(wanted):
            continue
        x = np.zeros(matrix.shape[1])
        x[some] = np.linalg.lstsq(scaled[:, some], wanted / weight, rcond=None)[0]
        error = float(((scaled @ x - wanted / weight) ** 2).sum())
        if (x >= 0).all() and error < least - 1e-12:
            best, least = x, error
    return best / scale


def alike(mean_bytes: int = 3000) -> dict[str, tuple[float, ...]]:
    """How alike the passages of the real text are, none edited: `background` and `siblings` of `Measured`.

    The background is measured as far as it goes; from there it is taken to fall tenfold from bin to bin.
    """
    from corpusmill.pipeline.dedup.estimate.pilot import compare, index
    from corpusmill.pipeline.text.shingling import Shingling
    from corpusmill.schemas.dedup import DedupParams

    rows = corpus.plan(int(1.2 * len(corpus.real_text().data) / mean_bytes), mean_bytes)
    whole = (rows["base_rate"] == 0) & (rows["rate"] == 0) & (rows["inserted"] == 0) & (rows["frame"] < 0)
    rows = rows[whole]
    rows = rows[np.unique(rows["first"], return_index=True)[1]]
    shingling = Shingling(DedupParams(), 1)

    def pairs(some: Any) -> Any:
        bounds, hashes = shingling.sets(corpus.texts(some), np.arange(len(some), dtype=np.int64))
        draws = np.zeros(len(some), np.uint64)
        return compare(index(bounds, hashes), draws, 1.0, 0.8).pairs[:50]

    sizes = np.bincount(rows["source"])
    within = sum(pairs(rows[rows["source"] == source]) for source in np.flatnonzero(sizes))
    across = np.maximum(0, pairs(rows) - within)
    shares = across / ((len(rows) ** 2 - (sizes**2).sum()) / 2)
    seen = int(np.flatnonzero(across >= 5)[-1]) + 1 if (across >= 5).any() else 1
    shares[seen:] = shares[seen - 1] * 10.0 ** -np.arange(1, 51 - seen)
    siblings = 2 * within / len(rows)
    return {
        "background": tuple(float(f"{share:.3g}") for share in shares[:10]),
        "siblings": tuple(float(f"{count:.3g}") for count in siblings),
    }
