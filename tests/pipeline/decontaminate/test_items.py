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
from corpusmill.pipeline.decontaminate.items import Item, read_file, read_note


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


# As sets and harnesses write them: the row; then question, passage, text, right answers, choices.
FORMS: dict[str, tuple[dict[str, Any], tuple[str, str, str, tuple[str, ...], tuple[str, ...]]]] = {
    "llm-foundry GSM8K": (
        {"context": "q", "answer": "4", "chain_of_thought": "2 and 2 is 4"}, ("q", "", "", ("4", "2 and 2 is 4"), ()),
    ),
    "llm-foundry LAMBADA": ({"context": "q", "continuation": "w"}, ("q", "", "", ("w",), ())),
    "llm-foundry TriviaQA": (
        {"context": "q", "answer": "a", "aliases": ["a", "b"]}, ("q", "", "", ("a", "b"), ()),
    ),
    "llm-foundry choices": (
        {"query": "q", "choices": ["x", "y"], "gold": 1}, ("q", "", "", ("y",), ("x", "y")),
    ),
    "llm-foundry Winograd": (
        {"context_options": ["a b", "c d"], "continuation": "e", "gold": 1}, ("", "", "c d e", (), ()),
    ),
    "a context beside a question": ({"context": "p", "question": "q", "answer": "a"}, ("q", "p", "", ("a",), ())),
    "an article alone": ({"article": "p", "answer": "a"}, ("", "p", "", ("a",), ())),
    "BBQ": (
        {"context": "p", "question": "q", "ans0": "x", "ans1": "y", "ans2": "z", "label": 2},
        ("q", "p", "", ("z",), ("x", "y", "z")),
    ),
    "PIQA": ({"goal": "q", "sol1": "x", "sol2": "y", "label": 0}, ("q", "", "", ("x",), ("x", "y"))),
    "WinoGrande": (
        {"sentence": "s _", "option1": "x", "option2": "y", "answer": "2"}, ("", "", "s _", ("2",), ("x", "y")),
    ),
    "COPA": (
        {"premise": "p", "choice1": "x", "choice2": "y", "question": "cause", "label": 0},
        ("p", "", "", ("x",), ("x", "y")),
    ),
    "a table of MMLU": (
        {"question": "q", "A": "w", "B": "x", "C": "y", "D": "z", "answer": "C"}, ("q", "", "", ("y",), (*"wxyz",)),
    ),
    "MNLI": ({"premise": "p", "hypothesis": "h", "label": 1}, ("", "", "p\nh", (), ())),
    "PAWS": ({"sentence1": "a", "sentence2": "b", "label": 0}, ("", "", "a\nb", (), ())),
    "BoolQ": ({"question": "q", "passage": "p", "answer": True}, ("q", "p", "", (), ())),
    "HumanEval": (
        {"task_id": "t/0", "prompt": "def f():", "canonical_solution": "return 1", "test": "assert f()"},
        ("def f():", "", "", ("return 1",), ()),
    ),
    "MBPP": ({"text": "Write f.", "code": "def f(): pass", "test_list": ["f()"]}, ("", "", "Write f.", ("def f(): pass",), ())),
    "FLAN": ({"inputs": "q", "targets": "a"}, ("q", "", "", ("a",), ())),
    "Alpaca": ({"instruction": "q", "input": "p", "output": "a"}, ("q", "p", "", ("a",), ())),
    "seed tasks": (
        {"instruction": "q", "instances": [{"input": "p", "output": "a"}, {"input": "r", "output": "b"}]},
        ("q", "p\nr", "", ("a", "b"), ()),
    ),
    "a log of lm-evaluation-harness": (
        {"doc_id": 3, "doc": {"question": "q", "answer": "a"}, "target": "a"}, ("q", "", "", ("a",), ()),
    ),
    "messages": (
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
        ("q", "", "", ("a",), ()),
    ),
    "ShareGPT": (
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, ("q", "", "", ("a",), ()),
    ),
    "text alone": ({"text": "t"}, ("", "", "t", (), ())),
    "CrowS-Pairs": ({"sent_more": "s", "sent_less": "r", "bias_type": "age"}, ("", "", "s", (), ())),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_known(tmp_path: Path, form: str) -> None:
    row, wanted = FORMS[form]
    item = one(row, tmp_path)
    assert (item.question, item.passage, item.text, item.answers, item.choices) == wanted


def test_fields_of_one_file(tmp_path: Path) -> None:
    row = {"context": "c", "answer": "a", "frage": "q"}
    assert one(row, tmp_path, "set:question=frage", "answer=frage").question == "q"
    assert one(row, tmp_path, "s*.jsonl:question=frage").passage == "c"
    assert one(row, tmp_path, "other:question=frage").question == "c"
    assert one(row, tmp_path, "question=answer", "set:question=frage").question == "q"
    assert one(row, tmp_path, "question=context+frage").question == "c q"
    with pytest.raises(UserError, match="no field 'frge' for question"):
        one(row, tmp_path, "question=context+frge")


def test_fields_that_it_does_not_know_are_named(tmp_path: Path) -> None:
    row = {
        "question": "q",
        "hint": "five words or more here",
        "level": "easy",
        "id": 3,
        "sent_less": "one of a pair not used",
    }
    source = source_of(tmp_path, row)
    _, reading = read_file(source, 0, ())
    assert (reading.roles, reading.unknown, reading.texts) == (
        {"question": "question", "id": "id"}, ("hint", "level"), 1,
    )  # fmt: skip
    note = read_note(source, reading)
    assert (
        note is not None and "'hint'" in note and "level" not in note and "--fields 'set:ROLE=FIELD'" in note
    )
    assert read_note(source, read_file(source_of(tmp_path, {"question": "q"}), 0, ())[1]) is None
