"""A task's items in the corpus: `decontaminate` finds them, `contamination` gives the figures with and without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpusmill.common.config import load
from corpusmill.schemas.evaluation import (
    CONTAMINATION,
    ITEMS,
    RESULTS,
    ContaminationResults,
    EvaluationResults,
    Item,
)
from corpusmill.schemas.training import TrainConfig
from tests.conftest import ROOT
from tests.e2e.cli import corpusmill

FILLER = "The harbour was built in the year of the great frost, and its walls are of grey stone. "


def item(number: int, right: bool) -> Item:
    question = (
        f"In village {number} the miller of a{number} counts b{number} sacks of rye before c{number} dawn and sells d{number} of"
        f" them at what e{number} price"
    )
    return Item(
        id=str(number), cluster=str(number), prompt=f"Question: {FILLER}\n\nQuestion: {question}", question=question,
        choices=[f"{number} pennies", "nothing"], answers=[f"{number} pennies"], gold=0, logprobs=[-1.0, -2.0], metrics={"acc": float(right)},
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """80 items of which every fourth is in a document, and known to the model; one is too short to be searched for, and a task has no
    item."""
    items = [item(n, n % 4 == 0 or n % 3 == 0) for n in range(80)]
    items.append(Item(id="short", cluster="short", prompt="Why?", question="Why?", metrics={"acc": 1.0}))
    results = {
        "name": "m", "step": 1, "weights_hash": "ab", "tokenizer_hash": "cd", "precision": "fp32", "version": "1",
        "tasks": {"mill": {
            "task": "mill", "task_hash": "ef", "items": 81, "fewshot": 1, "chance": 0.5, "metrics": {"acc": {
                "value": 0.5, "se": None, "low": None, "high": None, "n": 81, "clusters": 81, "method": "clt",
            }},
        }, "none": {"task": "none", "task_hash": "01", "items": 0, "fewshot": 0, "chance": None, "metrics": {}}},
    }  # fmt: skip
    folder = tmp_path / "train"
    (folder / ITEMS).mkdir(parents=True)
    (folder / ITEMS / "mill.jsonl").write_text("".join(one.model_dump_json() + "\n" for one in items))
    (folder / RESULTS).write_text(EvaluationResults.model_validate(results).model_dump_json())
    (folder / ITEMS / "none.jsonl").touch()
    config = load(TrainConfig, ROOT / "configs/train/quickstart.yaml")
    (folder / "config.json").write_text(config.model_dump_json())
    rows = [
        {"id": f"d{n}", "text": FILLER * 3 + (items[n].question if n % 4 == 0 else "")} for n in range(80)
    ]
    rows.append({"id": "twice", "text": f"{FILLER} {items[8].question.upper()}, {FILLER}"})
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_figures_without_what_the_corpus_holds(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("decontaminate", tmp_path / "docs.jsonl", out, "--against", run / ITEMS, "--action", "report")
    corpusmill(*command, "--workers", "0")
    printed = json.loads(corpusmill("contamination", run, out, "--json").stdout)
    assert printed == json.loads((run / CONTAMINATION).read_text())
    task, none = ContaminationResults.model_validate(printed).tasks
    assert (none.task, none.searched, none.all) == ("none", 0, None)
    assert task.all and task.clean and task.contaminated and task.difference
    assert (task.searched, task.found, task.all.n) == (80, 20, 81) and task.not_searched == {"too short": 1}
    # Without a quarter of them, every third of the rest is right.
    assert task.clean.value == pytest.approx(20 / 60) and task.contaminated.value == 1.0
    assert task.difference.value == pytest.approx(2 / 3) and (task.difference.low or 0) > 0.4
    named = {(one.item, one.share) for one in task.documents}
    assert named == {(str(n), 1.0) for n in range(0, 80, 4)}
    assert len([one for one in task.documents if one.item == "8"]) == 2
    shown = corpusmill("contamination", run, out).stdout
    assert task.documents[0].doc_id in shown and max(map(len, shown.splitlines())) <= 80
    (answer,) = json.loads(corpusmill("why", task.documents[0].doc_id, "--run", out, "--json").stdout)
    assert answer["outcome"] == "kept" and "mill#" in answer["detail"]


def test_a_report_of_other_items_is_refused(run: Path, tmp_path: Path) -> None:
    """Items are numbers of rows, so another file of the task, or the same one without a limit, has the same ids."""
    out = tmp_path / "out"
    corpusmill(
        "decontaminate", tmp_path / "docs.jsonl", out, "--against", run / ITEMS, "--action", "report", "--workers", "0"
    )  # fmt: skip
    file = run / ITEMS / "mill.jsonl"
    lines = file.read_text().splitlines()
    answered = [line.replace('"logprobs":[-1.0,-2.0]', '"logprobs":[-3.0,-2.0]') for line in lines]
    file.write_text("\n".join(answered[:40]))  # another model, on fewer of them
    corpusmill("contamination", run, out)
    for number, changed in (
        (1, [*lines, lines[-1].replace('"id":"short"', '"id":"new"')]),
        (
            2,
            [
                lines[0].replace("the miller", "a miller"),
                lines[1].replace('"gold":0', '"gold":1'),
                *lines[2:],
            ],
        ),
    ):
        file.write_text("\n".join(changed))
        failed = corpusmill("contamination", run, out, check=False)
        assert failed.returncode == 2 and len(failed.stderr.strip().splitlines()) == 1
        assert f"{number} of {len(changed)} items of task mill were not searched for" in failed.stderr


def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    failed = corpusmill("contamination", run, tmp_path / "nowhere", check=False)
    assert failed.returncode == 2 and "not the output of" in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    (run / RESULTS).unlink()
    failed = corpusmill("contamination", run, tmp_path / "nowhere", check=False)
    assert failed.returncode == 2 and "--tasks" in failed.stderr
