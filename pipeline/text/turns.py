"""A conversation as the text of one document, whose turns can be taken apart again exactly.

Each turn begins with a line of its own, such as `␞2/4 assistant`: its number, the number of turns, and what it is. So stages that
look at texts (duplicates, rules, evaluation items, personal data) see a dialogue, no line of it repeats another, and a lost or added
turn is noticed. `␞` (U+241E) inside a turn is doubled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from corpusmill.schemas.conversation_lines import ROLES, Line, Message
from corpusmill.schemas.shards import Target

MARK = "␞"
PLAIN = ("prompt", "completion", "chosen", "rejected", "good", "bad")  # parts of lines that are no `messages`
LABELS = frozenset({*ROLES, "text", *PLAIN, *(f"{part} {role}" for part in PLAIN for role in ROLES)})
BROKEN_TURNS = "broken_turns"  # the rule by which a stage quarantines a text that is no conversation any more
_FEEDBACK = {"good": True, "bad": False}
_LINE = re.compile(rf"(?:\A|\n){MARK}(\d{{1,7}})/(\d{{1,7}}) ([a-z]+(?: [a-z]+)?)(?:\n|\Z)")


class Broken(ValueError):
    """A text is no conversation any more."""


class Turn(NamedTuple):
    """`label`: a role; or a part of the line, with the role in it where that part is a list of messages; or `text`."""

    label: str
    content: str


def turns_of(line: Line) -> list[Turn]:
    """All turns of a line, those behind its last answer too."""
    if line.format == "text":
        return [Turn("text", line.text)]
    if line.format in ("messages", "sharegpt", "alpaca"):
        answers = [message for answer in line.answers for message in answer.messages]
        return [Turn(one["role"], one["content"]) for one in (*line.messages, *answers, *line.rest)]
    rejected = "rejected" if line.format == "preference" else "bad"
    first = {"preference": "chosen", "feedback": "good"}.get(line.format, "completion")
    if not any(answer.messages for answer in line.answers):
        found = [Turn("prompt", line.text)]
    else:
        found = [Turn(f"prompt {one['role']}", one["content"]) for one in line.messages]
    for answer in line.answers:
        part = rejected if answer.kind == Target.rejected else first
        messages = [Turn(f"{part} {one['role']}", one["content"]) for one in answer.messages]
        found += messages or [Turn(part, answer.text)]
    return found


def text_of(turns: Sequence[Turn]) -> str:
    """The text of a document; `parsed` takes it apart."""
    return "\n".join(
        f"{MARK}{number}/{len(turns)} {turn.label}\n{turn.content.replace(MARK, 2 * MARK)}"
        for number, turn in enumerate(turns, 1)
    )


def parsed(text: str) -> list[Turn]:
    """The turns of a text of `text_of`; raises `Broken`, which names the first turn that is not as it should be."""
    lines = list(_LINE.finditer(text))
    if not lines or lines[0].start():
        raise Broken("does not begin with a turn")
    total = int(lines[0][2])
    turns = []
    for at, line in enumerate(lines):
        if (int(line[1]), int(line[2])) != (at + 1, total):
            raise Broken(f"turn {line[1]} of {line[2]} stands where turn {at + 1} of {total} should")
        if line[3] not in LABELS:
            raise Broken(f"turn {at + 1}: a label that no turn has")
        end = lines[at + 1].start() if at + 1 < len(lines) else len(text)
        turns.append(Turn(line[3], text[line.end() : end].replace(2 * MARK, MARK)))
    if len(turns) != total:
        raise Broken(f"{len(turns)} of {total} turns are there")
    return turns


def row_of(turns: Iterable[Turn]) -> dict[str, Any]:
    """The turns as a row that `corpusmill.schemas.conversation_lines.read_row` reads: `messages`, `prompt` with `completion`, `chosen`
    and `rejected`, or `completion` and `label`, or `text`."""
    row: dict[str, Any] = {}
    for part, each in groupby(turns, key=_part):
        run = list(each)
        value: Any = run[0].content
        if part == "messages" or " " in run[0].label:
            value = [_message(turn) for turn in run]
        if part in _FEEDBACK:
            row |= {"completion": value, "label": _FEEDBACK[part]}
        else:
            row[part] = value
    return row


def broken(texts: pa.Array | pa.ChunkedArray) -> dict[int, str]:
    """Row -> why its text is no conversation any more."""
    found = {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            parsed(text)
        except Broken as error:
            found[row] = str(error)
    return found


def _part(turn: Turn) -> str:
    part = turn.label.partition(" ")[0]
    return "messages" if part in ROLES else part


def _message(turn: Turn) -> Message:
    return {"role": turn.label.rpartition(" ")[2], "content": turn.content}
