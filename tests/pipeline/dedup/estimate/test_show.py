"""What is printed fits the terminal and says what was asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dedup.banding import Banding, banding
from pipeline.dedup.estimate.corpus import Interval, assumed
from pipeline.dedup.estimate.model import Estimate, estimate
from pipeline.dedup.estimate.show import count, curve, show, show_actual, show_steps, size, span
from schemas.dedup import DedupParams


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


def test_numbers_in_few_characters() -> None:
    assert [count(x) for x in (0, 999, 123456, 1.5e6, 1e10, 3.2e13, 2e17)] == [
        "0", "999", "123,456", "1.5 M", "10e9", "32e12", "200e15",
    ]  # fmt: skip
    assert [size(x) for x in (0, 1500, 2.5e6, 3e10, 1.2e13, 5e15)] == [
        "0 kB", "1.5 kB", "2.5 MB", "30 GB", "12 TB", "5 PB",
    ]  # fmt: skip
    assert [span(x) for x in (0.5, 45, 600, 86_400, 864_000)] == [
        "0.5 s",
        "45 s",
        "10 min",
        "24 h",
        "10 d",
    ]
