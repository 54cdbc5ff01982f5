"""Intervals cover the truth as often as they promise, in 2,000 simulated re-draws each; and the formulas are their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpusmill.schemas.evaluation import Estimate
from corpusmill.train.evaluate import statistics
from corpusmill.train.evaluate.statistics import (
    apart,
    compared,
    detectable,
    difference,
    estimate,
    holm,
    items_needed,
    mean_of,
    seeds,
    wilson,
)

REDRAWS = 2000
Array = np.ndarray[Any, np.dtype[np.float64]]
VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=30)


def covered(draw: Callable[[np.random.Generator], Estimate], truth: float) -> float:
    """Share of re-draws whose interval holds the truth."""
    rng = np.random.default_rng(20)
    found = [draw(rng) for _ in range(REDRAWS)]
    return float(np.mean([(e.low or 0.0) <= truth <= (e.high or 0.0) for e in found]))


def grouped(rng: np.random.Generator, count: int) -> tuple[list[str], Array]:
    """Clusters of 1 to 8 items, and what the items of each have in common."""
    sizes = rng.integers(1, 9, count)
    names = [str(number) for number in np.repeat(np.arange(count), sizes)]
    return names, np.repeat(rng.normal(size=count), sizes)


def test_means_are_covered() -> None:
    assert 0.93 <= covered(lambda rng: estimate(rng.gamma(4, size=60)), 4) <= 0.97
    assert 0.93 <= covered(lambda rng: estimate(rng.normal(size=5)), 0) <= 0.97  # Student's t


def test_clustered_means_are_covered_and_plain_ones_are_not() -> None:
    def draw(rng: np.random.Generator, named: bool) -> Estimate:
        clusters, shared = grouped(rng, 60)
        values = 1 + shared + rng.normal(size=len(shared))
        return estimate(values, clusters if named else None)

    assert 0.93 <= covered(lambda rng: draw(rng, True), 1) <= 0.97
    assert covered(lambda rng: draw(rng, False), 1) < 0.8


def test_paired_differences_are_covered_and_are_narrower() -> None:
    def sides(rng: np.random.Generator) -> tuple[Array, Array, list[str]]:
        clusters, shared = grouped(rng, 60)
        item = 3 * rng.normal(size=len(shared))  # what both models find hard
        a = item + 0.5 * shared + rng.normal(size=len(item))
        return a, item - 0.25 + rng.normal(size=len(item)), clusters

    assert 0.93 <= covered(lambda rng: difference(*sides(rng)), 0.25) <= 0.97
    a, b, clusters = sides(np.random.default_rng(1))
    ours = difference(a, b, clusters).se or 0.0
    assert ours < 0.5 * np.hypot(estimate(a, clusters).se or 0.0, estimate(b, clusters).se or 0.0)


def test_wilsons_coverage_at_small_n() -> None:
    """Computed exactly, over shares from 0.02 to 0.98: in the mean 95 %, nowhere less than 82 %. The interval of a mean falls to
    18 % there (with 10 items of share 0.02, mostly [0, 0])."""

    def coverage(n: int, interval: Callable[[int], tuple[float, float]]) -> Array:
        shares = np.linspace(0.02, 0.98, 97)
        hit = np.zeros(len(shares))
        for right in range(n + 1):
            low, high = interval(right)
            hit += stats.binom.pmf(right, n, shares) * ((low <= shares) & (shares <= high))
        return hit

    def plain(right: int, n: int) -> tuple[float, float]:
        half = statistics.Z * np.sqrt(right / n * (1 - right / n) / (n - 1))
        return right / n - half, right / n + half

    for n in (10, 25, 50, 299):
        found = coverage(n, lambda right, n=n: wilson(right / n, n))
        assert 0.94 < found.mean() < 0.965 and found.min() > 0.82
        assert found.min() > coverage(n, lambda right, n=n: plain(right, n)).min()
    assert coverage(10, lambda right: plain(right, 10)).min() < 0.19


def test_clustered_proportions_are_covered() -> None:
    """Also of few clusters, where those that agree in all items would have the interval [1, 1]."""

    def draw(rng: np.random.Generator, count: int) -> Estimate:
        clusters, shared = grouped(rng, count)
        return estimate((rng.normal(size=len(shared)) + shared > -1).astype(float), clusters)

    share = float(stats.norm.cdf(1 / np.sqrt(2)))
    assert 0.93 <= covered(lambda rng: draw(rng, 40), share) <= 0.97
    assert 0.93 <= covered(lambda rng: draw(rng, 12), share) <= 0.98
    same = estimate([1.0] * 40, [str(n // 4) for n in range(40)])
    assert (same.low, same.high) == pytest.approx(wilson(1, 10)) and same.method == "wilson"


def test_paired_proportions_of_few_items_are_covered() -> None:
    """Where the models differ in some 5 of 40 items."""

    def draw(rng: np.random.Generator, n: int) -> Estimate:
        outcome = rng.choice(4, n, p=(0.5, 0.1, 0.03, 0.37))
        return difference((outcome < 2).astype(float), (outcome % 2 == 0).astype(float))

    assert 0.93 <= covered(lambda rng: draw(rng, 40), 0.07) <= 0.985
    assert 0.93 <= covered(lambda rng: draw(rng, 400), 0.07) <= 0.97
    assert draw(np.random.default_rng(0), 40).method == "agresti-min"
    # Three items of 50: the exact test of McNemar gives 0.25, a mean's t 0.08.
    few = compared([1.0] * 3 + [0.0] * 47, [0.0] * 50)
    assert few.p == pytest.approx(0.125, abs=0.01) and (few.estimate.low or 0) < 0 < few.estimate.value


@pytest.mark.parametrize("proportion", [True, False])
@pytest.mark.parametrize(("count", "whole"), [(60, True), (60, False), (15, True)])
def test_two_groups_of_items_are_covered(count: int, whole: bool, proportion: bool) -> None:
    """Whether a group takes whole clusters or some items of each."""

    def draw(rng: np.random.Generator) -> Estimate:
        clusters, shared = grouped(rng, count)
        names, values = np.array(clusters), shared + rng.normal(size=len(shared))
        values = (values > -1).astype(float) if proportion else values
        chosen = rng.permutation(count) < count // 3
        inside = chosen[names.astype(int)] if whole else rng.random(len(values)) < 0.3
        sides = names[inside].tolist(), names[~inside].tolist()
        return apart(values[inside], values[~inside], sides).estimate

    assert 0.93 <= covered(draw, 0) <= 0.97


def test_two_groups_of_independent_items_are_welchs() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=12), 0.5 + 3 * rng.normal(size=30)
    found, scipys = apart(a, b), stats.ttest_ind(a, b, equal_var=False)
    interval = scipys.confidence_interval()
    assert found.p == pytest.approx(scipys.pvalue) and found.estimate.method == "clt"
    assert (found.estimate.low, found.estimate.high) == pytest.approx((interval.low, interval.high))
    named = apart(a, b, (list("abcdefghijkl"), list(range(30))))
    assert named == found
    one = apart([0.0, 1.0], [1.0, 0.0, 1.0], (["a", "a"], ["b", "c", "d"]))
    assert one.p is None and one.estimate.se is None and one.estimate.clusters == 4
    agree = apart([0.0] * 40, [1.0] * 40, ([n // 8 for n in range(40)], [9 + n // 8 for n in range(40)]))
    assert agree.estimate.se and agree.p and 0 < agree.p < 0.01  # of 5 passages a side, not of 40 items


def test_a_mean_of_figures_counts_each_the_same_and_is_covered() -> None:
    """Such as bits per byte of sources of which one has few documents."""

    def draw(rng: np.random.Generator) -> Estimate:
        found = mean_of(
            [estimate(rng.normal(1, 2, 6)), estimate(rng.normal(2, 1, 400)), estimate(rng.normal(6, 3, 40))]
        )
        assert found is not None and (found.n, found.clusters) == (446, 446)
        return found

    assert 0.93 <= covered(draw, 3) <= 0.975
    assert mean_of([estimate([1.0, 2.0, 3.0]), None]) is None and mean_of([]) is None
    one = mean_of([estimate([1.0, 2.0, 3.0]), estimate([5.0])])
    assert one and (one.value, one.se, one.low) == (3.5, None, None)


@pytest.mark.parametrize(("runs_a", "runs_b"), [(3, 3), (2, 2), (5, 2), (4, 1)])
@pytest.mark.parametrize("between", [0.0, 0.05, 0.3])
def test_seeds_are_covered(runs_a: int, runs_b: int, between: float) -> None:
    """Whether runs differ less than items, as much, or more. One run a side, compared by its items alone, covers less."""

    def side(rng: np.random.Generator, item: Array, count: int) -> Array:
        return item + between * rng.normal(size=(count, 1)) + 0.7 * rng.normal(size=(count, len(item)))

    def draw(rng: np.random.Generator, *counts: int) -> Estimate:
        item = rng.normal(size=300)
        other = item + 0.5 * rng.normal(size=300) - 0.1
        return seeds(side(rng, item, counts[0]), side(rng, other, counts[1])).estimate

    assert 0.925 <= covered(lambda rng: draw(rng, runs_a, runs_b), 0.1) <= 0.98
    if between == 0.3:
        assert covered(lambda rng: draw(rng, 1, 1), 0.1) < 0.4


@given(VALUES)
def test_plain_and_paired_are_scipys(values: list[float]) -> None:
    x, other = np.array(values), np.array(values[::-1]) / 3 + 0.123
    if np.ptp(x) < 1e-6 * np.abs(x).max():
        return  # scipy warns of what rounding leaves
    known = stats.ttest_1samp(x, 0).confidence_interval()
    found = estimate(values, proportion=False)
    assert (found.low, found.high) == pytest.approx(tuple(known), rel=1e-6, abs=1e-9)
    if np.ptp(x - other) > 1e-4:
        paired = stats.ttest_rel(x, other)
        d = compared(x, other)
        assert d.p == pytest.approx(paired.pvalue, rel=1e-6, abs=1e-12)
        assert (d.estimate.low, d.estimate.high) == pytest.approx(
            tuple(paired.confidence_interval()), abs=1e-6
        )


@given(st.integers(1, 299), st.data())
def test_wilson_is_scipys(n: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, n))
    known = stats.binomtest(right, n).proportion_ci(method="wilson")
    found = estimate([1.0] * right + [0.0] * (n - right))
    assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=1e-12)
    assert found.method == "wilson" and (found.se is None) == (n == 1)


def test_shares_end_at_0_and_1_and_equal_ones_are_not_certain() -> None:
    """F1 of three answers, each 0.5, is not known to be 0.5; that of one 0 and four 1 is at most 1."""
    same = estimate([0.5] * 3)
    assert (same.low, same.high) == pytest.approx(wilson(0.5, 3)) and same.method == "wilson"
    grouped_too = estimate([0.5] * 30, [str(n // 10) for n in range(30)])
    assert (grouped_too.low, grouped_too.high) == pytest.approx(wilson(0.5, 3))
    found = estimate([0.1, 1.0, 1.0, 0.9])
    assert found.high == 1.0 and found.low is not None and 0 <= found.low < found.value
    number = estimate([0.1, 1.0, 1.0, 0.9], proportion=False)
    assert (number.high or 0) > 1 and estimate([0.5] * 3, proportion=False).low == 0.5
    clusters = [n // 5 for n in range(10)]
    assert compared([1.0] * 5 + [0.0] * 5, [0.0] * 10, clusters).estimate.high == 1.0
    assert apart([1.0, 0.0] * 5, [0.0] * 10, (clusters, [9, 10] * 5)).estimate.high == 1.0


def test_numbers_that_happen_to_be_0_are_no_proportion() -> None:
    found = estimate([0.0] * 9, proportion=False)
    assert (found.value, found.low, found.high, found.method) == (0, 0, 0, "clt")


@given(st.lists(st.tuples(st.floats(-9, 9), st.integers(0, 5)), min_size=2, max_size=25))
def test_clustered_standard_errors_are_millers_sum_over_pairs(items: list[tuple[float, int]]) -> None:
    values, clusters = np.array([v for v, _ in items]), [str(c) for _, c in items]
    count, n = len(set(clusters)), len(items)
    d = values - values.mean()
    pairs = sum(d[i] * d[j] for i in range(n) for j in range(n) if clusters[i] == clusters[j])
    found = estimate(values, clusters)
    if count == 1:
        assert found.se is None
    else:
        wanted = np.sqrt(max(pairs, 0) * count / (count - 1)) / n
        assert found.se == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert (found.n, found.clusters) == (n, count)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.booleans())
def test_identical_models_do_not_differ(values: list[float], right_or_wrong: bool) -> None:
    values = [float(v > 0) for v in values] if right_or_wrong else values
    found = compared(values, list(values), [str(n // 3) for n in range(len(values))])
    assert (found.estimate.value, found.estimate.low, found.estimate.high, found.p) == (0, 0, 0, 1)


def test_one_run_a_side_is_the_paired_difference() -> None:
    a, b = np.random.default_rng(6).normal(size=(2, 30))
    assert seeds([a], [b]) == compared(a, b)
    same = seeds([a, a], [a, a])
    assert (same.estimate.low, same.estimate.high, same.p) == pytest.approx((0, 0, 1), abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_steps_down(ps: list[float]) -> None:
    """By definition: in ascending order, each is compared with 0.05 / (those left), until one is not below it."""
    rejected = set()
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: (ps[place], place))):
        if ps[place] * (len(ps) - rank) > 0.05:
            break
        rejected.add(place)
    assert {place for place, p in enumerate(holm(ps)) if p <= 0.05} == rejected
    assert all(adjusted >= p for adjusted, p in zip(holm(ps), ps, strict=True))


def test_items_needed_find_the_difference_with_the_promised_power() -> None:
    n = items_needed(0.2, 1.5) or 0
    assert n == pytest.approx((1.96 + 0.8416) ** 2 * 1.5**2 / 0.04, rel=0.01)
    rng = np.random.default_rng(7)
    like = estimate(1.5 * stats.zscore(rng.normal(size=n), ddof=1), proportion=False)
    assert detectable(like) == pytest.approx(0.2, rel=0.02) and detectable(estimate([3.0])) is None
    found = [compared(rng.normal(0.2, 1.5, n), np.zeros(n)).p or 0 for _ in range(REDRAWS)]
    assert np.mean(np.array(found) < 0.05) == pytest.approx(0.8, abs=0.04)
    with pytest.raises(ValueError, match="a difference of 0"):
        items_needed(0, 1)
    # Runs leave the less to the items; what they leave nothing of no number of items shows.
    error = (0.2 / (1.96 + 0.8416)) ** 2
    assert items_needed(0.2, 1.5, runs=error / 2) == pytest.approx(2 * n, rel=0.01)
    assert items_needed(0.2, 1.5, runs=error * 1.01) is None


def test_lists_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="no items"):
        estimate([])
    with pytest.raises(ValueError, match="2 items, 1 clusters"):
        estimate([1, 2], ["a"])
    with pytest.raises(ValueError, match="2 items on one side, 3 on the other"):
        difference([1, 2], [1, 2, 3])
