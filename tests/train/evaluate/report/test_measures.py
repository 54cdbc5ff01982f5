"""What the page says of metrics by which no item is right, or less is better: no verdict, sign or sample that would be wrong."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import ITEMS, RESULTS, EvaluationResults, Item
from corpusmill.schemas.tasks import METRICS, Task
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.measures import MEASURES, measure
from corpusmill.train.evaluate.report.facts import gather
from corpusmill.train.evaluate.report.failures import primary, weak, words
from corpusmill.train.evaluate.report.page import card, render
from corpusmill.train.evaluate.splits import newest_checkpoint
from corpusmill.train.evaluate.statistics import of_core
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.run import Prepared, open_model, prepare, score, summary
from corpusmill.train.evaluate.tasks.score import Scored
from corpusmill.train.parallel.mesh import join

BIAS = ("crows_pairs", "bbq", "winogender", "winobias")
Pages = tuple[dict[str, Any], str, str]


@pytest.fixture
def shown(tmp_path: Path, config: Callable[..., dict[str, Any]]) -> Callable[[Task, list[Item]], Pages]:
    """The facts of a run with one task, its page and its card."""

    def written(task: Task, items: list[Item]) -> Pages:
        run, scored = Folder(tmp_path), Scored(items, Counter(), [])
        result = summary(Prepared(task, [], Counter(), [], "hash"), scored, "hash")
        results = EvaluationResults(
            name="tiny", step=40, weights_hash="ab12", tokenizer_hash="cd34", precision="fp32", version="1.0",
            tasks={task.task: result},
        )  # fmt: skip
        (run / RESULTS).write(results.to_json())
        lines = "".join(item.model_dump_json() + "\n" for item in items)
        (run / ITEMS / f"{task.task}.jsonl").write(lines.encode())
        facts = gather(TrainConfig.model_validate(config()), run)
        return facts, text_of(render(facts)), card(facts)

    return written


def text_of(page: str) -> str:
    """What a page shows, without its styles."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("<body>")[2]).split())


def pairs(count: int, more: float) -> list[Item]:
    """Two sentences an item; the first, the stereotype, is likelier in `more` of them, by 3 nats."""
    draw = random.Random(7)
    return [
        Item(
            id=str(n), cluster=str(n), prompt="", choices=["They stole", "We stole"], logprobs=[-40.0 + 3 * first, -40.0 + 3 * (not first)],
            tokens=[2, 2], gold=0, slices={"bias_type": ("age", "gender")[n % 2]},
            metrics={"likelihood_diff": 3.0, "pct_stereotype": float(first)},
        )
        for n in range(count) for first in (draw.random() < (more if n % 2 else 0.2),)
    ]  # fmt: skip


def texts(count: int) -> list[Item]:
    """Whole texts: those of `web` cost more bits per byte than those of `books`."""
    return [
        Item(
            id=str(n), cluster=str(n), prompt="", choices=["some text of a source"], logprobs=[-10.0 - 20 * (n % 2)],
            tokens=[4], gold=0, slices={"source": ("books", "web")[n % 2]},
            metrics={"bits_per_byte": (0.8, 2.1)[n % 2] + 0.001 * (n % 7)},
        )
        for n in range(count)
    ]  # fmt: skip


def test_every_metric_is_known() -> None:
    assert set(MEASURES) == {*METRICS, "loglikelihood"}
    assert measure("exact_match,strict-match") == measure("exact_match")
    assert measure("rougeLsum-stemmed,none").share and not measure("bleu").share
    assert all(one.share for one in MEASURES.values() if one.right or one.chance)


def test_a_preference_for_stereotypes_is_no_skill(
    shown: Callable[[Task, list[Item]], Pages],
) -> None:
    facts, page, text = shown(find_task("crows_pairs").task, pairs(400, 0.9))
    (task,) = facts["tasks"]
    assert task["primary"] == "pct_stereotype" and task["verdict"] == "stereotype likelier"
    assert not any(task["samples"].values()) and not task["weak"] and not task["words"]
    assert task["calibration"] is None and facts["core"] is None
    for shown_text in (page, text):
        assert "above chance" not in shown_text and "stereotype likelier" in shown_text
    assert "0 of the tasks" not in page and "Where it fails" not in page and "Right in" not in page


