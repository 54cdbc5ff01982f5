"""Charts: well-formed XML for any numbers, true to scale, labelled."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common import charts
from corpusmill.common.charts import Dot, Line

AMOUNT = st.integers(0, 10**12)
WORDS = st.text(
    st.characters(blacklist_categories=("Cc", "Cs")), max_size=20
)  # corpus text is escaped before


def numbers_of(markup: str) -> None:
    """Parse; no coordinate may be nan or infinite, and no rectangle negative."""
    root = ElementTree.fromstring(markup)
    assert root.get("aria-label") is not None
    assert not re.search(r'="[^"]*\b(nan|inf)', markup)
    for rect in root.iter("rect"):
        assert float(rect.get("width", 0)) >= 0 and float(rect.get("height", 0)) >= 0


@given(st.lists(AMOUNT, max_size=30))
def test_columns(amounts: list[int]) -> None:
    labels = [str(i) for i in range(len(amounts))]
    numbers_of(charts.columns(labels, amounts, [n // 2 for n in amounts], "x", "l", labels))


def test_names_are_escaped() -> None:
    drawn = charts.bar([("f-kept", 1)], 2, '"><script>')
    numbers_of(drawn)
    assert "<script>" not in drawn


@given(st.floats(1e-9, 1e12))
def test_nice_is_just_above(value: float) -> None:
    assert value * 0.999 <= charts.nice(value) <= value * 2.01


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_and_inside(low: float, wide: float) -> None:
    ticks = charts.round_numbers(low, low + wide, False)
    assert 2 <= len(ticks) <= 6 and all(low - wide * 0.01 <= t <= low + wide * 1.01 for t in ticks)


POINT = st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))


@given(
    st.lists(st.tuples(WORDS, st.lists(POINT, max_size=6)), max_size=3),
    st.booleans(),
    st.none() | st.floats(1, 9),
)
def test_line_charts(
    curves: list[tuple[str, list[tuple[float, float]]]], log: bool, top: float | None
) -> None:
    lines = [Line(name, points, "faint") for name, points in curves]
    drawn = charts.line_chart(lines, {"valley": 1e-3}, "rate", "loss", log=log, top=top)
    numbers_of(drawn)
    assert drawn.count("<path") == sum(bool(points) for _, points in curves) and "valley 1.00e-03" in drawn


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.none() | st.floats(-1e9, 1e9)), max_size=6), st.booleans())
def test_scatter_plots(points: list[tuple[float, float | None]], log: bool) -> None:
    drawn = charts.scatter([Dot(x, y, "dot", "<t>") for x, y in points], "x", "y", log=log)
    numbers_of(drawn)
    assert drawn.count("<circle") == len(points) and "<t>" not in drawn


def test_a_value_above_the_top_is_drawn_at_it_and_a_logarithmic_axis_is_one() -> None:
    drawn = charts.line_chart([Line("a", [(0.001, 1), (0.01, 2), (0.1, 9)])], {}, "x", "y", log=True, top=5)
    at = [tuple(map(float, point.split(","))) for point in re.findall(r"[ML]([\d.]+,[\d.]+)", drawn)]
    assert at[1][0] - at[0][0] == pytest.approx(at[2][0] - at[1][0], abs=0.11) and at[2][1] == 24


def test_pages_escape_and_load_nothing() -> None:
    page = charts.page("<a>", "b & c", [charts.scatter([], "x", "y")], [["h"], ["<td>"]])
    assert "<h1>&lt;a&gt;</h1>" in page and "b &amp; c" in page and "<td>&lt;td&gt;</td>" in page
    assert "http" not in page and page.count("<svg") == 1
