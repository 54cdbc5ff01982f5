"""Krippendorff's alpha: his published examples, and the formula written out."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from corpusmill.train.evaluate.judge.agreement import agreement, alpha, coincidences


def units(*observers: str) -> list[list[str]]:
    """What each unit was given; a point is no value."""
    return [[value for value in column if value != "."] for column in zip(*observers, strict=True)]


def test_the_published_examples() -> None:
    """Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability": A (two observers, binary data) and C (four observers, nominal
    data, values missing)."""
    binary = agreement(units("0100000010", "1110010000"))
    assert binary is not None and binary.value == pytest.approx(0.095, abs=5e-4)
    nominal = agreement(units("123321412...", "1233224125.3", ".3332342251.", "12332441251."))
    assert nominal is not None and nominal.value == pytest.approx(0.743, abs=5e-4)
    assert nominal.low is not None and nominal.low < 0.743 < nominal.high  # type: ignore[operator]
    assert nominal.clusters == 11  # the twelfth unit has one value


def test_it_is_observed_over_expected_disagreement() -> None:
    rng = np.random.default_rng(0)
    given = [rng.choice(list("abc"), rng.integers(0, 5)).tolist() for _ in range(40)]
    observed = 0.0
    values = [v for unit in given if len(unit) > 1 for v in unit]
    for unit in given:
        if len(unit) > 1:
            observed += sum(x != y for x, y in permutations(unit, 2)) / (len(unit) - 1)
    expected = sum(x != y for x, y in permutations(values, 2))
    wanted = 1 - (len(values) - 1) * observed / expected
    found = agreement(given)
    assert found is not None and found.value == pytest.approx(wanted)
    assert float(alpha(coincidences(given).sum(0))) == pytest.approx(wanted)


def test_all_agree_none_agree_and_nothing_to_say() -> None:
    assert agreement([["a", "a"], ["b", "b"], ["a", "a"]]).value == 1.0  # type: ignore[union-attr]
    assert agreement([["a", "b"], ["b", "a"]]).value < 0  # type: ignore[union-attr]
    assert agreement([["a"], ["b"], []]) is None and agreement([["a", "a"], ["a", "a"]]) is None
