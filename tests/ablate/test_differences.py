"""Intervals of differences: they hold as often as they say, and find what is there."""

from __future__ import annotations

import numpy as np
import pytest

from corpusmill.ablate.differences import Difference, differences

DRAWS, DOCUMENTS = 5, 60


def made(seed: int, effect: float, arms: int = 4) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Bits of documents: of equal length, a noise of each draw and arm, of each document and arm; the last arm has an `effect`."""
    random = np.random.default_rng(seed)
    size = random.integers(200, 4000, DOCUMENTS).astype(float)
    base = random.normal(2.0, 0.3, DOCUMENTS)
    found = {}
    for arm in range(arms + 2):
        rate = base + random.normal(0, 0.02, (DRAWS, 1)) + random.normal(0, 0.04, DOCUMENTS)
        found[f"arm {arm}"] = (rate + (effect if arm == arms + 1 else 0.0)) * size
    return found, size


def test_an_interval_holds_what_is_true_as_often_as_it_says() -> None:
    """Over 200 repetitions without any effect; the control is left out, whose error is its own."""
    hits, false = [], 0
    for seed in range(200):
        bits, size = made(seed, 0.0)
        # A half's deviation is the error of the whole: here each draw is a measurement of its own, and their mean is as much surer.
        found = differences(bits, size, "arm 0", "arm 1", halves=False)
        rows = [d for name, d in found.items() if name != "arm 1"]
        hits += [d.low < 0 < d.high for d in rows]
        false += any(d.p < 0.05 for d in rows)
    assert 0.92 < np.mean(hits) < 0.99
    assert false <= 200 * 0.1  # any of four arms: at most one time in twenty, but for chance


def test_an_effect_is_found_with_its_sign() -> None:
    right = []
    for seed in range(40):
        bits, size = made(seed, 0.1)
        found = differences(bits, size, "arm 0", "arm 1", halves=False)
        assert found["arm 1"].p == 1 and found["arm 1"].value != 0  # the control is no arm that is tested
        right.append(found["arm 5"].verdict() == "worse" and found["arm 5"].low > 0)
        bits["arm 5"], bits["arm 0"] = bits["arm 0"], bits["arm 5"]
        assert differences(bits, size, "arm 0", "arm 1", halves=False)["arm 5"].value < 0
    assert sum(right) >= 38


def test_halves_are_not_surer_for_being_many() -> None:
    bits, size = made(1, 0.0)
    once = differences(bits, size, "arm 0", "arm 1", halves=True)["arm 3"]
    mean = differences(bits, size, "arm 0", "arm 1", halves=False)["arm 3"]
    assert once.draws == pytest.approx(mean.draws * DRAWS**0.5) and once.value == mean.value


def test_an_arm_unlike_the_others_has_an_error_of_its_own() -> None:
    bits, size = made(2, 0.0)
    wild = np.random.default_rng(3).normal(0, 0.5, (DRAWS, 1)) * size
    found = differences({**bits, "arm 5": bits["arm 5"] + wild}, size, "arm 0", "arm 1", halves=False)
    assert found["arm 5"].draws > 5 * found["arm 3"].draws and found["arm 3"].draws == found["arm 4"].draws
    by_hand = ((bits["arm 5"] + wild - bits["arm 0"]).sum(1) / size.sum()).std(ddof=1) / DRAWS**0.5
    assert found["arm 5"].draws == pytest.approx(by_hand)


def test_verdicts() -> None:
    def verdict(value: float, low: float, high: float, p: float) -> str:
        return Difference(value, low, high, 0.001, 0.001, p).verdict(0.005)

    assert verdict(0.02, 0.01, 0.03, 0.01) == "worse" and verdict(-0.02, -0.03, -0.01, 0.01) == "better"
    assert verdict(0.02, -0.01, 0.05, 0.4) == "unclear" and verdict(0.02, 0.001, 0.04, 0.06) == "unclear"
    # Beyond noise, and of no interest.
    assert verdict(0.002, 0.001, 0.003, 0.01) == "equal" and verdict(0.004, 0.001, 0.007, 0.03) == "unclear"


def test_equal_arms_do_not_differ() -> None:
    bits, size = made(4, 0.0)
    found = differences({**bits, "arm 4": bits["arm 0"]}, size, "arm 0", "arm 1", halves=True)["arm 4"]
    assert found.value == 0 and found.low <= 0 <= found.high and found.p == 1
    with pytest.raises(ValueError, match="2 draws: an interval needs 3"):
        differences({name: one[:2] for name, one in bits.items()}, size, "arm 0", "arm 1", halves=True)
