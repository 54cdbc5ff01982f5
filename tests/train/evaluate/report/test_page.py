"""The page and the card of an evaluation: figures as they are in its files, hostile texts shown as text, in a real browser."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree
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
from corpusmill.schemas.fairness import (
    FAIRNESS,
    ClassifierError,
    FairnessResults,
    Figure,
    Gap,
    ItemBias,
    PromptGroup,
    TermGap,
    TextGroup,
    Toxicity,
)
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
    row["unigram_source"], row["interval"] = None, between(1.05, 1.082, 1.11).model_dump()
    row["ngrams"] = {"all": {"bigram": figures(4000.0, 1000, 4000)}}
    splits = {
        "name": "tiny", "step": 40, "sources": {"books": row}, "all_sources": row, "ngrams": {}, "window": 64, "stride": 16,
        "macro": {"sources": 1, "interval": row["interval"]},
    }  # fmt: skip
    (folder / EVALUATION).write(json.dumps(splits).encode())
    found = ContaminatedTask(
        task="mmlu", task_hash="c0ffee", metric="acc", searched=90, not_searched={"too short": 110}, found=2, all=tasks[0][0].metrics["acc"], clean=None, contaminated=None,
        difference=None, documents=[TrainedDocument(item=HOSTILE, doc_id="f00d" * 8, source="books", share=0.875)],
    )  # fmt: skip
    beside = ContaminationResults(weights_hash="ab12", report="out", ngram=13, threshold=0.5, tasks=[found])
    (folder / CONTAMINATION).write(beside.model_dump_json().encode())
    share = Figure(estimate=tasks[0][0].metrics["acc"], chance=0.5, beyond_chance=True)
    by = {
        "age": {
            "likelihood_diff": Figure(estimate=between(0.48, 0.51, 0.54), chance=0.5, beyond_chance=False)
        }
    }
    bias = ItemBias(
        kind="crows_pairs", items=1508, overall={"pct_stereotype": share}, slices=by, findings=[f"a preference {HOSTILE}"], notes=["old"]
    )  # fmt: skip
    (folder / FAIRNESS).write(fairness(bias).to_json())
    (folder / "plan.json").write(json.dumps({"sources": {"books": {"tokens": 5}}}).encode())
    return folder


def between(low: float, value: float, high: float, n: int = 1508, clusters: int = 0) -> Estimate:
    return Estimate(value=value, se=0.1, low=low, high=high, n=n, clusters=clusters or n, method="clt")


def fairness(task: ItemBias) -> FairnessResults:
    """With one of everything; figures that differ from each other, so that each can be found on the page."""
    gap = Gap(
        groups={"cats": between(2.1, 2.2, 2.3, 48, 12), "dogs": between(2.4, 2.5, 2.65, 48, 12)},
        against_others={"cats": between(-0.4, -0.3, -0.2, 48, 12), "dogs": between(-0.1, 0.3, 0.7, 48, 12)},
        lowest="cats", highest="dogs", gap=between(0.21, 0.31, 0.44, 48, 12), ratio=between(1.1, 1.2, 1.3, 48, 12),
        chance=0.0725, p=0.0004,
    )  # fmt: skip
    after = gap.model_copy(update={"gap": between(0.011, 0.017, 0.029, 48, 12), "p": 0.41})
    group = PromptGroup(
        prompts=8, mean=between(0.0811, 0.0911, 0.1111, 8), expected_maximum=between(0.3, 0.35, 0.41, 8),
        above=between(0.01, 0.02, 0.05, 8), any_above=between(0.1, 0.25, 0.6, 8), amplification=between(-0.02, 0.01, 0.05, 8),
    )  # fmt: skip
    error = ClassifierError(
        name=HOSTILE, texts=99, positives=9, precision=0.871, recall=None, false_positive_rate=0.125
    )
    toxic = Toxicity(
        samples=25, available=194, max_tokens=20, temperature=1.0, top_p=0.9, seed=0, threshold=0.5, model="m.ftz",
        label="toxic", errors=[error], overall=group, groups={HOSTILE: group}, finding=f"none {HOSTILE}",
        disparity={"animal": {"cats": between(0.001, 0.003, 0.007, 4), "dogs": between(-0.007, -0.003, 0.001, 4)}},
    )  # fmt: skip
    text = TextGroup(texts=17, bytes=5000, bits_per_byte=between(1.7, 1.775, 1.9, 17))
    return FairnessResults(
        name="tiny", step=40, weights_hash="ab12", tokenizer_hash="cd34", precision="fp32", tasks={"crows_pairs": task},
        terms={"animal": TermGap(templates=12, whole=gap, after=after, finding="animal: gap")},
        sources={"books": text}, texts={f"north {HOSTILE}": text}, toxicity=toxic,
    )  # fmt: skip


def table_of(page: str, title: str) -> list[list[str]]:
    """The rows of the table of the section on bias whose first heading is `title`, as texts."""
    section = ElementTree.fromstring(
        page[page.index('<section id="bias">') : page.index('<section id="measured">')]
    )
    for table in section.iter("table"):
        rows = [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in table.iter("tr")]
        if rows[0][0] == title:
            return rows
    raise AssertionError(f"no table {title}")


def test_each_bias_figure_has_its_interval_its_number_and_what_chance_gives(run: Folder, config: Any) -> None:
    write(TrainConfig.model_validate(config()), run)
    page = (run / PAGE).read().decode().replace("<wbr>", "")
    [heading, row] = table_of(page, "Of all items")
    assert heading == ["Of all items", "Figure", "Items", "Without a preference"]
    assert row[0] == "pct_stereotype" and row[1].endswith("beyond chance") and row[2:] == ["200", "0.5"]
    [_, row] = table_of(page, "age")
    assert row == ["likelihood_diff", "0.5100 ± 0.0300at chance", "1,508", "0.5"]
    [heading, whole, after] = table_of(page, "Bits per byte of the highest group less the lowest")
    assert heading[2] == "Templates"
    assert whole == [
        "animal, whole sentencesdogs less cats, p < 0.001", "0.3100 (0.2100 to 0.4400)beyond chance", "12", "up to 0.0725"
    ]  # fmt: skip
    assert after[0].endswith("p = 0.41") and after[1] == "0.0170 (0.0110 to 0.0290)at chance"
    [_, cats, dogs, less, more, ratio] = table_of(page, "animal, whole sentences: bits per byte")
    assert cats == ["cats", "2.2000 ± 0.1000", "12", ""] and dogs[1] == "2.5000 (2.4000 to 2.6500)"
    assert less == ["cats, less the others", "-0.3000 ± 0.1000beyond chance", "12", "0"]
    assert more[1] == "0.3000 ± 0.4000at chance" and ratio[:2] == ["dogs over cats", "1.2000 ± 0.1000"]
    assert table_of(page, "Bits per byte") == [
        ["Bits per byte", "Figure", "Documents"], ["books", "1.7750 (1.7000 to 1.9000)", "17"]
    ]  # fmt: skip
    overall = table_of(page, "Of all prompts")
    assert [row[2] for row in overall] == ["Prompts", "8", "8", "8", "8", "8"]
    assert overall[1][1] == "0.0911 (0.0811 to 0.1111)" and overall[5][1].endswith("at chance")
    [_, cats, dogs] = table_of(page, "animal: toxicity less that of the other groups")
    assert cats[1:] == ["0.0030 (0.0010 to 0.0070)beyond chance", "4", "0"] and dogs[1].endswith("at chance")
    assert (
        "25 continuations of each of 8 of 194 prompts" in page and "recall –, false positives 0.125" in page
    )


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


def test_contamination_of_other_items_is_not_shown(run: Folder, config: Any) -> None:
    """The same weights on more items of the task, or on other data of its name: what was found is of the former ones."""
    settings = TrainConfig.model_validate(config())
    assert gather(settings, run)["contamination"]["tasks"][0]["not_searched"] == {"too short": 110}
    write(settings, run)
    assert "110 too short" in (run / PAGE).read().decode()
    (run / RESULTS).write((run / RESULTS).read().replace(b'"task_hash":"c0ffee"', b'"task_hash":"decaf"', 1))
    assert gather(settings, run)["contamination"] == {}


def test_the_card_has_the_figures_and_quotes_no_item(run: Folder, config: Any) -> None:
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
    few = {"value": 12.34, "low": None, "high": None}
    assert interval(few) == "12.3 (too few items for an interval)" and figure(float("nan")) == "–"
