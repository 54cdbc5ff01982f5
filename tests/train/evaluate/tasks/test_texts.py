"""Metrics of generated texts as metrics of tasks: BLEU, chrF, ROUGE and METEOR as `corpusmill score` computes them, numbers, and the
shipped task of arithmetic."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import ITEMS, Item
from corpusmill.schemas.tasks import Task
from corpusmill.train.evaluate.metrics import texts as library
from corpusmill.train.evaluate.metrics.files import score_texts
from corpusmill.train.evaluate.tasks import score as scoring
from corpusmill.train.evaluate.tasks.metrics import text_metrics, text_sums
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.run import figures, prepare
from tests.train.evaluate.metrics.test_texts import corpus
from tests.train.test_commands import command

NAMES = ["bleu", "chrf", "chrf++", "rouge", "rouge-stemmed", "meteor"]


@pytest.fixture
def run(reader: Path, tmp_path: Path) -> Path:
    shutil.copytree(reader, tmp_path / "reader")
    return tmp_path / "reader/run"


def task(*metrics: str, **keys: Any) -> Task:
    return Task.model_validate({"task": "t", "doc_to_target": "a", "metric_list": list(metrics), **keys})


def items_of(one: Task, found: Sequence[str], references: Sequence[Sequence[str]]) -> list[Item]:
    return [
        Item(
            id=str(number), cluster=str(number // 2), prompt="", generated=text, references=list(wanted),
            metrics=text_metrics(one, text, wanted), sums=text_sums(one, text, wanted),
        )
        for number, (text, wanted) in enumerate(zip(found, references, strict=True))
    ]  # fmt: skip


def test_figures_are_those_of_score(tmp_path: Path) -> None:
    found, references = corpus()
    file = tmp_path / "texts.jsonl"
    rows = [
        {"text": text, "references": wanted, "cluster": str(number // 2)}
        for number, (text, wanted) in enumerate(zip(found, references, strict=True))
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    one = task(*NAMES)
    wanted = score_texts(str(file), NAMES)["metrics"]
    got = figures(one, items_of(one, found, references))
    assert {name: value.model_dump() for name, value in got.items()} == wanted
    assert {"bleu", "chrf++", "rougeL", "rougeLsum-stemmed", "meteor"} <= set(got)
    assert all(value.low is not None and value.low < value.value for value in got.values())


def test_filters_come_before_the_metrics() -> None:
    steps = [
        {"name": "short", "filter": [{"function": "regex", "regex_pattern": "^[^.]*"}]},
        {"name": "all", "filter": []},
    ]
    one = task("bleu", "meteor", filter_list=steps)
    found = figures(
        one, items_of(one, ["the cat sat on a mat. And so on"] * 4, [["the cat sat on a mat"]] * 4)
    )
    assert set(found) == {"bleu,short", "bleu,all", "meteor,short", "meteor,all"}
    assert found["bleu,short"].value == pytest.approx(100) and found["bleu,all"].value < 90


def test_a_task_of_texts_has_its_signatures(run: Path, tmp_path: Path) -> None:
    rows = [{"q": f"Say {n}", "a": [f"It is {n}.", f"{n}"][: 1 + n % 2]} for n in range(4)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "own.yaml").write_text(
        "task: own\ndata: own.jsonl\ndoc_to_text: q\ndoc_to_target: a\nmetric_list: [bleu, chrf]\n"
        "generation_kwargs: {max_gen_toks: 8}\nslices: {n: row_number}\n"
    )
    options = ("evaluate", str(run), "--tasks", str(tmp_path / "own.yaml"))
    found = json.loads(command(*options, "--json"))["tasks"]["own"]
    assert set(found["metrics"]) == {"bleu", "chrf"} == set(found["slices"]["n"]["0"])
    assert any(note.startswith("bleu: nrefs:var|case:mixed|eff:no|tok:13a|") for note in found["notes"])
    assert any(note.startswith("chrf: nrefs:var|") for note in found["notes"])
    assert "nrefs:var" in command(*options).replace("\n", "")
    assert (run / "evaluation.html").exists()


def test_a_library_that_is_not_installed_is_named_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before texts are generated."""

    def missing(name: str) -> Any:
        raise ImportError(name)

    (tmp_path / "own.jsonl").write_text('{"q": "a", "a": "b"}\n')
    (tmp_path / "own.yaml").write_text(
        "task: own\ndata: own.jsonl\ndoc_to_text: q\ndoc_to_target: a\nmetric_list: [bleu]\n"
    )
    monkeypatch.setattr(library.importlib, "import_module", missing)
    with pytest.raises(UserError, match=r"sacrebleu is not installed: pip install 'corpusmill\[metrics\]'"):
        prepare(find_task(str(tmp_path / "own.yaml")), {}, [])


def test_numbers_are_compared_by_value() -> None:
    one = task("number_flexible", "number_strict")
    assert text_metrics(one, "so it is 1,000.0", ["1000"]) == {"number_flexible": 1.0, "number_strict": 0.0}
    assert text_metrics(one, "#### 7 or 8", ["#### 7"]) == {"number_flexible": 0.0, "number_strict": 1.0}
    with pytest.raises(ValueError, match="number_flexible is not defined for output_type multiple_choice"):
        task("number_flexible", output_type="multiple_choice", doc_to_choice=["a", "b"])


def test_arithmetic_is_a_shipped_task(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "arithmetic.jsonl"
    data.write_text(command("arithmetic", "--count", "4", "--digits", "1", "--digits", "2"))
    options = ("evaluate", str(run), "--tasks", "arithmetic", "--data", f"arithmetic={data}", "--json")
    found = json.loads(command(*options))["tasks"]["arithmetic"]
    assert found["items"] == 24 and set(found["metrics"]) == {"number_flexible"}
    assert set(found["slices"]["operation"]) == {"addition", "subtraction", "multiplication"}
    assert (
        set(found["slices"]["digits"]) == {"1", "2"}
        and found["metrics"]["number_flexible"]["low"] is not None
    )
    items = [
        Item.model_validate_json(line) for line in (run / ITEMS / "arithmetic.jsonl").read_text().splitlines()
    ]
    assert items[0].prompt.endswith(" =") and len({item.id for item in items}) == 24
    # A model that computes is right, whatever it writes after the number; one that is off by one is not.
    answers = {
        json.loads(line)["question"]: json.loads(line)["answer"] for line in data.read_text().splitlines()
    }
    for off, right in ((0, 1.0), (1, 0.0)):

        def computed(opened: Any, prompts: Sequence[list[int]], *_: Any, off: int = off) -> list[str]:
            written = [opened.tokenizer.decode(prompt) for prompt in prompts]
            return [f" {int(answers[text.splitlines()[-1]]) + off:,}. And 5 + 5 = 10" for text in written]

        monkeypatch.setattr(scoring, "texts", computed)
        shutil.rmtree(run / "evaluation")
        found = json.loads(command(*options, "--num-fewshot", "2"))["tasks"]["arithmetic"]
        assert found["metrics"]["number_flexible"]["value"] == right and found["fewshot"] == 2
