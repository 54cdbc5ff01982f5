"""Figures of classes of a task, with intervals; tasks of GLUE and SuperGLUE."""

from __future__ import annotations

import random
from itertools import product

import pytest

from corpusmill.schemas.evaluation import Item
from corpusmill.schemas.tasks import CLASSES, Task
from corpusmill.train.evaluate.tasks.data import Row
from corpusmill.train.evaluate.tasks.read import find_task, shipped
from corpusmill.train.evaluate.tasks.render import Renderer
from corpusmill.train.evaluate.tasks.run import figures

GLUE = (
    "cola",
    "sst2",
    "mrpc",
    "qqp",
    "mnli",
    "qnli",
    "rte",
    "wnli",
    "cb",
    "copa",
    "wic",
    "multirc",
    "boolq",
    "wsc",
    "record",
)


def item(number: int, gold: int, chosen: int, classes: int) -> Item:
    sums = [-1.0 if n == chosen else -2.0 for n in range(classes)]
    return Item(
        id=str(number), cluster=str(number // 2), prompt="", choices=["a"] * classes, logprobs=sums, gold=gold,
        metrics={"acc": float(gold == chosen)},
    )  # fmt: skip


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
    assert find_task("cola").task.wants("mcc") and find_task("cb").task.wants("f1_macro")


def test_record_is_asked_as_in_the_harness() -> None:
    """Whose file needs a module that transformers 5 no longer has: these are its functions, written out."""
    passage = (
        "Ann saw it. It's [here] {so}.\n@highlight\nThe port is Öland's\n@highlight\nBob's \"tea\" is 5\n"
    )
    row = {
        "passage": passage, "query": "Then @placeholder drank what Bob had.", "entities": ["the Bob", "Ann", "Öland", "ann", "Ann"],
        "answers": ["Öland", "Ann", "Öland"], "label": -1,
    }  # fmt: skip
    (question,) = Renderer(find_task("record").task).render([Row(0, row)], 1).questions
    first, *highlights = passage.strip().split("\n@highlight\n")
    assert question.prompt == first + "\n\n" + "".join(f"  - {one}.\n" for one in highlights)
    names = sorted(set(row["entities"]))
    assert question.texts == [f"  - Then {name} drank what Bob had." for name in names]
    assert [names[number] for number in question.golds] == ["Ann", "Öland"]
    assert question.continuations[0] == " " + question.texts[0] and question.cluster == passage
    assert not Renderer(find_task("record").task).render([Row(0, {**row, "answers": ["Eve"]})], 1).questions
