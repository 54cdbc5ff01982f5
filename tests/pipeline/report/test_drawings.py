"""The report's charts: well-formed for any figures, true to scale; sample and planted pairs apart, the promise marked."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common import charts
from corpusmill.pipeline.report.drawings import Removal, Step, flow, s_curve, threshold_curve
from tests.common.test_charts import AMOUNT, WORDS, numbers_of

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


@given(st.lists(st.tuples(WORDS, AMOUNT, AMOUNT), max_size=4), AMOUNT, WORDS)
def test_flow_of_anything_is_well_formed(stages: list[tuple[str, int, int]], kept: int, label: str) -> None:
    steps, rest = [], kept
    for name, removed, quarantined in reversed(stages):
        steps.append(Step(name, removed, quarantined, rest, (name,)))
        rest += removed + quarantined
    numbers_of(flow(rest, ("in",), steps[::-1], ("out",), label))


def test_flow_is_true_to_scale() -> None:
    drawn = ElementTree.fromstring(flow(100, (), [Step("s", 75, 0, 25)], (), "l"))
    first, second = drawn.findall("rect")[:2]
    assert float(second.get("width", 0)) == pytest.approx(float(first.get("width", 0)) / 4, abs=0.1)


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.lists(st.integers(0, 50), min_size=5, max_size=5),
    st.booleans(),
)
def test_threshold_curves(low: float, wide: float, failed: list[int], log: bool) -> None:
    start = abs(low) + 1 if log else low
    grid = [start + wide * i for i in range(5)]
    some = Removal("documents", "documents", failed, [n // 2 for n in failed], 50)
    more = Removal("bytes", "bytes", [n * 1000 for n in failed], [0] * 5, 50_000)
    drawn = threshold_curve(grid, [some, more], grid[2], log, "x", "l")
    numbers_of(drawn)
    assert drawn.count("<path") == 6 and f"now {charts.tick(grid[2])}" in drawn
    none = Removal("documents", "documents", [0] * 5, [0] * 5, 0)
    numbers_of(threshold_curve(grid, [none], grid[2], log, "x", "l"))
