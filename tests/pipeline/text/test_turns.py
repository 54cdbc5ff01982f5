"""A conversation as one text: taken apart again exactly, whatever its turns hold, and never with a turn less."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.ingest.text_cleaning import clean
from corpusmill.pipeline.text.turns import (
    LABELS,
    MARK,
    Broken,
    Turn,
    broken,
    parsed,
    row_of,
    text_of,
    turns_of,
)
from corpusmill.schemas.conversation_lines import ROLES, read_line, read_row

# Contents that try to look like the line of a turn.
CONTENTS = st.lists(
    st.sampled_from([MARK, "\n", "\r\n", "\u2028", "\x00", "1/2 user", "2/2 assistant", "a", " ", "é"]),
    max_size=8,
).map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TURNS = st.lists(st.builds(Turn, st.sampled_from(sorted(LABELS)), CONTENTS), min_size=1, max_size=6)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(ROLES), "content": CONTENTS}), min_size=1, max_size=4
)
ANSWER = MESSAGES.map(lambda found: [*found, {"role": "assistant", "content": "yes"}])
PLAIN = {"prompt": CONTENTS, "chosen": CONTENTS, "rejected": CONTENTS}
ROWS = st.one_of(
    st.builds(lambda found, rest: {"messages": [*found, *rest]}, ANSWER, st.just([]) | MESSAGES),
    st.fixed_dictionaries({"text": CONTENTS}),
    st.fixed_dictionaries({"prompt": CONTENTS, "completion": CONTENTS}),
    st.fixed_dictionaries({"prompt": MESSAGES, "completion": ANSWER}),
    st.fixed_dictionaries(PLAIN),
    st.fixed_dictionaries({"prompt": MESSAGES, "chosen": ANSWER, "rejected": ANSWER}),
    st.fixed_dictionaries({"prompt": CONTENTS, "completion": CONTENTS, "label": st.booleans()}),
    st.fixed_dictionaries({"prompt": MESSAGES, "completion": ANSWER, "label": st.booleans()}),
)  # fmt: skip


@given(TURNS)
def test_taken_apart_exactly(turns: list[Turn]) -> None:
    assert parsed(text_of(turns)) == turns


@given(ROWS)
def test_rows_come_back(row: dict[str, Any]) -> None:
    line = read_row(row)
    back = row_of(parsed(text_of(turns_of(line))))
    assert back == row and read_line(orjson.dumps(back)) == line


@pytest.mark.parametrize(
    ("row", "back"),
    [
        (
            {"instruction": "Add.", "input": "1, 2", "output": "3"},
            {"messages": [{"role": "user", "content": "Add.\n\n1, 2"}, {"role": "assistant", "content": "3"}]},
        ),
        (
            {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]},
            {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]},
        ),
        # What both begin with is the prompt; without one there is none.
        (
            {"chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]},
            {"chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]},
        ),
    ],
)  # fmt: skip
def test_other_forms_become_ours(row: dict[str, Any], back: dict[str, Any]) -> None:
    assert row_of(turns_of(read_row(row))) == back


@given(TURNS)
def test_cleaning_makes_and_takes_no_turn(turns: list[Turn]) -> None:
    """Of ingest: line ends alike, controls out, which may bring a mark to the beginning of a line."""
    (text,) = clean(pa.array([text_of(turns)], pa.large_string()), True, Counter()).to_pylist()
    assert [turn.label for turn in parsed(text)] == [turn.label for turn in turns]


@given(TURNS, st.data())
def test_a_lost_line_of_a_turn_is_noticed(turns: list[Turn], data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, len(turns) - 1))
    text = text_of(turns).replace(f"{MARK}{lost + 1}/{len(turns)} {turns[lost].label}", "", 1)
    with pytest.raises(Broken):
        parsed(text)
    assert [*broken(pa.array([text_of(turns), text]))] == [1]


def test_reasons() -> None:
    text = text_of([Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c")])
    for changed, reason in [
        ("no conversation", "does not begin with a turn"),
        (text.replace(f"{MARK}2/3 assistant\n", ""), "turn 3 of 3 stands where turn 2 of 3 should"),
        (text.partition(f"\n{MARK}3")[0], "2 of 3 turns are there"),
        (text.replace("3/3 user", "3/3 nobody"), "turn 3: a label that no turn has"),
    ]:
        with pytest.raises(Broken, match=reason):
            parsed(changed)
