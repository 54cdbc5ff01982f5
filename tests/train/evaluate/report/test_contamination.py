"""Figures with and without what the corpus holds, of items that share passages and of whole texts."""

from __future__ import annotations

import math
import random

import pytest

from corpusmill.schemas.evaluation import Item
from corpusmill.train.evaluate.report.contamination import Searched, compared


def test_passages_are_the_units_of_the_difference() -> None:
    """60 passages of 8 questions, every fourth passage in the corpus, which changes nothing: intervals of the difference hold 0 in 95 % of
    200 tasks."""
    outside = 0
    for seed in range(200):
        draw, items, searched = random.Random(seed), [], {}
        for passage in range(60):
            ease = draw.betavariate(0.6, 0.6)
            for number in range(8 * passage, 8 * passage + 8):
                right = float(draw.random() < ease)
                items.append(Item(id=str(number), cluster=str(passage), prompt="", metrics={"acc": right}))
                searched[str(number)] = Searched("", None, passage % 4 == 0, [])
        found = compared("task", "hash", items, searched)
        assert (found.searched, found.found) == (480, 120) and found.difference is not None
        assert found.difference.low is not None and found.difference.high is not None
        outside += not found.difference.low <= 0 <= found.difference.high
    assert outside <= 200 * 0.05 + 3 * 3.1


def test_bits_per_byte_are_those_of_all_texts_together() -> None:
    items = [
        Item(
            id=str(n), cluster=str(n), prompt="", choices=["x" * size], logprobs=[-bits * size * math.log(2)],
            metrics={"bits_per_byte": bits},
        )
        for n, (size, bits) in enumerate(((10, 8.0), (1000, 1.0), (20, 3.0), (500, 0.5), (7, 2.0)))
    ]  # fmt: skip
    searched = {item.id: Searched("", None, int(item.id) in (2, 3), []) for item in items}
    searched["4"] = Searched("", "too short", False, [])
    found = compared("text", "hash", items, searched)
    assert found.all and found.clean and found.contaminated and found.difference
    assert found.all.value == pytest.approx((80 + 1000 + 60 + 250 + 14) / 1537)
    assert found.clean.value == pytest.approx(1080 / 1010)
    assert found.contaminated.value == pytest.approx(310 / 520)
    assert found.difference.value == pytest.approx(310 / 520 - 1080 / 1010)
    assert (found.searched, found.not_searched) == (4, {"too short": 1})


def test_items_without_a_figure_of_their_own_are_counted() -> None:
    items = [Item(id=str(n), cluster=str(n), prompt="", generated="x", metrics={}) for n in range(6)]
    found = compared(
        "bleu", "hash", items, {item.id: Searched("", None, item.id < "3", []) for item in items}
    )
    assert (found.searched, found.found, found.metric) == (6, 3, "")
    assert (found.all, found.clean, found.difference) == (None, None, None)
