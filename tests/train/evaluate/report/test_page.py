"""The page and the card of an evaluation: figures as they are in its files, hostile texts shown as text, in a real browser."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import (
    CONTAMINATION,
    ITEMS,
    RESULTS,
    ContaminatedTask,
    ContaminationResults,
    Estimate,
    EvaluationResults,
    Item,
    TaskResult,
    TrainedDocument,
)
from corpusmill.schemas.fairness import FAIRNESS, FairnessResults, Figure, ItemBias
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.report.facts import core, gather, verdict
from corpusmill.train.evaluate.report.page import CARD, PAGE, figure, interval, write
from corpusmill.train.evaluate.splits import EVALUATION, figures
from tests.browser import check_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)"> \u202egnp.exe'


def estimate(values: list[float]) -> Estimate:
    mean = sum(values) / len(values)
    se = (mean * (1 - mean) / len(values)) ** 0.5
    return Estimate(
        value=mean,
        se=se,
        low=mean - 1.96 * se,
        high=mean + 1.96 * se,
        n=len(values),
        clusters=len(values),
        method="clt",
    )


def task(
    name: str, right: float, chance: float | None = 0.25, count: int = 200
) -> tuple[TaskResult, list[Item]]:
    draw = random.Random(name)
    items = []
    for number in range(count):
        subject = ("law", "<b>art</b>")[number % 2]
        is_right = draw.random() < (right if subject == "law" else right / 3)
        sums = [-3.0 - draw.random() for _ in range(4)]
        gold = number % 4
        sums[gold if is_right else (gold + 1) % 4] = -0.5
        items.append(
            Item(
                id=f"{name}-{number}", cluster=f"{name}-{number}", slices={"subject": subject},
                prompt=f"{HOSTILE} question {number}", choices=[f"{HOSTILE} {n}" for n in range(4)], logprobs=sums,
                tokens=[2] * 4, greedy=[False] * 4, gold=gold, metrics={"acc": float(is_right)}, core=is_right,
            )
        )  # fmt: skip
    by = {
        value: {"acc": estimate([i.metrics["acc"] for i in items if i.slices["subject"] == value])}
        for value in ("law", "<b>art</b>")
    }
    result = TaskResult(
        task=name, task_hash="c0ffee", items=count, fewshot=5, chance=chance, slices={"subject": by},
        metrics={"acc": estimate([item.metrics["acc"] for item in items])}, skipped={"label is 7": 2}, notes=[HOSTILE],
    )  # fmt: skip
    return result, items


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    tasks = [task("mmlu", 0.9), task("a" * 90, 0.37), task("open", 0.2, None)]
    results = EvaluationResults(
        name="tiny", step=40, weights_hash="ab12", tokenizer_hash="cd34", precision="fp32", version="1.0",
        tasks={result.task: result for result, _ in tasks},
    )  # fmt: skip
    (folder / RESULTS).write(results.model_dump_json().encode())
    for result, items in tasks:
        lines = "".join(item.model_dump_json() + "\n" for item in items)
        (folder / ITEMS / f"{result.task}.jsonl").write(lines.encode())
    row = {
        "tokens": 1000,
        "bytes": 4000,
        **figures(3000.0, 1000, 4000),
        "unigram": figures(5000.0, 1000, 4000),
    }
    row["unigram_source"] = None
    row["ngrams"] = {"all": {"bigram": figures(4000.0, 1000, 4000)}}
    splits = {"name": "tiny", "step": 40, "sources": {"books": row}, "all_sources": row, "ngrams": {}}
    (folder / EVALUATION).write(json.dumps(splits).encode())
    found = ContaminatedTask(
        task="mmlu", metric="acc", searched=90, found=2, all=tasks[0][0].metrics["acc"], clean=None, contaminated=None,
        difference=None, documents=[TrainedDocument(item=HOSTILE, doc_id="f00d" * 8, source="books", share=0.875)],
    )  # fmt: skip
    beside = ContaminationResults(weights_hash="ab12", report="out", ngram=13, threshold=0.5, tasks=[found])
    (folder / CONTAMINATION).write(beside.model_dump_json().encode())
    share = Figure(estimate=tasks[0][0].metrics["acc"], chance=0.5, beyond_chance=True)
    bias = ItemBias(
        kind="crows_pairs", items=1508, overall={"pct_stereotype": share}, findings=[f"a preference {HOSTILE}"], notes=["old"]
    )  # fmt: skip
    fair = FairnessResults(
        name="tiny", step=40, weights_hash="ab12", tokenizer_hash="cd34", precision="fp32", tasks={"crows_pairs": bias},
    )  # fmt: skip
    (folder / FAIRNESS).write(fair.to_json())
    (folder / "plan.json").write(json.dumps({"sources": {"books": {"tokens": 5}}}).encode())
    return folder


@pytest.mark.browser
def test_the_page_in_a_browser(run: Folder, tmp_path: Path, config: Any, browser: Browser) -> None:
    settings = TrainConfig.model_validate(config())
    write(settings, run)
    page = (run / PAGE).read().decode()
    assert "<script" not in page and "<img" not in page and "<b>art" not in page and "U+202E" in page
    assert "1.082" in page and "1.443" in page  # 3 and 4 nats a token of 4 bytes, in bits
    assert "f00d" * 8 in page and "87.5" in page and "pct_<wbr>stereotype" in page and "beyond chance" in page
    before = page
    write(settings, run)
    assert (run / PAGE).read().decode() == before
    check_page(browser, tmp_path / PAGE)


def test_figures_of_the_page(run: Folder, config: Any) -> None:
    facts = gather(TrainConfig.model_validate(config()), run)
    mmlu, near, open_ = facts["tasks"]
    assert mmlu["verdict"] == "above chance" and near["verdict"] == "at chance" and open_["verdict"] == ""
    assert mmlu["weak"][0]["value"] == "<b>art</b>"
    values = [(one["result"]["metrics"]["acc"]["value"] - 0.25) / 0.75 for one in (mmlu, near)]
    values.append(open_["result"]["metrics"]["acc"]["value"])  # without a chance level: of 0
    assert facts["core"]["value"] == pytest.approx(sum(values) / 3) and facts["core"]["tasks"] == 3
    for kind, is_right in (("right", True), ("wrong", False), ("surely wrong", False)):
        for one in mmlu["samples"][kind]:
            assert {c["gold"] for c in one["choices"] if c["chosen"]} == {is_right}


def test_the_card_has_the_figures_and_no_text_of_a_task(run: Folder, config: Any) -> None:
    from ruamel.yaml import YAML

    write(TrainConfig.model_validate(config()), run)
    text = (run / CARD).read().decode()
    _, front, body = text.split("---\n", 2)
    index = YAML(typ="safe").load(front)["model-index"]
    results = json.loads((run / RESULTS).read())["tasks"]
    named = {one["dataset"]["name"]: one["metrics"][0]["value"] for one in index[0]["results"]}
    assert named == {name: round(one["metrics"]["acc"]["value"], 6) for name, one in results.items()}
    assert "question" not in body and "alert" not in body and "1.082" in body
    assert f"means nothing: {'a' * 90}" in body.replace("mean nothing", "means nothing")


def test_without_tasks_or_without_anything(run: Folder, tmp_path: Path, config: Any) -> None:
    settings = TrainConfig.model_validate(config())
    (tmp_path / RESULTS).unlink()
    write(settings, run)
    assert 'id="tasks"' not in (run / PAGE).read().decode()
    with pytest.raises(UserError, match="corpusmill evaluate"):
        write(settings, Folder(tmp_path / "empty"))


def test_damage_is_named(run: Folder, tmp_path: Path, config: Any) -> None:
    settings = TrainConfig.model_validate(config())
    file = run / ITEMS / "mmlu.jsonl"
    file.write(file.read().replace(b'"id":"mmlu-2"', b'"id":2', 1))
    with pytest.raises(UserError, match="mmlu.jsonl: line 3: not a Item: id"):
        write(settings, run)
    (run / RESULTS).write(b'{"name": "x"}')
    with pytest.raises(UserError, match="step"):
        write(settings, run)
    (run / EVALUATION).write(b"{")
    (tmp_path / RESULTS).unlink()
    with pytest.raises(UserError, match=EVALUATION):
        write(settings, run)


def test_core_is_the_mean_above_chance() -> None:
    def items(right: int, count: int) -> list[Item]:
        return [
            Item(id=str(n), cluster=str(n), prompt="", metrics={}, core=None if right < 0 else n < right)
            for n in range(count)
        ]

    found = core([(items(25, 100), 0.25), (items(30, 40), 0.5), (items(-1, 9), None), (items(3, 10), None)])
    assert found and found["value"] == pytest.approx((0 + 0.5 + 0.3) / 3) and found["tasks"] == 3
    errors = [(0.25 * 0.75 / 99) ** 0.5 / 0.75, (0.75 * 0.25 / 39) ** 0.5 / 0.5, (0.3 * 0.7 / 9) ** 0.5]
    assert found["se"] == pytest.approx(sum(e * e for e in errors) ** 0.5 / 3)
    assert core([(items(-1, 5), 0.5)]) is None


def test_words_and_numbers() -> None:
    found = Estimate(value=0.5, se=0.1, low=0.3, high=0.7, n=9, clusters=9, method="clt")
    assert verdict(found, 0.5) == "at chance" and verdict(found, 0.2) == "above chance"
    assert verdict(found, 0.8) == "below chance" and verdict(found, None) == "" and verdict(None, 0.5) == ""
    assert interval(found.model_dump()) == "0.5000 ± 0.2000"
    assert interval({"value": 0.9, "low": 0.6, "high": 0.95}) == "0.9000 (0.6000 to 0.9500)"
    assert interval({"value": 12.34, "low": None, "high": None}) == "12.3" and figure(float("nan")) == "–"
