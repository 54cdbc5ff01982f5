"""Evaluation items: which fields of a record are the question, the answers and the rest of one item.

Fields are known by the names under which public sets and harnesses distribute them (lm-evaluation-harness, llm-foundry, lighteval, decon, the
sets' own files), or are named with `--fields`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from corpusmill.common.errors import UserError, nearest
from corpusmill.pipeline.decontaminate.evalsets import EvalFile, records
from corpusmill.schemas.evaluation import question_hash

# Usual names of each role, the first that a file has is taken. Compared without case.
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "question": (
        "question", "query", "prompt", "ctx", "problem", "problem_statement", "instruction", "input", "inputs", "goal",
        "question_stem", "question_text", "premise", "startphrase",
    ),
    "answer": (
        "answer", "answers", "best_answer", "correct_answer", "correct_answers", "target", "targets", "solution",
        "canonical_solution", "code", "output", "outputs", "completion", "continuation", "response", "reference", "references",
        "ideal",
    ),
    "solution": ("chain_of_thought", "rationale", "explanation", "long_answer", "solution", "aliases"),
    "choices": ("choices", "endings", "options", "mc1_targets", "answer_choices", "multiple_choice_targets", "candidates"),
    "correct": (
        "is_correct", "label", "answerkey", "answer_key", "answer_index", "answer_idx", "gold", "gold_index", "correct",
        "correct_option",
    ),
    "passage": ("passage", "context", "article", "story", "support", "document", "paragraph"),
    "text": (
        "text", "content", "sentence", "sentence_good", "sent_more", "statement", "claim", "sentences",
    ),
    "set": ("eval_key",),
    "id": (
        "id", "_id", "eval_instance_index", "question_id", "qid", "task_id", "example_id", "ind", "idx", "pairid",
    ),
}  # fmt: skip
# Fields that together play another role than by themselves.
FORMS: Final[tuple[tuple[tuple[str, ...], dict[str, str]], ...]] = (
    (
        ("premise", "choice1", "choice2"),
        {"question": "premise"},
    ),  # COPA, whose `question` is "cause" or "effect"
    (("premise", "hypothesis"), {"text": "premise+hypothesis"}),
    (("sentence1", "sentence2"), {"text": "sentence1+sentence2"}),
    (("question1", "question2"), {"text": "question1+question2"}),
    (("instruction", "input"), {"question": "instruction", "passage": "input"}),  # Alpaca
)
# Choices with a field each: ans0, ans1; option1, option2; sol1, sol2; A, B, C, D.
_NUMBERED = re.compile(r"(?:option|opt|choice|sol|ans|answer|ending)[_-]?([0-9a-j])|([a-j])", re.IGNORECASE)
PARTS = ("question", "answer", "solution", "choices", "passage", "text")
LETTERS = "ABCDEFGHIJ"
NAMED_TEXT = 5  # words, on average, from which a field that no role has is named as one that may hold text
# Not searched for though they hold text: the wrong half of a pair.
LEFT_OUT: Final = frozenset({"sentence_bad", "sent_less", "incorrect_answers", "mc2_targets"})


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
    choices: tuple[str, ...]  # those that are offered, in the file's order
    question_hash: str  # what was asked, in an item that `corpusmill evaluate` wrote


class Reading(NamedTuple):
    """How a file is read: role -> its field, or fields joined by "+"; and the fields of no role, those that may hold texts first."""

    roles: dict[str, str]
    unknown: tuple[str, ...]
    texts: int  # of `unknown`, how many hold texts


def roles_of(source: EvalFile, names: Sequence[str], fields: Sequence[str]) -> dict[str, str]:
    """Role -> the field that plays it. Raises `UserError` if a field that was asked for, or any text, is not there."""
    given = _given(source, names, fields)
    taken = {part for field in given.values() for part in field.split("+")}
    known = {name.lower(): name for name in reversed(names) if name not in taken}
    roles = {}
    for role, usual in NAMES.items():
        field = next((known[name] for name in usual if name in known), None)
        if field is not None:
            roles[role] = field
    if "choices" not in roles:
        numbered = [name for name in names if name not in taken and _NUMBERED.fullmatch(name)]
        if len(numbered) > 1:
            roles["choices"] = "+".join(numbered)
    for form, own in FORMS:
        if all(name in known for name in form):
            for role in [role for role, field in roles.items() if field.lower() in form]:
                del roles[role]
            roles |= {role: "+".join(known[name] for name in field.split("+")) for role, field in own.items()}
            if form[-1].startswith("choice"):
                roles.pop("text", None)
            break
    # A context that nothing is asked about is itself what is to be answered or continued (GSM8K, LAMBADA as harnesses write them).
    if roles.get("passage", "").lower() == "context" and not {"question", "text"} & {*roles, *given}:
        roles["question"] = roles.pop("passage")
    if roles.get("solution") == roles.get("answer"):
        roles.pop("solution", None)
    roles |= given
    if not any(role in PARTS for role in roles):
        raise UserError(
            f"{source.file.url}: none of its fields ({', '.join(sorted(names)) or 'none'}) is known as a question,"
            " answer, passage or text; name one, such as --fields question=FIELD"
        )
    return roles


def _given(source: EvalFile, names: Sequence[str], fields: Sequence[str]) -> dict[str, str]:
    """The entries of `fields` that are meant for this file: ROLE=FIELD, or FILE:ROLE=FIELD with a pattern of its name."""
    found = {}
    # Those for one file come last, since they count for it before those for all.
    for entry in sorted(fields, key=lambda entry: ":" in entry.partition("=")[0]):
        role, _, field = entry.partition("=")
        pattern, _, role = role.rpartition(":")
        if pattern and not any(fnmatchcase(name, pattern) for name in (source.file.name, source.stem)):
            continue
        for part in [field] if field in names else field.split("+"):
            if part not in names:
                raise UserError(
                    f"{source.file.url}: no field '{part}' for {role}{nearest(part, names)} (it has:"
                    f" {', '.join(sorted(names))})"
                )
        found[role] = field
    return found


def read_file(source: EvalFile, place: int, fields: Sequence[str]) -> tuple[list[Item], Reading]:
    """The items of the file at `place` of the list, and how it was read. Raises `UserError` for a file that cannot be read, has no
    known field, or no text in any."""
    rows = [plain(row) for row in records(source)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    roles = roles_of(source, names, fields)
    found = [_item(row, roles, source.stem, place, record) for record, row in enumerate(rows, 1)]
    if not any(item.question or item.passage or item.text or item.answers or item.others for item in found):
        taken = ", ".join(f"{role}={field}" for role, field in roles.items())
        raise UserError(
            f"{source.file.url}: its fields hold no text ({taken}); name those that do with --fields"
        )
    used = {part for field in roles.values() for part in (field, *field.split("+"))}
    unknown = [name for name in names if name not in used and name.lower() not in LEFT_OUT]
    unknown = [name for name in unknown if name.lower() not in NAMES["id"]]
    texts = [name for name in unknown if _holds_texts(row.get(name) for row in rows)]
    return found, Reading(roles, (*texts, *(name for name in unknown if name not in texts)), len(texts))


def read_items(sources: Sequence[EvalFile], fields: Sequence[str]) -> list[Item]:
    """The items of all files, in order. Raises `UserError` for a file that cannot be read or has no known field."""
    return [item for place, source in enumerate(sources) for item in read_file(source, place, fields)[0]]


def read_note(source: EvalFile, reading: Reading) -> str | None:
    """What to say of fields that hold texts and have no known name; None if there are none."""
    if not reading.texts:
        return None
    known = ", ".join(f"{role} '{field}'" for role, field in reading.roles.items() if role in PARTS)
    missed = ", ".join(f"'{name}'" for name in reading.unknown[: reading.texts])
    return (
        f"{source.file.name}: not searched for, as no known names: {missed}; read: {known}; to read another:"
        f" --fields '{source.stem}:ROLE=FIELD'"
    )


def _holds_texts(values: Iterable[Any]) -> bool:
    counts = [len(value.split()) for value in values if isinstance(value, str) and value]
    return bool(counts) and sum(counts) >= NAMED_TEXT * len(counts)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A record with its item's fields on top: those of `doc` in logs of lm-evaluation-harness, the turns of a conversation, the right
    one of several beginnings (Winograd schemas of llm-foundry), inputs and outputs of an instruction's instances."""
    if isinstance(row.get("doc"), dict):
        row = {**row["doc"], **{name: row[name] for name in ("id", "task_id") if name in row}}
    turns = row.get("messages", row.get("conversations"))
    if isinstance(turns, list) and turns and all(isinstance(turn, dict) for turn in turns):
        said = [
            (str(turn.get("role", turn.get("from"))), turn.get("content", turn.get("value")))
            for turn in turns
        ]
        rest = {name: value for name, value in row.items() if name not in ("messages", "conversations")}
        return {
            **rest,
            "question": [text for who, text in said if who in ("user", "human")],
            "answer": [text for who, text in said if who in ("assistant", "gpt")],
        }
    cases = row.get("instances")
    if isinstance(cases, list) and cases and all(isinstance(case, dict) for case in cases):
        sides = {side: [case.get(side) for case in cases] for side in ("input", "output")}
        return {**{name: value for name, value in row.items() if name != "instances"}, **sides}
    options, gold = row.get("context_options"), row.get("gold", row.get("label", 0))
    if isinstance(options, list) and options and isinstance(row.get("continuation"), str):
        right = options[gold] if isinstance(gold, int) and 0 <= gold < len(options) else options[0]
        rest = {
            name: value
            for name, value in row.items()
            if name not in ("context_options", "continuation", "gold")
        }
        return {**rest, "text": f"{right} {row['continuation']}"}
    return row


