"""Intervals of what is no mean: a bootstrap over independent units, and assignments of groups at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.fairness import Figure
from corpusmill.train.evaluate.statistics import Z

Floats = npt.NDArray[np.float64]
DRAWS = 2000  # of a bootstrap
AT_ONCE = 1 << 22  # units drawn at a time: some 100 MB
SEED = 20
FEW = "too few items for an interval"


def resampled(sums: Floats, draws: int = DRAWS, seed: int = SEED) -> Floats:
    """Sums over resamples of the units of `sums` [units, columns], float64 [draws, columns]. Equally many units give the same
    resamples, so that columns may be resampled together or one by one."""
    units = len(sums)
    rng = np.random.default_rng([seed, units])
    chunk = max(AT_ONCE // units, 1)
    found = np.empty((draws, sums.shape[1]))
    for start in range(0, draws, chunk):
        count = min(chunk, draws - start)
        chosen = rng.integers(0, units, (count, units)) + np.arange(count)[:, None] * units
        times = np.bincount(chosen.ravel(), minlength=count * units).reshape(count, units)
        found[start : start + count] = times @ sums
    return found


def unit_sums(columns: Sequence[Sequence[float]], units: Sequence[Hashable]) -> Floats:
    """Sums of each column over the rows of each unit, float64 [units, columns]."""
    number = {name: place for place, name in enumerate(dict.fromkeys(units))}
    at = np.array([number[name] for name in units], dtype=np.int64)
    found = np.zeros((len(number), len(columns)))
    for place, column in enumerate(columns):
        found[:, place] = np.bincount(at, np.asarray(column, dtype=np.float64), minlength=len(number))
    return found


def bootstrap(
    metric: Callable[[Floats], Floats],
    rows: npt.ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
) -> Estimate:
    """A metric that is a function of sums over the items, such as corpus BLEU, F1 or a correlation, with a percentile interval.

    `rows` [items, k]: what is summed; `metric`: sums [draws, k] -> values [draws]. Clusters are the units that are drawn, as many as
    there are. For a paired difference, `rows` has the columns of both models.
    """
    table = np.asarray(rows, dtype=np.float64)
    sums = table if clusters is None else unit_sums(list(table.T), clusters)

    def of_sums(found: Floats) -> Floats:
        return metric(found.reshape(-1, table.shape[1])).reshape(found.shape[:-1])

    return bootstrapped(sums, of_sums, len(table), draws, seed)


def bootstrapped(
    sums: Floats, statistic: Callable[[Floats], Floats], n: int, draws: int = DRAWS, seed: int = SEED
) -> Estimate:
    """A statistic of sums over units, and its percentile interval.

    `sums` float64 [units, columns]; `statistic` takes sums of columns over all units, [..., columns], and gives [...], NaN where
    it is undefined: such resamples are left out. Without an interval for fewer than two units.
    """
    value = float(statistic(sums.sum(0)))
    units = len(sums)
    found = statistic(resampled(sums, draws, seed)) if units > 1 else np.empty(0)
    return percentiles(value, found, n, units)


def percentiles(value: float, found: Floats, n: int, units: int) -> Estimate:
    """`value` with the 95 % interval of its resamples."""
    found = found[np.isfinite(found)]
    if units < 2 or len(found) < 2:
        return Estimate(value=value, se=None, low=None, high=None, n=n, clusters=units, method="bootstrap")
    low, high = np.quantile(found, (0.025, 0.975)).tolist()
    return Estimate(
        value=value, se=float(found.std(ddof=1)), low=low, high=high, n=n, clusters=units, method="bootstrap"
    )


def apart(a: Estimate, b: Estimate) -> Estimate:
    """a - b of different, independent items."""
    value, n, clusters = a.value - b.value, a.n + b.n, a.clusters + b.clusters
    if a.se is None or b.se is None:
        return Estimate(value=value, se=None, low=None, high=None, n=n, clusters=clusters, method="clt")
    se = math.hypot(a.se, b.se)
    return Estimate(
        value=value, se=se, low=value - Z * se, high=value + Z * se, n=n, clusters=clusters, method="clt"
    )


def figure(found: Estimate, chance: float | None = None) -> Figure:
    """An estimate beside the value that it has by chance."""
    beyond = None
    if chance is not None and found.low is not None and found.high is not None:
        beyond = not found.low <= chance <= found.high
    return Figure(estimate=found, chance=chance, beyond_chance=beyond)


def uncorrected(figures: Sequence[Figure]) -> list[str]:
    """What must be known beside figures some of which are beyond chance; nothing if none is."""
    known = [one for one in figures if one.beyond_chance is not None]
    if not any(one.beyond_chance for one in known):
        return []
    return [
        f"not corrected for their number: of {len(known)} figures without any preference about {len(known) / 20:.1f} are beyond chance"
        " as well"
    ]


def shown(found: Estimate, digits: int = 3) -> str:
    """`0.512 [0.481, 0.543]`; what has no interval says so."""
    if found.low is None or found.high is None:
        return f"{found.value:.{digits}f} ({FEW})"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"
