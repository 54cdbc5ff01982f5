"""The S-curve: well-formed for any figures, sample and planted told apart, the promise marked."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.report.scurve import s_curve
from tests.pipeline.report.test_svg import numbers_of

SHARE = st.floats(0, 1)


def point(jaccard: float = 0.8, mean: float | None = None, **other: Any) -> dict[str, Any]:
    return {
        "jaccard": jaccard,
        "mean": mean,
        "value": 0.9,
        "found": 9,
        "of": 10,
        "low": 0.6,
        "high": 0.98,
        **other,
    }


@st.composite
def points(drawn: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for jaccard in drawn(st.lists(SHARE, max_size=12)):
        low, value, high = sorted(drawn(st.tuples(SHARE, SHARE, SHARE)))
        mean = drawn(st.none() | SHARE)
        found.append(point(jaccard, mean, value=value, low=low, high=high, of=drawn(st.integers(1, 10**9))))
    return found


@given(points(), points(), st.none() | st.floats(0.01, 1), st.none() | SHARE, st.booleans())
def test_any_figures(
    sample: list[dict[str, Any]], planted: list[dict[str, Any]], similarity: float | None,
    promised: float | None, theory: bool,
) -> None:  # fmt: skip
    drawn = s_curve(
        [[0, 0], [0.5, 0.2], [1, 1]] if theory else [], sample, planted, similarity, promised, "l"
    )
    numbers_of(drawn)
    root = ElementTree.fromstring(drawn)
    assert len(root.findall("g/circle")) == len(sample) and len(root.findall("g/path")) == len(planted)
    assert len(root.findall("g/title")) == len(sample) + len(planted)


def test_marks_interval_counts_and_promise() -> None:
    drawn = s_curve([[0, 0], [0.5, 0.2], [1, 1]], [point()], [point(of=12)], 0.8, 0.95, "l")
    assert "9 of 10 pairs of the sample found" in drawn and "9 of 12 planted copies found" in drawn
    assert "95 % interval 0.6 to 0.98" in drawn
    assert "removed from 0.8 on" in drawn and "95.0\u00a0% promised there" in drawn


def test_marks_stand_at_the_mean_of_their_bin() -> None:
    """Alone they stand where they belong; together to either side of it."""
    alone = ElementTree.fromstring(s_curve([], [point(0.8, 0.84)], [], None, None, "l"))
    both = ElementTree.fromstring(s_curve([], [point(0.8, 0.84)], [point(0.8, 0.84)], None, None, "l"))
    places = [float(root.find("g/circle").get("cx")) for root in (alone, both)]  # type: ignore[union-attr, arg-type]
    assert places[0] == pytest.approx(44 + 0.84 * (350 - 44), abs=0.1)
    assert places[1] == pytest.approx(places[0] - 3, abs=0.11)