def _item(row: dict[str, Any], roles: dict[str, str], stem: str, place: int, record: int) -> Item:
    def value(role: str) -> Any:
        field = roles.get(role)
        if field is None or field in row or "+" not in field:
            return row.get(field) if field is not None else None
        return [row.get(name) for name in field.split("+")]

    right, wrong = _answers(value("answer"), value("choices"), value("correct"))
    solutions = [text for text in _texts(value("solution")) if text not in right]
    name, own = value("set"), value("id")
    return Item(
        set=str(name) if name not in (None, "") else stem,
        id=str(own) if own is not None else str(record),
        file=place, record=record,
        question=" ".join(_texts(value("question"))),
        passage="\n".join(_texts(value("passage"))),
        text="\n".join(_texts(value("text"))),
        answers=(*right, *solutions), others=wrong, choices=tuple(_texts(value("choices"))),
        question_hash=question_hash(row) if "metrics" in row else "",
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
    """(right ones, others). A list of `answer` names choices by their texts; a number, a letter or a choice's own label among `answer` or
    `correct` picks one; `correct: false` makes the record's answer a wrong one."""
    given = tuple(dict.fromkeys(_texts(answer)))
    offered = _texts(choices)
    if not offered:
        return ((), given) if correct in (False, "false", "False") else (given, ())
    if isinstance(answer, list) and given and all(text in offered for text in given):
        return given, tuple(text for text in offered if text not in given)
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
    if len(text) == 1 and text.upper() in LETTERS[:count]:
        return LETTERS.index(text.upper())
    if text.isascii() and text.isdigit() and int(text) < count:
        return int(text)
    return None
