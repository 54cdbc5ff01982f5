"""Predicted labels beside right ones, with scikit-learn's conventions: accuracy, precision, recall, F1, Matthews' correlation; and
correlations of predicted numbers. Where a quotient is 0 / 0 it is 0."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from corpusmill.schemas.evaluation import Estimate
from corpusmill.train.evaluate.resampling import bootstrap
from corpusmill.train.evaluate.statistics import estimate

if TYPE_CHECKING:
    import numpy.typing as npt

    Counts = npt.NDArray[np.float64]  # [draws, classes, 3]: predicted and right, predicted, there
Clusters = Sequence[Hashable] | None


def classification(
    found: Sequence[Hashable],
    wanted: Sequence[Hashable],
    metrics: Sequence[str],
    positive: Hashable = 1,
    clusters: Clusters = None,
) -> dict[str, Estimate]:
    """Figures by name (`accuracy` or a key of `LABEL_METRICS`). `positive`: the class of binary precision, recall and F1. A prediction
    that is no label is wrong. Intervals are from the bootstrap; the accuracy's is that of a proportion."""
    rows = label_rows(found, wanted, list(dict.fromkeys([positive, *wanted, *found])))
    result = {}
    for name in metrics:
        if name == "accuracy":
            right = [float(guess == truth) for guess, truth in zip(found, wanted, strict=True)]
            result[name] = estimate(right, clusters)
        else:
            result[name] = bootstrap(of_rows(LABEL_METRICS[name]), rows, clusters)
    return result


def label_rows(
    found: Sequence[Hashable], wanted: Sequence[Hashable], classes: Sequence[Hashable]
) -> npt.NDArray[np.bool_]:
    """Of each item what the metrics sum, [items, classes x 3]. The first of `classes` is the positive one."""
    numbers = {label: number for number, label in enumerate(classes)}
    guess, truth = (np.array([numbers[label] for label in labels]) for labels in (found, wanted))
    every = np.arange(len(classes))
    predicted, there = guess[:, None] == every, truth[:, None] == every
    return np.stack([predicted & there, predicted, there], axis=-1).reshape(len(guess), -1)


def of_rows(
    metric: Callable[[Counts], npt.NDArray[np.float64]],
) -> Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    """A metric of sums [draws, classes x 3]."""
    return lambda sums: metric(sums.reshape(len(sums), -1, 3))


def correlation(
    found: Sequence[float], wanted: Sequence[float], metrics: Sequence[str], clusters: Clusters = None
) -> dict[str, Estimate]:
    """`pearson` and `spearman` of numbers. Intervals are from the bootstrap over pairs (of Spearman's, over pairs of ranks)."""
    result = {}
    for name in metrics:
        x, y = (np.asarray(values, dtype=np.float64) for values in (found, wanted))
        if name == "spearman":
            x, y = ranks(x), ranks(y)
        x, y = x - x.mean(), y - y.mean()  # else large numbers cancel
        rows = np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)
        result[name] = bootstrap(_pearson, rows, clusters)
    return result


def ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """From 1 on; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: npt.NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return found


def _divided(top: npt.NDArray[np.float64], bottom: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def _pearson(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    n, x, y, xx, yy, xy = sums.T
    product = np.clip(n * xx - x * x, 0, None) * np.clip(n * yy - y * y, 0, None)
    return np.clip(_divided(n * xy - x * y, np.sqrt(product)), -1, 1)


def _matthews(counts: Counts) -> npt.NDArray[np.float64]:
    """Of any number of classes (Gorodkin 2004)."""
    right, predicted, there = counts[..., 0].sum(1), counts[..., 1], counts[..., 2]
    n = there.sum(1)
    product = (n**2 - (predicted**2).sum(1)) * (n**2 - (there**2).sum(1))
    return _divided(right * n - (predicted * there).sum(1), np.sqrt(np.clip(product, 0, None)))


def _precision(counts: Counts) -> npt.NDArray[np.float64]:
    return _divided(counts[..., 0], counts[..., 1])


def _recall(counts: Counts) -> npt.NDArray[np.float64]:
    return _divided(counts[..., 0], counts[..., 2])


def _f1(counts: Counts) -> npt.NDArray[np.float64]:
    return _divided(2 * counts[..., 0], counts[..., 1] + counts[..., 2])


def _binary(each: Callable[[Counts], npt.NDArray[np.float64]]) -> Callable[[Counts], npt.NDArray[np.float64]]:
    """Of the positive class, which is the first."""
    return lambda counts: each(counts)[:, 0]


def _macro(each: Callable[[Counts], npt.NDArray[np.float64]]) -> Callable[[Counts], npt.NDArray[np.float64]]:
    """The mean over the classes that are predicted or there."""

    def mean(counts: Counts) -> npt.NDArray[np.float64]:
        known = (counts[..., 1] + counts[..., 2]) > 0
        return _divided((each(counts) * known).sum(1), known.sum(1).astype(np.float64))

    return mean


def _micro(each: Callable[[Counts], npt.NDArray[np.float64]]) -> Callable[[Counts], npt.NDArray[np.float64]]:
    """Of the sums over the classes."""
    return lambda counts: each(counts.sum(1))


LABEL_METRICS: dict[str, Callable[[Counts], npt.NDArray[np.float64]]] = {
    "matthews": _matthews,
    **{
        f"{name}{suffix}": way(each)
        for name, each in (("precision", _precision), ("recall", _recall), ("f1", _f1))
        for suffix, way in (("", _binary), ("_macro", _macro), ("_micro", _micro))
    },
}
