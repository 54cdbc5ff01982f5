"""Two models by F1 and Matthews' correlation: the figures are those of the whole list, the intervals are paired."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import Item
from corpusmill.train.evaluate.compare.compare import compare_models
from corpusmill.train.evaluate.compare.lists import compared_lists
from corpusmill.train.evaluate.metrics.classification import classification
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


def test_a_metric_of_all_texts_together_is_a_note(tmp_path: Path) -> None:
    items = [
        Item(id=str(n), cluster=str(n), prompt="", generated="x", references=["x"], metrics={})
        for n in range(9)
    ]
    a, b = (with_items(tmp_path / name, "translation", items, ["bleu"]) for name in "ab")
    with pytest.raises(UserError, match="^translation: not compared: its metrics are of all texts together"):
        compare_models([a], [b])
