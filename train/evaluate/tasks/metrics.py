"""Metrics of one item: of choices by their log-probabilities, of a generated text by comparison with right ones. And those of all texts
together."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.schemas.evaluation import Estimate, Item
from corpusmill.schemas.tasks import Filter, Metric, Step, Task
from corpusmill.train.evaluate.metrics.answers import ANSWER_METRICS, PUNCTUATION
from corpusmill.train.evaluate.metrics.texts import (
    CORPUS,
    TEXT_METRICS,
    corpus_metric,
    corpus_rows,
    of_corpus_rows,
    of_texts,
)
from corpusmill.train.evaluate.resampling import bootstrap

DIGITS = str.maketrans("", "", string.digits)


class Choices(NamedTuple):
    """Choices of an item as they were scored. `sums`: log-probabilities in nats; `unconditional`: those without a context, if
    they were asked for; `golds`: numbers of the right ones."""

    texts: Sequence[str]
    sums: Sequence[float]
    greedy: Sequence[bool]
    golds: Sequence[int]
    unconditional: Sequence[float] = ()


def choice_metrics(task: Task, found: Choices) -> dict[str, float]:
    """By name; of a task with `perplexity` the item has its `loglikelihood`, whose mean that is computed from, and of a whole
    text its own bits per byte."""
    if task.output_type == "loglikelihood_rolling":
        return {"bits_per_byte": -found.sums[0] / math.log(2) / len(found.texts[0].encode())}
    if task.output_type == "loglikelihood":
        own = {"acc": float(found.greedy[0]), "loglikelihood": found.sums[0], **per_byte(found)}
        return {name: own[name] for name in (item_name(one.metric) for one in task.metrics)}
    return {
        one.metric: CHOICE_METRICS[one.metric](found) for one in task.metrics if one.metric in CHOICE_METRICS
    }


def item_name(metric: str) -> str:
    """What the items of a task have for a figure."""
    return "loglikelihood" if metric == "perplexity" else metric


def lengths(found: Choices, size: Callable[[str], int]) -> npt.NDArray[np.float64]:
    return np.array([float(max(size(text), 1)) for text in found.texts])


def right(found: Choices, scores: npt.ArrayLike) -> float:
    """1 if the highest score is that of a right choice; of equal ones the first counts."""
    return float(int(np.argmax(scores)) in found.golds)


def shares(sums: Sequence[float]) -> npt.NDArray[np.float64]:
    """Probabilities of the choices among themselves."""
    x = np.exp(np.asarray(sums) - np.max(sums))
    return np.asarray(x / x.sum())


def brier(found: Choices) -> float:
    right = np.zeros(len(found.sums))
    right[found.golds[0]] = 1.0
    return float(((shares(found.sums) - right) ** 2).sum())


def per_byte(found: Choices) -> dict[str, float]:
    gold = found.golds[0]
    return {"gold_logprob_per_byte": found.sums[gold] / max(len(found.texts[gold].encode()), 1)}


CHOICE_METRICS: dict[str, Callable[[Choices], float]] = {
    "acc": lambda c: right(c, c.sums),
    "acc_norm": lambda c: right(c, np.asarray(c.sums) / lengths(c, len)),
    "acc_bytes": lambda c: right(c, np.asarray(c.sums) / lengths(c, lambda text: len(text.encode()))),
    "acc_mutual_info": lambda c: right(c, np.asarray(c.sums) - np.asarray(c.unconditional)),
    "exact_match": lambda c: float(any(c.greedy[gold] for gold in c.golds)),
    "brier_score": brier,
    "likelihood_diff": lambda c: abs(c.sums[0] - c.sums[1]),
    "pct_stereotype": lambda c: float(c.sums[0] > c.sums[1]),
    "gold_logprob_per_byte": lambda c: per_byte(c)["gold_logprob_per_byte"],
}


def text_metrics(task: Task, generated: str, references: Sequence[str]) -> dict[str, float]:
    """By name; with several filters by metric and filter, as `exact_match,strict-match`. Metrics of all texts together are not an
    item's."""
    found: dict[str, float] = {}
    for behind, steps in filters(task):
        text = filtered(generated, steps)
        for one in task.metrics:
            if one.metric not in CORPUS:
                own = compared(one, text, references)
                found.update((name + behind, value) for name, value in own.items())
    return found


