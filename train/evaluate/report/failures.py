"""Where a model fails: slices of a task's items that it does worse on than on the others (`measures` says which figures are
better), and words that wrong items have more often than right ones. What is no more than noise is left out.

A slice is compared with the rest of its task (`corpusmill.train.evaluate.statistics.apart`), with clusters as units where items share them; p
values are Holm's (1979) over all slices of the task. Words are ranked by log-odds with an informative Dirichlet prior (Monroe, Colaresi
and Quinn 2008).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from corpusmill.schemas.evaluation import Estimate, Item
from corpusmill.train.evaluate.measures import measure
from corpusmill.train.evaluate.statistics import apart, holm
from corpusmill.train.evaluate.stored import item_values

ALPHA = 0.05
LEAST = 10  # items of a slice, and of the rest
EXAMPLES = 2  # of a slice
QUARTERS = 4
PRIOR = 500.0  # words that the prior counts as much as
WORD = re.compile(r"[^\W\d_]{3,}")


class Slice(NamedTuple):
    """Items that share a value, their mean and that of the rest, and the difference; `p` after Holm; `examples`: some of its worst."""

    kind: str
    value: str
    items: int
    mean: float
    rest: float
    difference: Estimate
    p: float
    examples: Sequence[Item] = ()


class Word(NamedTuple):
    """A word in `wrong` of the wrong items and in `right` of the right ones; `z`: its log-odds in standard errors."""

    word: str
    wrong: int
    right: int
    z: float


def primary(items: Sequence[Item]) -> str:
    """The metric by which a task is judged: `acc` if there is one, else the first by which an item is right or wrong, else the first
    that a guess has a known value of, else the first of which more or less is better, else the first."""
    names = list(items[0].metrics) if items else []

    def rank(name: str) -> tuple[bool, ...]:
        one = measure(name)
        return name != "acc", not one.right, not one.chance, not one.better

    return min(names, key=rank, default="")


def weak(items: Sequence[Item], metric: str) -> list[Slice]:
    """Slices whose mean is worse than that of the rest beyond noise, worst first; none by a metric of which neither more nor less
    is better."""
    better = measure(metric).better
    members: dict[tuple[str, str], list[int]] = {}
    for number, named in enumerate(sliced(items)):
        for key in named:
            members.setdefault(key, []).append(number)
    found = []
    for (kind, value), places in sorted(members.items()):
        if LEAST <= len(places) <= len(items) - LEAST:
            inside = set(places)
            others = [number for number in range(len(items)) if number not in inside]
            both = [[items[number] for number in side] for side in (places, others)]
            own, rest = (item_values(side, metric) for side in both)
            names, other_names = ([item.cluster for item in side] for side in both)
            difference = apart(own, rest, (names, other_names))
            found.append((kind, value, len(own), float(own.mean()), float(rest.mean()), difference))
    adjusted = holm([1.0 if one.p is None else one.p for *_, one in found])
    slices = [
        Slice(kind, value, count, mean, other, one.estimate, p)
        for (kind, value, count, mean, other, one), p in zip(found, adjusted, strict=True)
    ]
    worse = [one for one in slices if one.p < ALPHA and better * one.difference.value < 0]
    return [
        one._replace(
            examples=worst([items[place] for place in members[one.kind, one.value]], metric, EXAMPLES)
        )
        for one in sorted(worse, key=lambda one: better * one.difference.value)
    ]


def shuffled(items: Sequence[Item]) -> list[Item]:
    """In the order of the hashes of their ids: the first ones are a fair sample."""
    return sorted(items, key=lambda item: hashlib.sha256(item.id.encode()).digest())


def worst(items: Sequence[Item], metric: str, most: int) -> list[Item]:
    """A fair sample of the wrong items; by a metric by which no item is right or wrong the worst ones, if more or less is better."""
    one, order = measure(metric), shuffled(items)
    if one.right:
        return [item for item in order if item.metrics[metric] < 0.5][:most]
    return sorted(order, key=lambda item: one.better * item.metrics[metric])[:most] if one.better else []


def sliced(items: Sequence[Item]) -> Iterator[list[tuple[str, str]]]:
    """(kind, value) of the slices of each item: those of the task, the quarter of its prompt's length, and, if one
    choice alone is right, its place and whether it is the longest or the shortest."""
    lengths = sorted(len(item.prompt) for item in items)
    edges = [lengths[len(lengths) * quarter // QUARTERS] for quarter in range(1, QUARTERS)]
    for item in items:
        named = [(kind, value) for kind, value in item.slices.items() if value]
        quarter = sum(len(item.prompt) >= edge for edge in edges)
        if edges[0] < edges[-1]:
            named.append(("length of the prompt", _range(edges, quarter)))
        one = item.right_choices[0] if len(item.right_choices) == 1 else None
        if one is not None and len(item.choices) > 2:
            named.append(("place of the right choice", str(one + 1)))
        if one is not None and len(item.choices) > 1:
            sizes = [len(choice) for choice in item.choices]
            own = sizes[one]
            if sizes.count(own) == 1 and own in (min(sizes), max(sizes)):
                named.append(("the right choice", "the longest" if own == max(sizes) else "the shortest"))
        yield named


def _range(edges: Sequence[int], quarter: int) -> str:
    if quarter == 0:
        return f"under {edges[0]:,} characters"
    if quarter == len(edges):
        return f"{edges[-1]:,} characters or more"
    return f"{edges[quarter - 1]:,} to {edges[quarter] - 1:,} characters"


def words(items: Sequence[Item], metric: str, most: int = 12) -> list[Word]:
    """Words that wrong items have more often than right ones beyond noise (Bonferroni over all words), most telling first; none by a
    metric by which no item is right or wrong. Each item counts a word once."""
    if not measure(metric).right:
        return []
    counts = {True: Counter[str](), False: Counter[str]()}
    for item in items:
        text = " ".join((item.prompt, *item.choices, *item.references)).casefold()
        counts[item.metrics[metric] < 0.5].update(set(WORD.findall(text)))
    wrong, right = counts[True], counts[False]
    together = wrong + right
    all_wrong, all_right, total = wrong.total(), right.total(), together.total()
    if not all_wrong or not all_right:
        return []
    found = []
    for word, count in together.items():
        prior = PRIOR * count / total
        odds = [
            math.log((part[word] + prior) / (whole + PRIOR - part[word] - prior))
            for part, whole in ((wrong, all_wrong), (right, all_right))
        ]
        se = math.sqrt(1 / (wrong[word] + prior) + 1 / (right[word] + prior))
        z = (odds[0] - odds[1]) / se
        if math.erfc(z / math.sqrt(2)) / 2 * len(together) < ALPHA:
            found.append(Word(word, wrong[word], right[word], z))
    return sorted(found, key=lambda one: (-one.z, one.word))[:most]
