"""Metrics of sums over all items (F1, Matthews' correlation, BLEU, chrF) of two sides' runs on the same items: the items are drawn
together for all runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.tasks import CLASSES
from corpusmill.train.evaluate.metrics.classification import LABEL_METRICS, label_rows, of_rows
from corpusmill.train.evaluate.resampling import Floats, percentiles, resampled, unit_sums
from corpusmill.train.evaluate.statistics import Difference, beside_runs

Labels = Sequence[Sequence[int]]  # of each run, of each item


def compared_lists(
    a: Labels, b: Labels, golds: Sequence[int], metric: str, clusters: Sequence[Hashable]
) -> tuple[Estimate, Estimate, Difference]:
    """Figures of both sides, each the mean of its runs, and A less B with the paired bootstrap's interval and p; with several runs a side,
    those of `beside_runs`. `metric`: of `CLASSES`."""
    runs = [*a, *b]
    classes = list(dict.fromkeys([1, *golds, *(label for run in runs for label in run)]))
    rows = [label_rows(run, golds, classes) for run in runs]
    return compared_sums(rows[: len(a)], rows[len(a) :], of_rows(LABEL_METRICS[CLASSES[metric]]), clusters)


def compared_sums(
    a: Sequence[npt.ArrayLike],
    b: Sequence[npt.ArrayLike],
    of: Callable[[Floats], Floats],
    clusters: Sequence[Hashable],
) -> tuple[Estimate, Estimate, Difference]:
    """The same of rows [items, k] of each run, whose sums [draws, k] `of` takes, and gives figures [draws]."""
    each_run = [np.asarray(rows, dtype=np.float64) for rows in (*a, *b)]
    n, sums = len(each_run[0]), unit_sums(list(np.concatenate(each_run, axis=1).T), clusters)

    def figures(found: Floats) -> list[Floats]:
        each = np.stack([of(part) for part in np.split(found, len(each_run), axis=1)])
        means = each[: len(a)].mean(0), each[len(a) :].mean(0)
        return [*means, means[0] - means[1], *each]

    whole = [float(value[0]) for value in figures(sums.sum(0)[None])]
    draws = figures(resampled(sums)) if len(sums) > 1 else [np.empty(0)] * len(whole)
    first, second, between = (
        percentiles(value, drawn, n, len(sums)) for value, drawn in zip(whole[:3], draws[:3], strict=True)
    )
    if between.se is None:
        return first, second, Difference(between, None)
    if len(each_run) > 2:
        return first, second, beside_runs(between, whole[3 : 3 + len(a)], whole[3 + len(a) :])
    beyond = min(int((draws[2] <= 0).sum()), int((draws[2] >= 0).sum()))
    return first, second, Difference(between, min(1.0, 2 * (beyond + 1) / (len(draws[2]) + 1)))
