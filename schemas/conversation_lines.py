"""One line of JSON, or one row of a table, as a conversation, in any of the formats that are in use; or the reason why it is none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from corpusmill.schemas.conversations import RowFormat
from corpusmill.schemas.shards import Target

Message = dict[str, str]  # role and content
ROLES = ("system", "user", "assistant", "tool")
SHAREGPT = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system", "tool": "tool",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_-]{0,20}")
# The fields of a row that are its conversation, by its format.
KEYS: dict[RowFormat, tuple[str, ...]] = {
    "messages": ("messages",),
    "sharegpt": ("conversations",),
    "preference": ("prompt", "chosen", "rejected"),
    "alpaca": ("instruction", "input", "output", "system"),
    "completion": ("prompt", "completion"),
    "feedback": ("prompt", "completion", "label"),
    "text": ("text",),
}
FIELDS = tuple(dict.fromkeys(field for fields in KEYS.values() for field in fields))


class Wrong(Exception):
    """Why a line is no conversation."""


class Answer(NamedTuple):
    """A last answer: messages behind the prompt's, or, of a line without messages, a text; and what its tokens are."""

    messages: list[Message]
    text: str = ""
    kind: Target = Target.answer


class Line(NamedTuple):
    """`messages`: what comes before every answer; `text`: the same of a line without messages. `answers`: one, or the chosen and the
    rejected one of a preference. A `text` alone has no answer. `rest`: messages behind the last answer, which nothing trains on."""

    format: RowFormat
    messages: list[Message]
    text: str
    answers: list[Answer]
    rest: list[Message] = []  # noqa: RUF012 (a NamedTuple default, never written to)

    @property
    def first(self) -> str:
        """What decides whether it is held out: its first message of the user, or its text."""
        named = [one["content"] for one in self.messages if one["role"] == "user"]
        return named[0] if named else self.text


def read_line(data: bytes) -> Line:
    """Raises `Wrong`."""
    try:
        row = orjson.loads(data)
    except ValueError:  # also of bytes that are no UTF-8
        raise Wrong("not JSON") from None
    if not isinstance(row, dict):
        raise Wrong("no JSON object")
    return read_row(row)


def read_row(row: Mapping[str, Any]) -> Line:
    """A line's object, or a row of a table by its columns. Raises `Wrong`."""
    if "messages" in row:
        return _of_messages("messages", messages(row["messages"], "messages"))
    if "conversations" in row:
        return _of_messages("sharegpt", _sharegpt(row["conversations"]))
    if "chosen" in row or "rejected" in row:
        return _preference(row)
    if "instruction" in row:
        return _alpaca(row)
    if "prompt" in row and "completion" in row:
        return _completion(row)
    if "text" in row:
        return Line("text", [], _text(row, "text"), [])
    raise Wrong(
        "no conversation: none of messages, conversations, instruction, prompt and completion, chosen and rejected, text"
    )


def messages(value: Any, key: str) -> list[Message]:
    """A list of messages, checked. Raises `Wrong` naming the first that is none."""
    if not isinstance(value, list) or not value:
        raise Wrong(f"{key}: not a list of messages")
    return [_message(one, f"{key}.{number}") for number, one in enumerate(value)]


def _message(value: Any, key: str) -> Message:
    if not isinstance(value, Mapping) or not isinstance(value.get("content"), str):
        raise Wrong(f"{key}: no message with a role and a text as content")
    role = value.get("role")
    if role not in ROLES:
        raise Wrong(f"{key}.role: {_shown(role)} is none of {', '.join(ROLES)}")
    return {"role": role, "content": value["content"]}


def _sharegpt(value: Any) -> list[Message]:
    if not isinstance(value, list):
        raise Wrong("conversations: not a list")
    found = []
    for number, one in enumerate(value):
        key = f"conversations.{number}"
        if not isinstance(one, Mapping) or not isinstance(one.get("value"), str):
            raise Wrong(f"{key}: no message with from and a text as value")
        role = SHAREGPT.get(str(one.get("from")))
        if role is None:
            raise Wrong(f"{key}.from: {_shown(one.get('from'))} is none of {', '.join(SHAREGPT)}")
        found.append({"role": role, "content": one["value"]})
    return found