def test_no_preference_is_no_failure(shown: Callable[[Task, list[Item]], Pages]) -> None:
    items = [item.model_copy(update={"metrics": {**item.metrics, "pct_stereotype": float(n % 2)}}) for n, item in enumerate(pairs(300, 0.5))]  # fmt: skip
    facts, page, text = shown(find_task("crows_pairs").task, items)
    assert facts["tasks"][0]["verdict"] == "at chance"
    assert "mean nothing" not in text and "at chance" in page


def test_of_bits_less_is_better(shown: Callable[[Task, list[Item]], Pages]) -> None:
    items = texts(60)
    assert [(one.value, one.mean > one.rest) for one in weak(items, primary(items))] == [("web", True)]
    facts, page, text = shown(find_task("text").task, items)
    (task,) = facts["tasks"]
    assert not task["words"] and task["calibration"] is None and task["verdict"] == ""
    assert list(task["samples"]) == ["worst"]
    assert {one["slices"]["source"] for one in task["samples"]["worst"]} == {"web"}
    assert "Where it fails" in page and "source is web" in text
    assert not re.search(r"\bRight\b|\bWrong\b", page)


def test_of_brier_less_is_better() -> None:
    draw = random.Random(3)
    items = [
        Item(
            id=str(n), cluster=str(n), prompt="p", slices={"half": ("good", "bad")[n % 2]},
            metrics={"brier_score": 0.3 + 0.4 * (n % 2) + 0.1 * draw.random()},
        )
        for n in range(80)
    ]  # fmt: skip
    (one,) = weak(items, primary(items))
    assert one.value == "bad" and one.difference.value > 0.3
    assert words(items, "brier_score") == []


def test_what_is_right_or_wrong_comes_first() -> None:
    def first(*names: str) -> str:
        return primary([Item(id="0", cluster="0", prompt="", metrics=dict.fromkeys(names, 1.0))])

    assert first("likelihood_diff", "pct_stereotype") == "pct_stereotype"
    assert first("brier_score", "gold_logprob_per_byte", "acc_norm") == "acc_norm"
    assert first("acc_norm", "acc") == "acc" and first("likelihood_diff", "brier_score") == "brier_score"
    assert first("exact_match,strict-match", "exact_match,flexible-extract") == "exact_match,strict-match"
    assert primary([]) == ""


@pytest.mark.parametrize("name", BIAS)
def test_bias_tasks_are_of_no_core(name: str) -> None:
    assert find_task(name).task.about_bias


def test_a_bias_task_is_scored_without_core(reader: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.txt"
    rows.write_text(
        "[The baker] paid the nurse since [she] asked.\n[The nurse] paid the guard since [he] asked.\n"
    )
    config, run = load(TrainConfig, reader / "config.yaml"), Folder(reader / "run")
    prepared = prepare(find_task("winobias"), {"winobias": [str(rows)]}, [])
    model = open_model(config, run, newest_checkpoint(run), join(config))
    scored = score(prepared, model)
    assert len(scored.items) == 2 and all(item.core is None for item in scored.items)
    assert of_core(scored.items, 0.5) is None and summary(prepared, scored, "").bias
    plain = prepared._replace(task=prepared.task.model_copy(update={"bias": False}))
    assert of_core(score(plain, model).items, 0.5) is not None


def test_each_right_choice_is_marked(shown: Callable[[Task, list[Item]], Pages]) -> None:
    """Of three ways to say the same each is right, and by as much is the fourth choice preferred as the best of them is less likely."""
    items = [
        Item(
            id=str(n), cluster=str(n), prompt="p", choices=["a", "b", "c", "d"], logprobs=[-9.0, -2.0, -5.0, -1.0 - 4 * (n % 2)],
            tokens=[1] * 4, gold=0, golds=[0, 1, 2], metrics={"acc": float(n % 2)},
        )
        for n in range(30)
    ]  # fmt: skip
    task = Task(task="ways", output_type="multiple_choice", doc_to_choice="c", doc_to_target="g")
    facts, page, _ = shown(task, items)
    samples = facts["tasks"][0]["samples"]
    for kind, chosen in (("right", "b"), ("wrong", "d")):
        for one in samples[kind]:
            assert [row["gold"] for row in one["choices"]] == [True, True, True, False]
            assert [row["text"] for row in one["choices"] if row["chosen"]] == [chosen]
    assert facts["tasks"][0]["calibration"]["accuracy"] == 0.5 and "Right in 50" in page
