"""Questions with their own text perturbed and prompts in other formats; what `corpusmill robustness` makes of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.perturb import Perturbation, parse
from corpusmill.schemas.robustness import ROBUSTNESS, Robustness
from corpusmill.train.evaluate.tasks.perturb import Format, formats, perturbed
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.run import Prepared, prepare
from tests.train.evaluate.tasks.test_run import written
from tests.train.test_commands import command

TASK = """\
task: capitals
output_type: {kind}
doc_to_text: "Question: what is the capital of {{{{land}}}}?\\nAnswer:"
doc_to_target: {target}
{choices}
description: "Some questions.\\n"
num_fewshot: 1
metric_list: [{{metric: acc}}]
"""
LANDS = [
    ("France", "Paris"),
    ("Italy", "Rome"),
    ("Spain", "Madrid"),
    ("Norway", "Oslo"),
    ("Peru", "Lima"),
    ("Chad", "N'Djamena"),
]
NAMES = [name for _, name in LANDS]


@pytest.fixture
def run(reader: Path, tmp_path: Path) -> Path:
    shutil.copytree(reader, tmp_path / "reader")
    return tmp_path / "reader/run"


@pytest.fixture
def task(tmp_path: Path) -> tuple[Path, str]:
    """A task with choices, and its rows."""
    file = tmp_path / "capitals.yaml"
    file.write_text(
        TASK.format(kind="multiple_choice", target="right", choices=f"doc_to_choice: {json.dumps(NAMES)}")
    )
    rows = [{"land": land, "right": number, "id": str(number)} for number, (land, _) in enumerate(LANDS)] * 1
    return file, written(tmp_path / "capitals.jsonl", rows)


def prepared(task: tuple[Path, str]) -> Prepared:
    return prepare(find_task(str(task[0])), {"capitals": [task[1]]}, [])


def test_a_questions_own_text_alone_changes(task: tuple[Path, str]) -> None:
    plain = prepared(task)
    found = perturbed(plain, parse("typos:0.2"))
    for old, new in zip(plain.questions, found.questions, strict=True):
        start = len(old.prompt) - len(old.own)
        assert new.prompt[:start] == old.prompt[:start] and "Some questions.\nQuestion: " in new.prompt
        assert new.own != old.own and new.prompt.endswith(new.own) and set(new.contexts) == {new.prompt}
        assert (new.continuations, new.texts, new.golds) == (old.continuations, old.texts, old.golds)
    assert perturbed(plain, parse("typos:0")).questions == plain.questions
    assert perturbed(plain, parse("typos:0.2")).questions == found.questions
    both = perturbed(plain, parse("typos:0.5"), choices=True)
    for old, new in zip(plain.questions, both.questions, strict=True):
        assert new.texts != old.texts and new.continuations == [f" {text}" for text in new.texts]


def test_contexts_that_are_choices(tmp_path: Path) -> None:
    file = tmp_path / "pronouns.yaml"
    file.write_text(
        "task: pronouns\noutput_type: schema\ndoc_to_text: right\ndoc_to_choice: [one, two]\ndoc_to_target: rest\n"
        "description: 'Which one? '\nmetric_list: [{metric: acc}]\n".replace(
            "[one, two]", '["{{one}}", "{{two}}"]'
        )
    )
    rows = [{"one": "The trophy itself", "two": "The suitcase itself", "rest": "is too big.", "right": 0}]
    plain = prepare(find_task(str(file)), {"pronouns": [written(tmp_path / "rows.jsonl", rows)]}, [])
    (old,), (new,) = plain.questions, perturbed(plain, parse("case:0.5")).questions
    assert [len(one) for one in new.contexts] == [
        len(one) for one in old.contexts
    ] and new.contexts != old.contexts
    assert all(one.startswith("Which one? ") for one in new.contexts)
    assert new.continuations == old.continuations


def test_the_drop_is_paired_by_item(run: Path, task: tuple[Path, str]) -> None:
    given = (
        "--tasks",
        str(task[0]),
        "--data",
        f"capitals={task[1]}",
        "--perturb",
        "typos:0.3",
        "--perturb",
        "case:0",
        "--formats",
        "6",
    )
    result = json.loads(command("robustness", str(run), *given, "--json"))
    assert result == json.loads((run / ROBUSTNESS).read_text())
    found = Robustness.model_validate(result).tasks[0]
    typos, nothing = found.perturbed
    assert (nothing.changed, typos.changed, typos.items) == (0, 6, 6)
    assert (
        nothing.metrics["acc"].difference.value == 0
        and nothing.metrics["acc"].perturbed == found.metrics["acc"]
    )
    drop = typos.metrics["acc"]
    assert drop.difference.value == pytest.approx(drop.perturbed.value - found.metrics["acc"].value)
    looks = found.formats
    assert looks and looks.formats[0] == "as it is" and len(looks.values) == 6
    assert looks.values[0] == found.metrics["acc"]
    values = [one.value for one in looks.values]
    assert looks.spread == max(values) - min(values) == values[looks.highest] - values[looks.lowest]
    shown = command("robustness", str(run), *given)
    assert "typos:0.3" in shown and "a spread of" in shown


def test_formats_keep_the_words(task: tuple[Path, str]) -> None:
    plain = prepared(task)
    found = formats(plain, 20)
    assert found[0][0] == Format() and found[0][1].questions == plain.questions and len(found) == 20
    assert len({each.questions[0].prompt for _, each in found}) == 20
    for one, each in found:
        words = each.questions[0].prompt.lower()
        assert "what is the capital of" in words, one
    made = Format(" -", " || ", "upper").apply("Question: a?\nAnswer:")
    assert made == "QUESTION - a? || ANSWER -"
    assert [one for one, _ in formats(plain, 20)] == [one for one, _ in found]


def test_what_cannot_be_perturbed(run: Path, task: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="nothing is changed: name a --perturb KIND:RATE, or --formats 2 or more"
    ):
        refused(run, task)
    with pytest.raises(UserError, match="no such kind; did you mean 'typos'"):
        refused(run, task, "--perturb", "typo:0.1")
    plain = prepared(task)
    bare = plain._replace(
        questions=[one._replace(prompt="a", contexts=["a"] * 6, own="a") for one in plain.questions]
    )
    with pytest.raises(UserError, match="have no label as `Question:` and no second line"):
        formats(bare, 4)
    whole = plain._replace(task=plain.task.model_copy(update={"output_type": "loglikelihood_rolling"}))
    with pytest.raises(UserError, match="scores the text itself"):
        perturbed(whole, Perturbation("case", 0.1))


def refused(run: Path, task: tuple[Path, str], *more: str) -> Any:
    from typer.testing import CliRunner

    from corpusmill.__main__ import build

    done = CliRunner().invoke(
        build(), ["robustness", str(run), "--tasks", str(task[0]), "--data", f"capitals={task[1]}", *more]
    )
    assert done.exception
    raise done.exception
