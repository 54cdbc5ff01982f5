"""Two models by F1 and Matthews' correlation: the figures are those of the whole list, the intervals are paired."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import sacrebleu.metrics

from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import Item
from corpusmill.schemas.tasks import Task
from corpusmill.train.evaluate.compare.compare import compare_models
from corpusmill.train.evaluate.compare.lists import compared_lists
from corpusmill.train.evaluate.metrics.classification import classification
from corpusmill.train.evaluate.tasks.metrics import text_sums
from tests.train.evaluate.compare.test_compare import with_items


def labelled(place: Path, right: Sequence[int], chosen: Sequence[int]) -> str:
    items = [
        Item(
            id=str(n), cluster=str(n // 2), prompt="", choices=["no", "yes"], gold=gold,
            logprobs=[-1.0, -0.5] if label else [-0.5, -1.0], metrics={"acc": float(gold == label)},
        )
        for n, (gold, label) in enumerate(zip(right, chosen, strict=True))
    ]  # fmt: skip
    return with_items(place, "cola", items, ["acc", "mcc", "f1"])


def test_metrics_of_the_list_are_compared_by_the_paired_bootstrap(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    right = rng.integers(0, 2, 300)
    hard = rng.random(300) < 0.4
    chosen = [np.where(hard & (rng.random(300) < share), 1 - right, right) for share in (0.9, 0.5, 0.9, 0.85)]
    a, b, *more = (
        labelled(tmp_path / name, right.tolist(), labels.tolist())
        for name, labels in zip("abcd", chosen, strict=True)
    )
    found = compare_models([a], [b], metrics=["mcc"], detect=0.05)
    (row,) = found["rows"]
    known = [classification(labels.tolist(), right.tolist(), ["matthews"])["matthews"] for labels in chosen]
    assert (row["a"]["value"], row["b"]["value"]) == pytest.approx((known[0].value, known[1].value))
    d = row["difference"]
    assert d["value"] == pytest.approx(known[1].value - known[0].value)
    assert (d["method"], d["n"], d["clusters"], row["beyond_noise"]) == ("bootstrap", 300, 150, True)
    assert d["low"] < d["value"] < d["high"] and 0 < row["p"] < 0.01 and row["items_needed"] > 300
    # Paired: hard items are hard for both.
    assert d["se"] < 0.9 * math.hypot(known[0].se or 0, known[1].se or 0)
    same = compare_models([a], [a], metrics=["f1"])["rows"][0]
    assert (same["difference"]["value"], same["difference"]["low"], same["difference"]["high"]) == (0, 0, 0)
    assert (same["p"], same["beyond_noise"]) == (1, False)
    several = compare_models([a, *more], [b], metrics=["mcc"])["rows"][0]
    assert several["difference"]["method"] == "seeds" and several["difference"]["se"] > 0.9 * d["se"]
    assert several["a"]["value"] == pytest.approx(np.mean([known[n].value for n in (0, 2, 3)]))


def test_the_interval_holds_the_truth_and_one_cluster_has_none() -> None:
    """Two models of the same quality: of 300 experiments of 80 passages some 5 % find a difference."""
    rng, outside, beyond = np.random.default_rng(5), 0, 0
    for _ in range(300):
        right = rng.integers(0, 2, 160)
        hard = np.repeat(rng.random(80) < 0.4, 2)
        labels = [np.where(hard & (rng.random(160) < 0.7), 1 - right, right).tolist() for _ in range(2)]
        _, _, found = compared_lists(
            labels[:1], labels[1:], right.tolist(), "f1", np.repeat(np.arange(80), 2).tolist()
        )
        assert found.estimate.low is not None and found.estimate.high is not None and found.p is not None
        outside += not found.estimate.low <= 0 <= found.estimate.high
        beyond += found.p < 0.05
    assert outside <= 300 * 0.05 + 3 * 3.8 and beyond <= 300 * 0.05 + 3 * 3.8
    _, _, one = compared_lists([[1, 0]], [[1, 1]], [1, 1], "f1", ["a", "a"])
    assert (one.estimate.se, one.p) == (None, None) and one.estimate.value != 0


def translated(place: Path, texts: Sequence[str], references: Sequence[Sequence[str]]) -> str:
    """A run whose task has chrF and, of what stands before the first full stop, BLEU."""
    first = [{"name": "first", "filter": [{"function": "regex", "regex_pattern": "^[^.]*"}]}]
    keys = {"task": "t", "doc_to_target": "a", "metric_list": ["bleu", "chrf"], "filter_list": first}
    task = Task.model_validate(keys)
    items = [
        Item(
            id=str(n), cluster=str(n // 2), prompt="", generated=text, references=list(wanted), metrics={},
            sums=text_sums(task, text, wanted),
        )
        for n, (text, wanted) in enumerate(zip(texts, references, strict=True))
    ]  # fmt: skip
    return with_items(place, "translation", items, ["bleu", "chrf"])


def test_bleu_and_chrf_are_compared_by_the_paired_bootstrap(tmp_path: Path) -> None:
    """The figures are sacrebleu's, of the texts after their filter; the difference is that of the figures."""
    rng = np.random.default_rng(3)
    words = [f"w{n}" for n in range(60)]
    references = [[" ".join(rng.choice(words, 12))] for _ in range(80)]

    def noisy(share: float) -> list[str]:
        return [
            " ".join(rng.choice(words) if rng.random() < share else word for word in one[0].split())
            + ". More"
            for one in references
        ]

    texts = noisy(0.4), noisy(0.2), noisy(0.4)
    a, b, c = (translated(tmp_path / name, some, references) for name, some in zip("abc", texts, strict=True))
    rows = compare_models([a], [b], metrics=["bleu", "chrf"])["rows"]
    columns = [[one[0] for one in references]]
    for row, metric in zip(rows, (sacrebleu.metrics.BLEU(), sacrebleu.metrics.CHRF()), strict=True):
        own = [
            metric.corpus_score([text.partition(".")[0] for text in some], columns).score for some in texts
        ]
        assert (row["a"]["value"], row["b"]["value"]) == pytest.approx((own[0], own[1]))
        d = row["difference"]
        assert d["value"] == pytest.approx(own[1] - own[0]) and (d["method"], d["n"], d["clusters"]) == (
            "bootstrap", 80, 40,
        )  # fmt: skip
        assert d["low"] < d["value"] < d["high"] and row["p"] < 0.01 and row["beyond_noise"]
    same = compare_models([a], [a])["rows"]  # a task's first metric alone
    assert [(row["metric"], row["difference"]["value"], row["p"]) for row in same] == [("bleu", 0, 1)]
    several = compare_models([a, c], [b], metrics=["chrf"])["rows"][0]
    assert several["difference"]["method"] == "seeds"


def test_items_that_were_kept_without_their_sums_are_a_note(tmp_path: Path) -> None:
    items = [
        Item(id=str(n), cluster=str(n), prompt="", generated="x", references=["x"], metrics={})
        for n in range(9)
    ]
    a, b = (with_items(tmp_path / name, "translation", items, ["bleu"]) for name in "ab")
    with pytest.raises(UserError, match="^translation: not compared: its items have none of its metrics"):
        compare_models([a], [b])
