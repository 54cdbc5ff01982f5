"""The bootstrap: known intervals, the same resamples for all columns, and many units in parts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from corpusmill.schemas.evaluation import Estimate
from corpusmill.train.evaluate import resampling
from corpusmill.train.evaluate.metrics.classification import classification
from corpusmill.train.evaluate.resampling import (
    Floats,
    bootstrap,
    bootstrapped,
    figure,
    resampled,
    shown,
    unit_sums,
)
from corpusmill.train.evaluate.statistics import estimate
from tests.train.evaluate.test_statistics import Array, covered, grouped


def mean(sums: Floats) -> Floats:
    found: Floats = sums[..., 1] / sums[..., 0]
    return found


def test_of_a_mean_it_is_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(3, 2, 400)
    found = bootstrapped(np.stack([np.ones(400), values], axis=1), mean, 400)
    plain = estimate(values.tolist())
    assert found.value == pytest.approx(plain.value) and found.se == pytest.approx(plain.se, rel=0.05)
    assert found.low == pytest.approx(plain.low, abs=0.03) and found.high == pytest.approx(
        plain.high, abs=0.03
    )
    assert bootstrapped(np.ones((1, 2)), mean, 1).low is None
    assert shown(bootstrapped(np.ones((1, 2)), mean, 1)) == "1.000 (too few items for an interval)"


def test_columns_have_the_same_resamples_however_many_are_drawn_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums = np.random.default_rng(1).normal(size=(37, 3))
    together = resampled(sums)
    np.testing.assert_allclose(together[:, [1]], resampled(sums[:, [1]]))
    assert (resampled(np.ones((37, 1))) == 37).all()
    # Every unit is drawn about as often as any other.
    times = resampled(np.eye(37)).mean(0)
    assert abs(times - 1).max() < 0.12
    monkeypatch.setattr(resampling, "AT_ONCE", 37 * 7)
    assert resampled(sums).shape == together.shape
    assert abs(resampled(sums).mean(0) - together.mean(0)).max() < 0.5


def test_rows_of_a_unit_count_together() -> None:
    found = unit_sums([[1, 2, 3, 4], [1, 1, 1, 1]], ["a", "b", "a", "c"])
    assert found.tolist() == [[4, 2], [2, 1], [4, 1]]


def test_beyond_chance_is_outside_of_the_interval() -> None:
    found = estimate([0.0, 1.0] * 50)
    assert figure(found, 0.5).beyond_chance is False and figure(found, 0.7).beyond_chance is True
    assert figure(found).beyond_chance is None and figure(estimate([0.3]), 0.5).beyond_chance is None


def f1(sums: Array) -> Array:
    return 2 * sums[:, 0] / (2 * sums[:, 0] + sums[:, 1] + sums[:, 2])


def test_the_bootstrap_covers_a_metric_of_the_list() -> None:
    """F1, of clustered items."""

    def draw(rng: np.random.Generator, count: int) -> Estimate:
        clusters, shared = grouped(rng, count)
        label = rng.random(len(shared)) < 0.4
        found = np.where(label, 1.0, -1.0) + shared + rng.normal(size=len(shared)) > 0
        rows = np.stack([label & found, ~label & found, label & ~found], axis=1)
        return bootstrap(f1, rows, clusters, draws=200)

    right = float(stats.norm.cdf(1 / np.sqrt(2)))
    truth = 2 * 0.4 * right / (0.4 * right + 0.6 * (1 - right) + 0.4)
    assert 0.93 <= covered(lambda rng: draw(rng, 80), truth) <= 0.97
    one, again = (draw(np.random.default_rng(3), 80) for _ in range(2))
    assert one == again and one.method == "bootstrap" and one.clusters == 80 < one.n


def test_the_bootstrap_of_a_mean_is_its_standard_error() -> None:
    rng = np.random.default_rng(4)
    clusters, shared = grouped(rng, 400)
    found = bootstrap(
        lambda sums: sums[:, 0] / sums[:, 1], np.stack([shared, np.ones(len(shared))], 1), clusters
    )
    known = estimate(shared, clusters)
    assert found.value == pytest.approx(known.value) and found.se == pytest.approx(known.se or 0, rel=0.08)
    assert found.low == pytest.approx(known.low or 0, abs=0.3 * (known.se or 0))


def test_the_bootstrap_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(5).integers(0, 3, (50, 3))
    whole = bootstrap(f1, rows, draws=64)
    monkeypatch.setattr(resampling, "AT_ONCE", 50 * 7)
    assert bootstrap(f1, rows, draws=64) == whole


def test_one_unit_has_no_interval() -> None:
    """One text, or several questions about one passage, say nothing about other texts."""
    for rows, clusters in (([[3.0, 1.0, 1.0]], None), ([[1.0, 0.0, 1.0]] * 5, ["passage"] * 5)):
        found = bootstrap(f1, rows, clusters)
        assert found.value > 0.6 and (found.se, found.low, found.high) == (None, None, None)
        assert (found.n, found.clusters) == (len(rows), 1)
    assert classification([1, 0], [1, 1], ["f1"], 1, ["a", "a"])["f1"].low is None
