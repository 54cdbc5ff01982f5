"""Signals of conversations beside a count of the parsed turns."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.apply import signals_of_text
from corpusmill.pipeline.text.turns import LABELS, MARK, Turn, text_of

NAMES = ("turns", "answers", "shortest_answer", "answer_share")
CONTENTS = st.lists(st.sampled_from(["a", "é b", "\n", " ", MARK, "1/2 user", ""]), max_size=6).map("".join)
TURNS = st.lists(st.builds(Turn, st.sampled_from(sorted(LABELS)), CONTENTS), min_size=1, max_size=5)


def measured(texts: list[str]) -> list[tuple[float, ...]]:
    found = signals_of_text(pa.array(texts, pa.large_string()), [f"conversation.{name}" for name in NAMES])
    columns = [found[f"conversation.{name}"].to_pylist() for name in NAMES]
    return list(zip(*columns, strict=True))


def counted(turns: list[Turn]) -> tuple[float, ...]:
    sizes = [
        sum(len(line.strip()) for line in turn.content.replace(MARK, 2 * MARK).split("\n")) for turn in turns
    ]
    answers = [
        size
        for size, turn in zip(sizes, turns, strict=True)
        if turn.label.endswith("assistant")
        or turn.label in ("completion", "chosen", "rejected", "good", "bad")
    ]
    share = sum(answers) / sum(sizes) if sum(sizes) else 0.0
    return len(turns), len(answers), min(answers, default=0), share


@given(st.lists(TURNS, max_size=4))
def test_as_the_parsed_turns_have_it(some: list[list[Turn]]) -> None:
    found = measured([*map(text_of, some), "No conversation.\n␞ at all", ""])
    assert [tuple(round(one, 5) for one in row) for row in found[:-2]] == [
        tuple(round(one, 5) for one in counted(turns)) for turns in some
    ]
    assert found[-2:] == [(0, 0, 0, 0.0)] * 2
