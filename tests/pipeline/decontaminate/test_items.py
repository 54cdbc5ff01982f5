"""Which field plays which role, in the forms in which sets and harnesses write their records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate.evalsets import EvalFile
from corpusmill.pipeline.decontaminate.items import Item, read_file


def one(row: dict[str, Any], folder: Path, *fields: str) -> Item:
    (item,), _ = read_file(source_of(folder, row), 0, fields)
    return item


def source_of(folder: Path, row: dict[str, Any]) -> EvalFile:
    file = folder / "set.jsonl"
    file.write_text(json.dumps(row), encoding="utf-8")
    return EvalFile(Folder(file), checksum(file.read_bytes()))


@pytest.mark.parametrize(
    ("row", "question", "right", "others"),
    [
        ({"question": "q", "answer": "a"}, "q", ("a",), ()),  # gsm8k
        ({"ctx": "c", "endings": ["x", "y", "z"], "label": 2}, "c", ("z",), ("x", "y")),  # hellaswag
        ({"ctx": "c", "endings": ["x", "y"], "label": "1"}, "c", ("y",), ("x",)),
        ({"question": "q", "choices": ["x", "y"], "answer": 1}, "q", ("y",), ("x",)),  # mmlu
        ({"question": "q", "options": ["x", "y"], "answer": "A"}, "q", ("x",), ("y",)),  # race
        (
            {
                "question": "q",
                "choices": {"text": ["x", "y"], "label": ["1", "2"]},
                "answerKey": "2",
            },  # arc
            "q",
            ("y",),
            ("x",),
        ),
        ({"question": "q", "choices": ["4", "5", "6"], "answer": "5"}, "q", ("5",), ("4", "6")),
        ({"question": "q", "choices": ["x", "y"]}, "q", (), ("x", "y")),
        # Items that `corpusmill evaluate` wrote: digits among the choices, several right ones, generated answers.
        ({"question": "q", "choices": ["1", "0"], "gold": 0, "answers": ["1"]}, "q", ("1",), ("0",)),
        ({"question": "q", "choices": [*"xyz"], "gold": 0, "answers": [*"xz"]}, "q", ("x", "z"), ("y",)),
        ({"question": "q", "references": ["a", "b"], "answers": ["a", "b"]}, "q", ("a", "b"), ()),
        ({"question": "q", "answer": "a", "is_correct": False}, "q", (), ("a",)),  # decon
        ({"question": "q", "answers": {"text": ["a", "b", "a"]}}, "q", ("a", "b"), ()),  # squad
        ({"question": "q", "answer": {"value": "a", "aliases": ["b"]}}, "q", ("a",), ()),  # triviaqa
        ({"Question": "q", "Answer": 5}, "q", ("5",), ()),
        ({"question": "q", "answer": True}, "q", (), ()),
    ],
)
def test_answers_are_distinguished_from_other_choices(
    tmp_path: Path, row: dict[str, Any], question: str, right: tuple[str, ...], others: tuple[str, ...]
) -> None:
    item = one(row, tmp_path)
    assert (item.question, item.answers, item.others) == (question, right, others)


def test_fields_may_be_named(tmp_path: Path) -> None:
    row = {"frage": "q", "antwort": "a", "name": "n", "gruppe": "g", "question": "other"}
    item = one(row, tmp_path, "question=frage", "answer=antwort", "id=name", "set=gruppe")
    assert (item.set, item.id, item.question, item.answers) == ("g", "n", "q", ("a",))
    with pytest.raises(UserError, match=r"no field 'frge' for question; did you mean 'frage'\?"):
        one(row, tmp_path, "question=frge")


def test_the_set_is_a_field_or_the_files_name(tmp_path: Path) -> None:
    assert one({"question": "q", "eval_key": "mmlu"}, tmp_path).set == "mmlu"
    assert one({"question": "q", "passage": "p"}, tmp_path).set == "set"
