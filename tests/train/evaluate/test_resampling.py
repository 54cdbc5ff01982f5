"""The bootstrap: known intervals, the same resamples for all columns, and many units in parts."""

from __future__ import annotations

import numpy as np
import pytest

from corpusmill.train.evaluate import resampling
from corpusmill.train.evaluate.resampling import Floats, bootstrapped, figure, resampled, shown, unit_sums
from corpusmill.train.evaluate.statistics import estimate


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
