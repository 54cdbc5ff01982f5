"""What is printed fits the terminal and contains what was requested."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.banding import Banding, banding
from corpusmill.pipeline.dedup.estimate.corpus import assumed
from corpusmill.pipeline.dedup.estimate.model import estimate
from corpusmill.pipeline.dedup.estimate.plan_text import (
    curve,
    show,
    show_actual,
    show_steps,
    unpromised,
)
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.dedup_results import Estimate, Interval


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


def test_one_of_a_thing_is_no_plural() -> None:
    text = " ".join(show(plan(1)).split())
    assert text.startswith("dedup of 1 document, ") and " in 1 partition " in text
    assert not re.search(r"\b1 (documents|partitions|bands|rows|copies|near-copies|requests|workers)\b", text)


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
    ("given", "message"),
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
def test_bands_that_fall_short_of_the_recall_are_reported(given: dict[str, Any], message: str | None) -> None:
    params = DedupParams(**given)
    lines = unpromised(params, banding(params))
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(" ".join(lines).split())
    if message is None:
        assert text == ""
    else:
        assert text.startswith(f"warning: dedup.recall 0.95 is not promised: {message}")


@given(st.floats(0.3, 1), st.floats(0.1, 0.99))
def test_a_solved_banding_keeps_the_promise(similarity: float, recall: float) -> None:
    params = DedupParams(similarity=similarity, recall=recall, num_perm=1024)
    assert unpromised(params, banding(params)) == []
