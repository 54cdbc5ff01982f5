"""What is printed fits the terminal and says what was asked."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.banding import Banding, banding
from corpusmill.pipeline.dedup.estimate.corpus import Interval, assumed
from corpusmill.pipeline.dedup.estimate.model import Estimate, estimate
from corpusmill.pipeline.dedup.estimate.show import (
    count,
    curve,
    show,
    show_actual,
    show_steps,
    size,
    span,
    unpromised,
)
from corpusmill.schemas.dedup import DedupParams


def plan(documents: int, similarity: float = 0.8, similar: Interval | None = None) -> Estimate:
    params = DedupParams(similarity=similarity)
    corpus = assumed(documents, 3000, 64 << 20, 0.5, 0.3).model_copy(update={"similar": similar})
    return estimate(corpus, params, banding(params), 100)


@given(st.integers(0, 10**13), st.sampled_from([0.3, 0.5, 0.8, 0.95, 1.0]), st.integers(60, 120))
def test_it_fits_the_columns(documents: int, similarity: float, width: int) -> None:
    similar = Interval(value=documents * 1.5, low=documents * 0.5, high=documents * 2.5)
    found = plan(documents, similarity, similar)
    text = show(found, width)
    actual = found.model_dump() | {"candidates": documents / 3, "near_removed": 0}
    table = show_actual(found, actual, width)
    for line in (text + "\n" + table).splitlines():
        assert len(line) <= width, line
        assert line == line.rstrip()


@given(st.integers(0, 10**13))
def test_steps_in_columns(documents: int) -> None:
    found = plan(documents)
    header, *lines = show_steps(found).splitlines()
    assert len(header) == 80 and len(lines) == len(found.steps)
    for line, step in zip(lines, found.steps, strict=True):
        assert len(line) == 80 and line.startswith(step.name)


def test_it_says_what_was_chosen_and_what_to_expect() -> None:
    text = show(plan(2_000_000))
    assert "13 bands x 7 rows" in text
    for s in (0.7, 0.8, 0.9):
        assert f"{Banding(13, 7).found(s):.3f} at {s:.2f}" in " ".join(text.split())
    for name in ("candidate pairs", "removed", "memory", "disk", "tasks", "time"):
        assert f"\n{name} " in text
    assert "a worker" in text and "storage requests" in text


def test_a_pilot_gives_an_interval() -> None:
    text = show(plan(2_000_000, similar=Interval(value=1000, low=800, high=1300)))
    assert "(of 800 to 1,300 in the corpus)" in " ".join(text.split())


def test_the_curve_rises_where_the_probability_does() -> None:
    lines = curve(Banding(13, 7), 80)
    drawn = [line[6:].ljust(61) for line in lines[:-1]]
    assert lines[-1].split() == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    heights = [sum(" .:|".index(row[column]) for row in drawn) / 15 for column in range(61)]
    for column, height in enumerate(heights):
        assert height == pytest.approx(Banding(13, 7).found(column / 60), abs=0.04)
    scale = lines[-1]
    assert scale.index("0.8") + 1 - 6 == 48, "the tick stands under its column"


def test_expected_beside_actual() -> None:
    found = plan(2_000_000)
    text = show_actual(found, {"candidates": found.candidates * 2, "tasks": found.tasks, "unknown": 3})
    rows = {line[:24].strip(): line.split()[-1] for line in text.splitlines()}
    assert rows == {"dedup": "ratio", "candidate pairs": "0.50", "tasks": "1.00"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bands": 3, "rows": 9}, "3 bands x 9 rows, given by hand, find 0.351 of the pairs at 0.8"),
        ({"preset": "datatrove", "bands": 3, "rows": 9}, "3 bands x 9 rows, given by hand, find 0.351 of"),
        ({"preset": "datatrove"}, "14 bands x 8 rows, those of dedup.preset datatrove, find 0.9235 of the"),
        ({"preset": "datatrove", "recall": 0.92}, None),
        ({"bands": 20, "rows": 5}, None),
        ({}, None),
        ({"bands": 3, "rows": 9, "minhash": False}, None),
    ],
)
def test_bands_that_fall_short_of_the_recall_are_told(given: dict[str, Any], told: str | None) -> None:
    params = DedupParams(**given)
    lines = unpromised(params, banding(params))
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(" ".join(lines).split())
    if told is None:
        assert text == ""
    else:
        assert text.startswith(f"warning: dedup.recall 0.95 is not promised: {told}")


@given(st.floats(0.3, 1), st.floats(0.1, 0.99))
def test_a_solved_banding_keeps_the_promise(similarity: float, recall: float) -> None:
    params = DedupParams(similarity=similarity, recall=recall, num_perm=1024)
    assert unpromised(params, banding(params)) == []


def test_numbers_in_few_characters() -> None:
    assert [count(x) for x in (0, 999, 123456, 999_999, 999_999.6, 1.5e6, 1e10, 3.2e13, 2e17, 3e21)] == [
        "0", "999", "123,456", "999,999", "1 M", "1.5 M", "10e9", "32e12", "200e15", "3e21",
    ]  # fmt: skip
    assert [size(x) for x in (0, 512, 999.6, 1500, 999_600, 2.5e6, 3e10, 999.6e9, 1.2e13, 5e15, 2e18)] == [
        "0 B", "512 B", "1 kB", "1.5 kB", "1 MB", "2.5 MB", "30 GB", "1 TB", "12 TB", "5 PB", "2,000 PB",
    ]  # fmt: skip
    assert [span(x) for x in (0, 0.000731, 0.5, 9.996, 45, 600, 86_400, 864_000, 999.6 * 86_400)] == [
        "0 s", "0.731 ms", "0.5 s", "10 s", "45 s", "10 min", "24 h", "10 d", "1,000 d",
    ]  # fmt: skip


SCALES: dict[str, dict[str, float]] = {
    "count": {"": 1, " M": 1e6} | {f"e{power}": 10.0**power for power in range(9, 31, 3)},
    "size": {" B": 1, " kB": 1e3, " MB": 1e6, " GB": 1e9, " TB": 1e12, " PB": 1e15},
    "span": {" ms": 1e-3, " s": 1, " min": 60, " h": 3600, " d": 86_400},
}
SHOWN = {"count": count, "size": size, "span": span}


def parsed(kind: str, text: str) -> float:
    """The value of what was printed."""
    matched = re.fullmatch(r"([\d,]*\d(?:\.\d+)?)(.*)", text)
    assert matched is not None, text
    name = matched[2]
    if kind == "span" and name.endswith(" d"):  # as many days as `count` writes
        return parsed("count", text.removesuffix(" d")) * 86_400
    return float(matched[1].replace(",", "")) * SCALES[kind][name]


def near_borders(kind: str) -> st.SearchStrategy[float]:
    """Any value, and those about a unit of which they may still be a thousand of the one below."""
    borders = [limit * times for limit in SCALES[kind].values() for times in (0.9995, 1, 2, 999.5, 1000)]
    close = st.builds(
        lambda border, off: border * (1 + off), st.sampled_from(borders), st.floats(-2e-3, 2e-3)
    )
    return close | st.floats(0, 1e30 if kind == "count" else 1e21) | st.integers(0, 10**7).map(float)


@pytest.mark.parametrize("kind", SHOWN)
@given(data=st.data())
def test_what_is_printed_is_the_number(kind: str, data: st.DataObject) -> None:
    """It grows with the number, has no exponent of Python's, and is the number within 1 % or, where only whole
    ones are printed (bytes, documents) or nothing smaller (a microsecond), within that."""
    values = st.lists(near_borders(kind), min_size=2, max_size=2).map(sorted)
    low, high = data.draw(values)
    texts = [SHOWN[kind](value) for value in (low, high)]
    assert parsed(kind, texts[0]) <= parsed(kind, texts[1])
    least = 1e-6 if kind == "span" else 0.5
    for value, text in zip((low, high), texts, strict=True):
        assert "e+" not in text and "e-" not in text and len(text) <= 12
        assert parsed(kind, text) == pytest.approx(value, rel=0.01, abs=least)
