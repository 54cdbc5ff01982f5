"""Lines of JSON in every format that is in use become conversations; what is none says why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.schemas.conversation_lines import Answer, Line, Wrong, read_line
from corpusmill.schemas.shards import Target

USER, BOT = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}
OTHER = {"role": "assistant", "content": "no"}


def read(row: Any) -> Line:
    return read_line(json.dumps(row).encode())


def test_formats_of_conversations() -> None:
    wanted = Line("messages", [USER], "", [Answer([BOT])])
    assert read({"messages": [USER, BOT]}) == wanted
    # What follows the last answer would never be a label.
    assert read({"messages": [USER, BOT, USER]}) == wanted._replace(rest=[USER])
    shared = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]}
    assert read(shared) == wanted._replace(format="sharegpt")
    alpaca = {"instruction": "Add.", "input": "1, 2", "output": "3", "system": "Be brief."}
    assert read(alpaca) == Line(
        "alpaca",
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add.\n\n1, 2"}], "",
        [Answer([{"role": "assistant", "content": "3"}])],
    )  # fmt: skip
    assert read({"prompt": "a", "completion": "b"}) == Line("completion", [], "a", [Answer([], "b")])
    assert read({"prompt": [USER], "completion": [BOT]}) == wanted._replace(format="completion")
    assert read({"text": "whole"}) == Line("text", [], "whole", [])
    assert read({"text": "whole"}).first == "whole" and wanted.first == "hi"


def test_preferences_and_feedback() -> None:
    answers = [Answer([BOT]), Answer([OTHER], kind=Target.rejected)]
    wanted = Line("preference", [USER], "", answers)
    assert read({"prompt": [USER], "chosen": [BOT], "rejected": [OTHER]}) == wanted
    assert read({"prompt": [USER], "chosen": "yes", "rejected": "no"}) == wanted
    # The prompt is what both begin with.
    assert read({"chosen": [USER, BOT], "rejected": [USER, OTHER]}) == wanted
    raw = read({"prompt": "a", "chosen": "b", "rejected": "c"})
    assert (raw.text, [a.text for a in raw.answers]) == ("a", ["b", "c"]) and not raw.messages
    liked = read({"prompt": [USER], "completion": [BOT], "label": True})
    assert liked == Line("feedback", [USER], "", [Answer([BOT])])
    disliked = read({"prompt": "a", "completion": "b", "label": False})
    assert disliked.answers == [Answer([], "b", Target.rejected)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([1], "no JSON object"),
        ({"a": 1}, "no conversation: none of messages"),
        ({"messages": []}, "messages: not a list of messages"),
        ({"messages": [{"role": "user"}]}, "messages.0: no message with a role and a text"),
        ({"messages": [{"role": "boss", "content": ""}]}, "messages.0.role: 'boss' is none of system, user"),
        ({"messages": [USER]}, "no message of the assistant"),
        ({"conversations": [{"from": "martian", "value": "x"}]}, "conversations.0.from: 'martian' is none of"),
        ({"instruction": 3, "output": "x"}, "instruction: no text"),
        ({"prompt": "a", "completion": "b", "label": 1}, "label: 1 is neither true nor false"),
        ({"prompt": "a", "chosen": "b"}, "no rejected"),
        ({"chosen": [USER, BOT], "rejected": [USER, BOT]}, "chosen: not a list of messages"),
        ({"prompt": [USER], "chosen": [USER], "rejected": [BOT]}, "chosen: its last message is not the assistant's"),
        ({"text": None}, "text: no text"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_says_why(row: Any, reason: str) -> None:
    with pytest.raises(Wrong) as found:
        read(row)
    assert str(found.value).startswith(reason)


@pytest.mark.parametrize("data", [b"{", b'{"text": "\xff"}', b'{"text": "\\ud800"}', b"nul"])
def test_damaged_lines_are_not_json(data: bytes) -> None:
    with pytest.raises(Wrong, match="not JSON"):
        read_line(data)


def _values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4)
    keys = st.sampled_from(
        ["messages", "conversations", "role", "content", "from", "value", "prompt", "completion", "chosen", "rejected",
         "label", "instruction", "input", "output", "text", "system"]
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


@given(_values().map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
def test_any_line_is_a_conversation_or_a_reason(data: bytes) -> None:
    try:
        line = read_line(data)
    except Wrong as wrong:
        assert str(wrong)
        return
    assert line.answers or line.format == "text"
    for answer in line.answers:
        assert answer.messages or not line.messages
        for message in (*line.messages, *answer.messages):
            assert set(message) == {"role", "content"} and isinstance(message["content"], str)