def text_sums(task: Task, generated: str, references: Sequence[str]) -> dict[str, list[float]]:
    """What the metrics of all texts together are computed from, summed over items (`Item.sums`); named likewise."""
    wanted = [name for name in CORPUS if task.wants(name)]
    return {
        name + behind: corpus_rows(corpus_metric(name), [filtered(generated, steps)], [references])[
            0
        ].tolist()
        for behind, steps in filters(task)
        for name in wanted
    }


def corpus_metrics(items: Sequence[Item]) -> dict[str, Estimate]:
    """What is computed of all texts together, as `corpusmill score` does; named likewise."""
    clusters = [item.cluster for item in items]
    return {
        name: bootstrap(of_sums(name), [item.sums[name] for item in items], clusters)
        for name in items[0].sums
    }


def of_sums(name: str) -> Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    """A metric of all texts together, which may have a filter's name behind it, as a function of sums: [draws, k] -> [draws]."""
    return of_corpus_rows(corpus_metric(name.partition(",")[0]))


def signatures(task: Task, items: Sequence[Item]) -> list[str]:
    """How a task's metrics of texts are computed, each in one line; they name how many references texts have. Raises `UserError` if a
    library for them is not installed."""
    numbers = [item.references for item in items] or [[""]]
    some = [min(numbers, key=len), max(numbers, key=len)]
    return [
        f"{metric}: {of_texts(metric, [''] * 2, some).signature}"
        for metric in TEXT_METRICS
        if task.wants(metric)
    ]


def filters(task: Task) -> list[tuple[str, Sequence[Step]]]:
    """What of a generated text is compared: what stands behind a metric's name, and the steps."""
    given = task.filter_list or [Filter(name="none", filter=[])]
    return [(f",{one.name}" if len(given) > 1 else "", one.filter) for one in given]


def compared(metric: Metric, text: str, references: Sequence[str]) -> dict[str, float]:
    """Figures of one text, by name."""
    name = metric.metric
    if name == "exact_match":
        wanted = {comparable(metric, reference) for reference in references}
        return {name: float(comparable(metric, text) in wanted)}
    if name in TEXT_METRICS:
        return {key: one.value for key, one in of_texts(name, [text], [references]).figures.items()}
    return {name: ANSWER_METRICS[name](text, references)}


def filtered(text: str, steps: Sequence[Step]) -> str:
    """The text after the steps of a filter."""
    for step in steps:
        if step.function == "remove_whitespace":
            text = text.strip()
        elif step.function == "lowercase":
            text = text.lower()
        elif step.function == "regex":
            text = matched(text, step)
    return text


def matched(text: str, step: Step) -> str:
    """The match that a step selects: of a pattern with groups the first of them that is not empty."""
    found = re.findall(step.regex_pattern, text)
    if not -len(found) <= step.group_select < len(found):
        return step.fallback
    chosen = found[step.group_select]
    if isinstance(chosen, tuple):
        chosen = next((group for group in chosen if group), step.fallback)
    return str(chosen).strip()


def comparable(metric: Metric, text: str) -> str:
    """A text as `exact_match` compares it, without white space around it."""
    for pattern in metric.regexes_to_ignore:
        text = re.sub(pattern, "", text)
    if metric.ignore_case:
        text = text.lower()
    if metric.ignore_punctuation:
        text = text.translate(PUNCTUATION)
    if metric.ignore_numbers:
        text = text.translate(DIGITS)
    return text.strip()
