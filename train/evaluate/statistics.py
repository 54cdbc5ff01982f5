"""Figures with their uncertainty: means and proportions of items, paired differences of two models, runs that differ in the seed, and
several comparisons at once. docs/statistics.md has the formulas; metrics of a whole list are in `resampling`.

Items of one cluster (questions about one passage) are not independent: the clusters are the units of every formula.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from corpusmill.schemas.evaluation import Estimate, Item

if TYPE_CHECKING:
    import numpy.typing as npt

LEVEL = 0.95
FEW = 300  # items (clusters): a proportion of fewer has another interval than a mean
RARE = 30  # so does one whose rarer outcome occurs less often than this
Z = float(ndtri((1 + LEVEL) / 2))


class Difference(NamedTuple):
    """Of two models on the same items. `p`: two-sided, of no difference; None where there is no standard error. `runs`: the part of the
    squared error that runs of other seeds cause and no number of items reduces."""

    estimate: Estimate
    p: float | None
    runs: float = 0.0


def estimate(
    values: npt.ArrayLike, clusters: Sequence[Hashable] | None = None, proportion: bool = True
) -> Estimate:
    """The mean of `values`, one an item, with its 95 % interval. `clusters`: a name for each item; None: all independent.

    Means have the central limit theorem's standard error, of clusters where items share them (Miller 2024), and Student's t with
    one degree of freedom fewer than clusters. Proportions (all values 0 or 1, unless `proportion` is false: of what may be another
    number) of few items, or with an outcome that is rare, have Wilson's interval; so have equal shares between 0 and 1, whose
    deviation says nothing, of as many items as there are clusters. Intervals of shares end at 0 and 1. A single item has neither error
    nor, unless it is a proportion, interval. Raises `ValueError` without values.
    """
    x, groups = _checked(values, clusters)
    n, count = len(x), int(groups.max()) + 1
    mean, se = float(x.mean()), _standard_error(x, groups)
    low: float | None = None
    high: float | None = None
    method = "clustered" if count < n else "clt"
    if proportion and _binary(x) and (count < FEW or min(x.sum(), n - x.sum()) < RARE):
        low, high = wilson(mean, _independent(mean, se, n, count))
        method = "wilson"
    elif se is not None:
        share = proportion and bool(((x >= 0) & (x <= 1)).all())
        if share and (x == x[0]).all():
            (low, high), method = wilson(mean, count), "wilson"
        else:
            half = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * se
            low, high = mean - half, mean + half
            if share:
                low, high = max(0.0, low), min(1.0, high)
    return Estimate(value=mean, se=se, low=low, high=high, n=n, clusters=count, method=method)


def difference(a: npt.ArrayLike, b: npt.ArrayLike, clusters: Sequence[Hashable] | None = None) -> Estimate:
    """The mean of `a` minus that of `b`, paired item by item: `compared` without its p."""
    return compared(a, b, clusters).estimate


def compared(a: npt.ArrayLike, b: npt.ArrayLike, clusters: Sequence[Hashable] | None = None) -> Difference:
    """The mean of a - b over the same items, with its 95 % interval and p. Models that agree on every item differ by 0, [0, 0].

    Standard error and interval of a mean. Independent proportions of few items, or that differ in few of them, have the interval of
    Agresti and Min (2005), which adds half an item to each of the four outcomes. Raises `ValueError` for lists of unequal length.
    """
    x, groups = _checked(a, clusters)
    y, _ = _checked(b, clusters)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} items on one side, {len(y)} on the other")
    d, n, count = x - y, len(x), int(groups.max()) + 1
    mean, se = float(d.mean()), _standard_error(d, groups)
    method = "clustered" if count < n else "clt"
    if not d.any():
        found = Estimate(value=0.0, se=0.0, low=0.0, high=0.0, n=n, clusters=count, method=method)
        return Difference(found, 1.0)
    apart = int((d != 0).sum())
    if count == n and _binary(x) and _binary(y) and (n < FEW or apart < RARE):
        centre = float(d.sum()) / (n + 2)
        error = math.sqrt(apart + 1 - float(d.sum()) ** 2 / (n + 2)) / (n + 2)
        ends = max(-1.0, centre - Z * error), min(1.0, centre + Z * error)
        p = 2 * float(ndtr(-abs(centre) / error))
        found = Estimate(
            value=mean, se=se, low=ends[0], high=ends[1], n=n, clusters=count, method="agresti-min"
        )
        return Difference(found, p)
    most = 1.0 if _binary(x) and _binary(y) else math.inf
    return _student(mean, se, count - 1, n, count, method, most)


def apart(
    inside: npt.ArrayLike, rest: npt.ArrayLike, clusters: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None
) -> Difference:  # fmt: skip
    """The mean of `inside` less that of `rest`: different items, of which both sides may have some of one cluster (a slice of a task
    and its other items, items in the corpus and those that are not).

    Of independent items, proportions have Agresti and Caffo's interval (2000), which holds for few items and for shares near 0 and
    1, and other values Welch's. With clusters, an item's part in the difference is its deviation from the mean of its side / items of
    the side, and the parts of a cluster are added before they are squared. Student's t then has Welch's degrees of freedom of as
    many clusters a side as tell as much (Kish's number), at most those of all clusters. A side whose proportions are all 0 or all 1
    has the variance of Agresti and Caffo's for as many items as it has clusters. No error where a side has a single cluster.
    """
    first, second = clusters or (None, None)
    x, _ = _checked(inside, first)
    y, _ = _checked(rest, second)
    names = None if first is None or second is None else [*first, *second]
    groups = _groups(len(x) + len(y), names)
    sides = (x, groups[: len(x)]), (y, groups[len(x) :])
    n, count, mean = len(groups), int(groups.max()) + 1, float(x.mean() - y.mean())
    binary = _binary(x) and _binary(y)
    if count == n and binary:
        shares = [(float(side.sum()) + 1) / (len(side) + 2) for side in (x, y)]
        centre = shares[0] - shares[1]
        se = math.sqrt(sum(p * (1 - p) / (len(side) + 2) for p, side in zip(shares, (x, y), strict=True)))
        low, high = max(-1.0, centre - Z * se), min(1.0, centre + Z * se)
        found = Estimate(value=mean, se=se, low=low, high=high, n=n, clusters=count, method="agresti-caffo")
        return Difference(found, 2 * float(ndtr(-abs(centre) / se)))
    method = "clustered" if count < n else "clt"
    if any(len(np.unique(named)) < 2 for _, named in sides):
        return _student(mean, None, 1, n, count, method)
    parts, variance, together, spread = np.zeros(count), 0.0, 0.0, 0.0
    for sign, (side, named) in zip((1, -1), sides, strict=True):
        sizes = np.bincount(named, minlength=count)
        units = int((sizes > 0).sum())
        sums = np.bincount(named, side - side.mean(), minlength=count) / len(side)
        parts += sign * math.sqrt(units / (units - 1)) * sums
        alone = units / (units - 1) * float(sums @ sums)
        if binary and not alone:
            share = (float(side[0]) * units + 1) / (units + 2)
            alone = share * (1 - share) / (units + 2)
            variance += alone
        together += alone
        spread += alone**2 / (len(side) ** 2 / float(sizes @ sizes) - 1)
    variance += float(parts @ parts)
    degrees = min(together**2 / spread, count - 1) if spread else count - 1
    return _student(mean, math.sqrt(variance), degrees, n, count, method, 1.0 if binary else math.inf)


def seeds(
    a: Sequence[npt.ArrayLike], b: Sequence[npt.ArrayLike], clusters: Sequence[Hashable] | None = None
) -> Difference:
    """The mean of runs `a` minus that of runs `b` on the same items: values [runs, items] of each side, whose runs differ in nothing
    but their seed. The interval is for other seeds and other items; with one run a side it is that of `compared`.

    Two levels, runs and items, both random, and the runs' variance the same on both sides: with I the squared standard error of the
    items' differences, S the variance of the runs' means, N the part of S that the items cause, and c = 1 / runs a + 1 / runs b,

        se^2 = max(I, max(I - c N, 0) + c S)

    and Student's t with the degrees of freedom of Satterthwaite (1946). Raises `ValueError` for runs of unequal length.
    """
    if len(a) == len(b) == 1:
        return compared(a[0], b[0], clusters)
    sides = [np.array([_checked(run, clusters)[0] for run in side], dtype=np.float64) for side in (a, b)]
    x, y = sides
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"{x.shape[1]} items on one side, {y.shape[1]} on the other")
    _, groups = _checked(x[0], clusters)
    n, count = x.shape[1], int(groups.max()) + 1
    d = x.mean(0) - y.mean(0)
    mean, error = float(d.mean()), _standard_error(d, groups)
    method = "seeds"
    if error is None:
        return _student(mean, None, 1, n, count, method)
    items, free = error**2, len(x) + len(y) - 2
    spread = sum(float(((side.mean(1) - side.mean()) ** 2).sum()) for side in sides) / free
    noise = (
        sum((_standard_error(run, groups) or 0.0) ** 2 for side in sides for run in side - side.mean(0))
        / free
    )
    c = 1 / len(x) + 1 / len(y)
    rest, between = max(items - c * noise, 0.0), c * spread
    if rest + between > items:
        variance = rest + between
        degrees = variance**2 / (rest**2 / (count - 1) + between**2 / free)
    else:
        variance, degrees = items, float(count - 1)
    found = _student(mean, math.sqrt(variance), degrees, n, count, method)
    return found._replace(runs=c * max(spread - noise, 0.0))


def beside_runs(between: Estimate, a: Sequence[float], b: Sequence[float]) -> Difference:
    """A difference whose error is of the items alone, such as a bootstrap's, for other seeds too: `a` and `b` are the figures of the runs
    of each side. As in `seeds`, without N, which is not known for such a figure: the interval is rather too wide."""
    items, free = (between.se or 0.0) ** 2, len(a) + len(b) - 2
    spread = sum(float(((np.asarray(side) - np.mean(side)) ** 2).sum()) for side in (a, b)) / free
    runs = (1 / len(a) + 1 / len(b)) * spread
    variance, share = items + runs, items**2 / max(between.clusters - 1, 1) + runs**2 / free
    degrees = variance**2 / share if share else float(free)
    found = _student(between.value, math.sqrt(variance), degrees, between.n, between.clusters, "seeds")
    return found._replace(runs=runs)


def linearised(sums: npt.ArrayLike, sizes: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """One value an item whose mean is sum(sums) / sum(sizes), such as bits per byte of documents, and whose standard error is that of
    the ratio (Taylor's linearisation): what the functions above take for a mean that large items weigh more in."""
    top, bottom = np.asarray(sums, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    ratio = top.sum() / bottom.sum()
    found: npt.NDArray[np.float64] = ratio + (top - ratio * bottom) * (len(top) / bottom.sum())
    return found


def mean_of(figures: Sequence[Estimate | None]) -> Estimate | None:
    """The mean of figures of different items, each counting as much as any other, with Student's t and Satterthwaite's degrees of
    freedom; None if one is missing."""
    known = [one for one in figures if one is not None]
    if not known or len(known) < len(figures):
        return None
    mean = sum(one.value for one in known) / len(known)
    n, count = sum(one.n for one in known), sum(one.clusters for one in known)
    method = "clustered" if count < n else "clt"
    if any(one.se is None for one in known):
        return _student(mean, None, 1, n, count, method).estimate
    parts = [((one.se or 0.0) / len(known)) ** 2 for one in known]
    spread = sum(part**2 / (one.clusters - 1) for part, one in zip(parts, known, strict=True))
    degrees = sum(parts) ** 2 / spread if spread else 1.0
    return _student(mean, math.sqrt(sum(parts)), degrees, n, count, method).estimate


def items_needed(difference: float, deviation: float, power: float = 0.8, runs: float = 0.0) -> int | None:
    """Independent items at which a difference is found (p < 0.05) with probability `power`; None if none suffices. `deviation`: standard
    deviation of what is averaged: of the items' differences, if two models are paired. `runs`: as in `Difference`."""
    if difference == 0:
        raise ValueError("no number of items shows a difference of 0")
    left = (difference / (Z + float(ndtri(power)))) ** 2 - runs
    return math.ceil(deviation**2 / left) if left > 0 else None


def detectable(found: Estimate, power: float = 0.8) -> float | None:
    """The smallest difference that is found (p < 0.05) with probability `power` by an experiment like that of a difference: half of its
    interval and, for a power of 0.8, 0.84 standard errors more. None without an error."""
    if not found.se or found.low is None or found.high is None:
        return None
    return (found.high - found.low) / 2 + float(ndtri(power)) * found.se


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted p values (Holm 1979), in the order given: one below 0.05 is beyond noise, and the chance that any is so without a
    difference is at most 0.05."""
    order = np.argsort(np.asarray(ps, dtype=np.float64), kind="stable")
    adjusted = [0.0] * len(ps)
    highest = 0.0
    for rank, place in enumerate(order.tolist()):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted


def of_core(items: Sequence[Item], chance: float | None) -> tuple[float, float] | None:
    """Accuracy by CORE's rule and chance level of a task, for `centred`; None for a task of which CORE has no kind."""
    right = [item.core for item in items if item.core is not None]
    if not right or (chance is not None and chance >= 1):
        return None
    return sum(right) / len(right), chance or 0.0


def centred(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Mean over tasks of (accuracy - chance) / (1 - chance), of pairs of both: 0 is a guess, 1 is perfect, as in CORE (DCLM,
    arXiv 2406.11794). None without pairs."""
    values = [(accuracy - chance) / (1 - chance) for accuracy, chance in pairs]
    return sum(values) / len(values) if values else None


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's (1927) 95 % interval of a proportion of `n` independent items."""
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def _independent(share: float, se: float | None, n: int, count: int) -> float:
    """As many independent items as tell as much of a proportion as these (Korn and Graubard 1998)."""
    if count == n:
        return n
    if not se or share in (0.0, 1.0):
        return count
    student = float(stdtrit(count - 1, (1 + LEVEL) / 2))
    return min(float(n), share * (1 - share) / se**2 * (Z / student) ** 2)


def _student(
    mean: float, se: float | None, degrees: float, n: int, count: int, method: str, most: float = math.inf
) -> Difference:
    """A mean with Student's interval, which ends at `most` on either side of 0, and p."""
    if se is None:
        found = Estimate(value=mean, se=None, low=None, high=None, n=n, clusters=count, method=method)
        return Difference(found, None)
    half = float(stdtrit(degrees, (1 + LEVEL) / 2)) * se
    p = 2 * float(stdtr(degrees, -abs(mean) / se)) if se else float(mean == 0)
    low, high = max(-most, mean - half), min(most, mean + half)
    found = Estimate(value=mean, se=se, low=low, high=high, n=n, clusters=count, method=method)
    return Difference(found, p)


def _standard_error(x: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]) -> float | None:
    """Of the mean: sqrt(G / (G - 1) x sum over clusters of (sum of deviations)^2) / n; for clusters of one item each it is the
    deviation with Bessel's correction / sqrt(n). None for a single cluster."""
    count = int(groups.max()) + 1
    if count < 2:
        return None
    sums = np.bincount(groups, x - x.mean(), minlength=count)
    return math.sqrt(count / (count - 1) * float(sums @ sums)) / len(x)


def _checked(
    values: npt.ArrayLike, clusters: Sequence[Hashable] | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    x = np.asarray(values, dtype=np.float64)
    if not len(x):
        raise ValueError("no items")
    return x, _groups(len(x), clusters)


def _groups(n: int, clusters: Sequence[Hashable] | None) -> npt.NDArray[np.int64]:
    """The number of each item's cluster."""
    if clusters is None:
        return np.arange(n)
    if len(clusters) != n:
        raise ValueError(f"{n} items, {len(clusters)} clusters")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in clusters], dtype=np.int64)


def _binary(x: npt.NDArray[np.float64]) -> bool:
    return bool(((x == 0) | (x == 1)).all())
