"""Charts: well-formed XML for any numbers, true to scale, labelled."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.report import svg

AMOUNT = st.integers(0, 10**12)
WORDS = st.text(
    st.characters(blacklist_categories=("Cc", "Cs")), max_size=20
)  # words.visible sees to the others


def numbers_of(markup: str) -> None:
    """Parse; no coordinate may be nan or infinite, and no rectangle negative."""
    root = ElementTree.fromstring(markup)
    assert root.get("aria-label") is not None
    assert not re.search(r'="[^"]*\b(nan|inf)', markup)
    for rect in root.iter("rect"):
        assert float(rect.get("width", 0)) >= 0 and float(rect.get("height", 0)) >= 0


@given(st.lists(st.tuples(WORDS, AMOUNT, AMOUNT), max_size=4), AMOUNT, WORDS)
def test_flow_of_anything_is_well_formed(stages: list[tuple[str, int, int]], kept: int, label: str) -> None:
    steps, rest = [], kept
    for name, removed, quarantined in reversed(stages):
        steps.append(svg.Step(name, removed, quarantined, rest, (name,)))
        rest += removed + quarantined
    numbers_of(svg.flow(rest, ("in",), steps[::-1], ("out",), label))


def test_flow_is_true_to_scale() -> None:
    drawn = ElementTree.fromstring(svg.flow(100, (), [svg.Step("s", 75, 0, 25)], (), "l"))
    first, second = drawn.findall("rect")[:2]
    assert float(second.get("width", 0)) == pytest.approx(float(first.get("width", 0)) / 4, abs=0.1)


@given(st.lists(AMOUNT, max_size=30))
def test_columns(amounts: list[int]) -> None:
    labels = [str(i) for i in range(len(amounts))]
    numbers_of(svg.columns(labels, amounts, [n // 2 for n in amounts], "x", "l", labels))


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.lists(st.integers(0, 50), min_size=5, max_size=5),
    st.booleans(),
)
def test_threshold_curves(low: float, wide: float, failed: list[int], log: bool) -> None:
    start = abs(low) + 1 if log else low
    grid = [start + wide * i for i in range(5)]
    some = svg.Removal("documents", "documents", failed, [n // 2 for n in failed], 50)
    more = svg.Removal("bytes", "bytes", [n * 1000 for n in failed], [0] * 5, 50_000)
    drawn = svg.threshold_curve(grid, [some, more], grid[2], log, "x", "l")
    numbers_of(drawn)
    assert drawn.count("<path") == 6 and f"now {svg._tick(grid[2])}" in drawn
    none = svg.Removal("documents", "documents", [0] * 5, [0] * 5, 0)
    numbers_of(svg.threshold_curve(grid, [none], grid[2], log, "x", "l"))


def test_names_are_escaped() -> None:
    drawn = svg.bar([("f-kept", 1)], 2, '"><script>')
    numbers_of(drawn)
    assert "<script>" not in drawn


@given(st.floats(1e-9, 1e12))
def test_nice_is_just_above(value: float) -> None:
    assert value * 0.999 <= svg.nice(value) <= value * 2.01


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_and_inside(low: float, wide: float) -> None:
    ticks = svg.round_numbers(low, low + wide, False)
    assert 2 <= len(ticks) <= 6 and all(low - wide * 0.01 <= t <= low + wide * 1.01 for t in ticks)