def _of_messages(kind: RowFormat, found: Sequence[Message]) -> Line:
    """A conversation whose last answer is its answer."""
    last = max((at for at, one in enumerate(found) if one["role"] == "assistant"), default=None)
    if last is None:
        raise Wrong("no message of the assistant")
    return Line(kind, list(found[:last]), "", [Answer([found[last]])], list(found[last + 1 :]))


def _alpaca(row: Mapping[str, Any]) -> Line:
    """(Taori et al. 2023.) The input stands behind the instruction, after a blank line."""
    asked = "\n\n".join(filter(None, (_text(row, "instruction"), _text(row, "input", ""))))
    system = _text(row, "system", "")
    before = [{"role": "system", "content": system}] if system else []
    answer = {"role": "assistant", "content": _text(row, "output")}
    return Line("alpaca", [*before, {"role": "user", "content": asked}], "", [Answer([answer])])


def _completion(row: Mapping[str, Any]) -> Line:
    """With `label`, feedback on one answer (as for KTO)."""
    kind: RowFormat = "completion"
    wanted = Target.answer
    if "label" in row:
        if not isinstance(row["label"], bool):
            raise Wrong(f"label: {_shown(row['label'])} is neither true nor false")
        kind, wanted = "feedback", Target.answer if row["label"] else Target.rejected
    prompt, answer = row["prompt"], row["completion"]
    if isinstance(prompt, str) and isinstance(answer, str):
        return Line(kind, [], prompt, [Answer([], answer, wanted)])
    return Line(kind, messages(prompt, "prompt"), "", [Answer(_answer(answer, "completion"), kind=wanted)])


def _preference(row: Mapping[str, Any]) -> Line:
    """Without a `prompt`, it is what both lists of messages begin with."""
    for key in ("chosen", "rejected"):
        if key not in row:
            raise Wrong(f"no {key}")
    both = row["chosen"], row["rejected"]
    if "prompt" not in row:
        lists = messages(both[0], "chosen"), messages(both[1], "rejected")
        same = 0
        for one, other in zip(*lists, strict=False):
            if one != other:
                break
            same += 1
        rest = [_answer(found[same:], key) for found, key in zip(lists, ("chosen", "rejected"), strict=True)]
        return Line(
            "preference", lists[0][:same], "", [Answer(rest[0]), Answer(rest[1], kind=Target.rejected)]
        )
    prompt = row["prompt"]
    if isinstance(prompt, str) and all(isinstance(one, str) for one in both):
        return Line("preference", [], prompt, [Answer([], both[0]), Answer([], both[1], Target.rejected)])
    before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else messages(prompt, "prompt")
    return Line(
        "preference", before, "",
        [Answer(_answer(both[0], "chosen")), Answer(_answer(both[1], "rejected"), kind=Target.rejected)],
    )  # fmt: skip


def _answer(value: Any, key: str) -> list[Message]:
    """A last answer: a text, or messages of which the last is the assistant's."""
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    found = messages(value, key)
    if found[-1]["role"] != "assistant":
        raise Wrong(f"{key}: its last message is not the assistant's")
    return found


def _text(row: Mapping[str, Any], key: str, otherwise: str | None = None) -> str:
    value = row.get(key, otherwise)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, str):
        raise Wrong(f"{key}: no text")
    return value


def _shown(value: Any) -> str:
    """A value in a reason: as it is if it is a short name, or no text; else what it is, since it may be text of somebody's."""
    if not isinstance(value, str | list | dict) or (isinstance(value, str) and _NAME.fullmatch(value)):
        return repr(value)
    return f"a {type(value).__name__} of {len(value)}"
