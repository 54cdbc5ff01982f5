"""A planted weakness is found, noise is not."""

from __future__ import annotations

import random
from typing import Any

from corpusmill.schemas.evaluation import Item
from corpusmill.train.evaluate.report.failures import primary, sliced, weak, words
from corpusmill.train.evaluate.statistics import apart


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


def test_questions_about_one_passage_are_no_independent_witnesses() -> None:
    """60 passages of 8 questions, passages hard or easy by chance; slices are of passages or of questions. Without a weakness Holm holds
    5 % of tasks here too, and the intervals of a difference of passages hold 0 in 95 % of them."""
    false = outside = 0
    for seed in range(200):
        draw = random.Random(seed)
        items = []
        for passage in range(60):
            ease, topic = draw.betavariate(0.6, 0.6), str(draw.randrange(6))
            items += [
                item(
                    8 * passage + n, draw.random() < ease, cluster=f"passage {passage}",
                    slices={"topic": topic, "kind": str(draw.randrange(4))},
                )
                for n in range(8)
            ]  # fmt: skip
        false += bool(weak(items, "acc"))
        sides = [[one for one in items if (int(one.id) < 80) == inside] for inside in (True, False)]
        (a, b), names = (
            [[one.metrics["acc"] for one in side] for side in sides],
            [[one.cluster for one in side] for side in sides],
        )
        found = apart(a, b, (names[0], names[1])).estimate
        assert found.low is not None and found.high is not None and found.method == "clustered"
        outside += not found.low <= 0 <= found.high
    assert false <= 200 * 0.05 + 3 * 3.1 and outside <= 200 * 0.05 + 3 * 3.1


def test_a_planted_weakness_is_found_among_passages() -> None:
    draw, items = random.Random(2), []
    for passage in range(90):
        hard = passage % 3 == 0
        ease = draw.betavariate(2, 2) * (0.4 if hard else 1.0) + (0.0 if hard else 0.1)
        slices = {"topic": "law" if hard else "art", "half": str(passage % 2)}
        items += [
            item(8 * passage + n, draw.random() < ease, cluster=str(passage), slices=slices) for n in range(8)
        ]
    (one,) = weak(items, "acc")
    assert one.value == "law" and (one.difference.n, one.difference.clusters) == (720, 90)


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
