"""Figures of classes by their definitions, and their intervals from items."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.schemas.evaluation import Item
from corpusmill.schemas.tasks import CLASSES, Task
from corpusmill.train.evaluate.tasks.metrics import confusion, of_counts
from corpusmill.train.evaluate.tasks.read import find_task, shipped
from corpusmill.train.evaluate.tasks.run import figures

GLUE = ("cola", "sst2", "mrpc", "qqp", "mnli", "qnli", "rte", "wnli", "cb", "copa", "wic", "multirc", "boolq")


def item(number: int, gold: int, chosen: int, classes: int) -> Item:
    sums = [-1.0 if n == chosen else -2.0 for n in range(classes)]
    return Item(
        id=str(number), cluster=str(number // 2), prompt="", choices=["a"] * classes, logprobs=sums, gold=gold,
        metrics={"acc": float(gold == chosen)},
    )  # fmt: skip


def by_definition(name: str, pairs: list[tuple[int, int]], classes: int) -> float:
    def ratio(a: float, b: float) -> float:
        return a / b if b else 0.0

    def f1(k: int) -> float:
        hit = sum(g == c == k for g, c in pairs)
        return ratio(2 * hit, sum(g == k for g, _ in pairs) + sum(c == k for _, c in pairs))

    if name == "precision":
        return ratio(sum(g == c == 1 for g, c in pairs), sum(c == 1 for _, c in pairs))
    if name == "recall":
        return ratio(sum(g == c == 1 for g, c in pairs), sum(g == 1 for g, _ in pairs))
    if name == "f1":
        return f1(1)
    if name == "macro_f1":
        return sum(map(f1, range(classes))) / classes
    # Matthews: the correlation of the indicators of all classes (Gorodkin 2004).
    gold, chosen = (np.eye(classes)[[pair[n] for pair in pairs]] for n in (0, 1))
    gold, chosen = gold - gold.mean(0), chosen - chosen.mean(0)
    return ratio(float((gold * chosen).sum()), float(np.sqrt((gold**2).sum() * (chosen**2).sum())))


@given(st.integers(2, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_equal_to_their_definitions(classes: int, pairs: list[tuple[int, int]]) -> None:
    pairs = [(gold % classes, chosen % classes) for gold, chosen in pairs]
    rows = confusion([item(n, *pair, classes) for n, pair in enumerate(pairs)])
    for name in CLASSES:
        (found,) = of_counts(name, rows.sum(0)[None])
        assert found == pytest.approx(by_definition(name, pairs, classes), abs=1e-9), name


def test_figures_have_intervals_and_clusters() -> None:
    draw = random.Random(2)
    items = [item(n, n % 2, n % 2 if draw.random() < 0.8 else 1 - n % 2, 2) for n in range(400)]
    task = Task(
        task="t", output_type="multiple_choice", doc_to_choice=["a", "b"], doc_to_target=0,
        metric_list=["acc", *CLASSES],
    )  # fmt: skip
    found = figures(task, items)
    assert list(found) == ["acc", *CLASSES]
    for name in CLASSES:
        one = found[name]
        assert one.low is not None and one.high is not None and one.low < one.value < one.high
        assert (one.method, one.n, one.clusters) == ("bootstrap", 400, 200)
    assert found["f1"].value == pytest.approx(0.8, abs=0.06) and found["mcc"].value == pytest.approx(
        0.6, abs=0.1
    )


def test_glue_and_superglue_are_shipped() -> None:
    assert set(GLUE) <= set(shipped())
    for name, metric in product(GLUE, ("acc", "gold_logprob_per_byte")):
        assert find_task(name).task.wants(metric), name
    assert {name for name in GLUE if find_task(name).task.wants("f1")} == {"sst2", "mrpc", "qqp", "multirc"}
    assert find_task("cola").task.wants("mcc") and find_task("cb").task.wants("macro_f1")
