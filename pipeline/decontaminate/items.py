"""Records to items: which field is the question, which answers are right, what belongs to one item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError, nearest
from corpusmill.pipeline.decontaminate.evalsets import EvalFile, records

# Usual names of each role, the first that a file has is taken. Compared without case.
NAMES: dict[str, tuple[str, ...]] = {
    "question": (
        "question", "query", "prompt", "ctx", "problem", "instruction", "input", "goal", "question_stem", "premise",
    ),
    "answer": (
        "answer", "answers", "best_answer", "correct_answer", "target", "solution", "canonical_solution", "output",
        "completion", "continuation", "response",
    ),
    "choices": ("choices", "endings", "options", "mc1_targets"),
    "correct": ("is_correct", "label", "answerkey", "answer_key", "answer_index", "answer_idx", "gold", "correct"),
    "passage": ("passage", "context", "article", "story", "support", "document"),
    "text": ("text", "content", "sentence", "sentence_good"),
    "set": ("eval_key",),
    "id": (
        "id", "_id", "eval_instance_index", "question_id", "qid", "task_id", "example_id", "ind", "idx", "pairid",
    ),
}  # fmt: skip
PARTS = ("question", "answer", "choices", "passage", "text")
_LETTERS = "ABCDEFGHIJ"


class Item(NamedTuple):
    """One record, its texts by part."""

    set: str
    id: str
    file: int  # its place in the list of files
    record: int  # counted from 1
    question: str
    passage: str
    text: str
    answers: tuple[str, ...]  # right ones
    others: tuple[str, ...]  # wrong ones, or all where the file does not mark the right one


def roles_of(source: EvalFile, names: Sequence[str], fields: Sequence[str]) -> dict[str, str]:
    """Role -> the field that plays it. Raises `UserError` if a field that was asked for, or any text, is not there."""
    known = {name.lower(): name for name in reversed(names)}
    roles = {}
    for role, usual in NAMES.items():
        field = next((known[name] for name in usual if name in known), None)
        if field is not None:
            roles[role] = field
    for entry in fields:
        role, _, field = entry.partition("=")
        if field not in names:
            raise UserError(
                f"{source.file.url}: no field '{field}' for {role}{nearest(field, names)} (it has:"
                f" {', '.join(sorted(names))})"
            )
        roles[role] = field
    if not any(role in PARTS for role in roles):
        raise UserError(
            f"{source.file.url}: none of its fields ({', '.join(sorted(names)) or 'none'}) is known as a question,"
            " answer, passage or text; say which, such as --fields question=FIELD"
        )
    return roles


def read_items(sources: Sequence[EvalFile], fields: Sequence[str]) -> list[Item]:
    """The items of all files, in order. Raises `UserError` for a file that cannot be read or has no known field."""
    found: list[Item] = []
    for place, source in enumerate(sources):
        rows = records(source)
        names = list(dict.fromkeys(name for row in rows for name in row))
        roles = roles_of(source, names, fields)
        before = len(found)
        found += [_item(row, roles, source.stem, place, record) for record, row in enumerate(rows, 1)]
        if not any(item.question or item.passage or item.text or item.answers for item in found[before:]):
            taken = ", ".join(f"{role}={field}" for role, field in roles.items())
            raise UserError(f"{source.file.url}: its fields hold no text ({taken}); say which do by --fields")
    return found


def _item(row: dict[str, Any], roles: dict[str, str], stem: str, place: int, record: int) -> Item:
    def value(role: str) -> Any:
        return row.get(roles[role]) if role in roles else None

    right, wrong = _answers(value("answer"), value("choices"), value("correct"))
    name, own = value("set"), value("id")
    return Item(
        set=str(name) if name not in (None, "") else stem,
        id=str(own) if own is not None else str(record),
        file=place, record=record,
        question=" ".join(_texts(value("question"))),
        passage="\n".join(_texts(value("passage"))),
        text="\n".join(_texts(value("text"))),
        answers=right, others=wrong,
    )  # fmt: skip


def _texts(value: Any) -> list[str]:
    """The texts in a field: a text, a number, a list, or an object with `text` or `value` (SQuAD, TriviaQA)."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [str(value)]
    if isinstance(value, list | tuple):
        return [text for entry in value for text in _texts(entry)]
    if isinstance(value, dict):
        lowered = {str(name).lower(): entry for name, entry in value.items()}
        for name in ("text", "value", "choices", "answer", "spans"):
            if name in lowered:
                return _texts(lowered[name])
    return []


def _answers(answer: Any, choices: Any, correct: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(right ones, others). A number, a letter or a choice's own label among `answer` or `correct` picks a choice;
    `correct: false` makes the record's answer a wrong one."""
    given = tuple(dict.fromkeys(_texts(answer)))
    offered = _texts(choices)
    if not offered:
        return ((), given) if correct in (False, "false", "False") else (given, ())
    labels = [str(label) for label in choices.get("label", [])] if isinstance(choices, dict) else []
    for key in (correct, answer):
        place = _place(key, labels, offered)
        if place is not None:
            return (offered[place],), tuple(t for i, t in enumerate(offered) if i != place)
    if given and not isinstance(answer, bool):
        return given, tuple(text for text in offered if text not in given)
    return (), tuple(offered)


def _place(key: Any, labels: list[str], offered: list[str]) -> int | None:
    """The choice that a key names, counted from 0: by its label, its text, its letter or its number."""
    if isinstance(key, bool) or key is None or isinstance(key, list | dict):
        return None
    text, count = str(key).strip(), len(offered)
    if text in labels and len(labels) == count:
        return labels.index(text)
    if text in offered:
        return offered.index(text)
    if len(text) == 1 and text.upper() in _LETTERS[:count]:
        return _LETTERS.index(text.upper())
    if text.isascii() and text.isdigit() and int(text) < count:
        return int(text)
    return None
