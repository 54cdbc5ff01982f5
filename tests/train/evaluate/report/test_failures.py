"""A planted weakness is found, noise is not."""

from __future__ import annotations

import random
from typing import Any

from corpusmill.schemas.evaluation import Item
from corpusmill.train.evaluate.report.failures import primary, sliced, weak, words


def item(number: int, right: bool, prompt: str = "", **more: Any) -> Item:
    return Item.model_validate(
        {
            "id": str(number), "cluster": str(number), "prompt": prompt or f"question {number}",
            "metrics": {"acc_norm": 1.0, "acc": float(right)}, **more,
        }
    )  # fmt: skip


def test_a_planted_weakness_is_found_and_named() -> None:
    draw = random.Random(5)
    items = []
    for number in range(1200):
        subject = ("law", "art", "physics")[number % 3]
        right = draw.random() < (0.35 if subject == "physics" else 0.7)
        text = "an electron in the field" if subject == "physics" else "some painter and a judge"
        items.append(item(number, right, f"{text} {number:04}", slices={"subject": subject}))
    assert primary(items) == "acc"
    found = weak(items, "acc")
    assert [(one.kind, one.value) for one in found] == [("subject", "physics")]
    (one,) = found
    assert one.items == 400 and one.p < 1e-9
    low, high = one.difference.low, one.difference.high
    assert low is not None and high is not None and low < -0.35 < high < 0
    telling = {word.word for word in words(items, "acc")}
    assert {"electron", "field"} <= telling and not telling & {"painter", "judge"}


def test_noise_is_rarely_reported() -> None:
    """Holm holds the chance of any false report of a task at 5 %: of 300 tasks without a weakness at most 5 % + 3 SE."""
    false = 0
    for seed in range(300):
        draw = random.Random(seed)
        items = [
            item(n, draw.random() < 0.5, slices={"a": str(draw.randrange(8)), "b": str(draw.randrange(4))})
            for n in range(240)
        ]
        false += bool(weak(items, "acc"))
    assert false <= 300 * (0.05 + 3 * 0.0126)


def test_slices_of_an_item() -> None:
    items = [
        item(
            n,
            True,
            "x" * (10 * n + 10),
            choices=["a", "bbb", "cc"],
            gold=n % 3,
            slices={"s": "v", "none": ""},
        )
        for n in range(8)
    ]
    named = [dict(one) for one in sliced(items)]
    assert named[0] == {
        "s": "v", "length of the prompt": "under 30 characters", "place of the right choice": "1",
        "the right choice": "the shortest",
    }  # fmt: skip
    assert named[1]["the right choice"] == "the longest" and "the right choice" not in named[2]
    assert named[7]["length of the prompt"] == "70 characters or more"
    assert named[3]["length of the prompt"] == "30 to 49 characters"


def test_equal_prompts_have_no_quarters_and_few_items_no_slices() -> None:
    items = [item(n, n % 2 == 0, "same", slices={"half": str(n % 2)}) for n in range(18)]
    assert all(kind != "length of the prompt" for one in sliced(items) for kind, _ in one)
    assert weak(items, "acc") == [] and words(items[::2], "acc") == []


def test_all_wrong_against_all_right_is_found() -> None:
    items = [item(n, n % 2 == 0, "same", slices={"half": str(n % 2)}) for n in range(40)]
    (one,) = weak(items, "acc")
    assert (one.value, one.mean, one.rest, one.difference.value) == ("1", 0.0, 1.0, -1.0)
    assert one.difference.low == -1.0 and (one.difference.high or 0.0) < -0.7


def test_graded_metrics_are_compared_too() -> None:
    draw = random.Random(1)
    items = [
        Item(
            id=str(n), cluster=str(n), prompt="p", slices={"half": str(n % 2)},
            metrics={"f1": min(1.0, max(0.0, draw.gauss(0.6 - 0.3 * (n % 2), 0.2)))},
        )
        for n in range(200)
    ]  # fmt: skip
    (one,) = weak(items, primary(items))
    assert one.value == "1" and (one.difference.low or 0.0) < -0.25 < (one.difference.high or 0.0) < 0


def test_several_right_choices_have_no_place() -> None:
    items = [item(n, True, choices=["a", "bbb", "cc"], gold=0, golds=[0, 2]) for n in range(4)]
    assert [dict(one) for one in sliced(items)] == [{}] * 4
