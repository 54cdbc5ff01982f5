"""From the mean of the rows to probabilities: fastText's losses at prediction (loss.cc), rounding included."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers.model_file import LABELS, LOSS, SOFTMAX

_TINY = 1e-5  # fastText adds it to a probability before it takes the logarithm


@compiled(inline="always")
def _dot(model: Any, row: Any, hidden: Any) -> Any:
    total = np.float32(0)
    for k in range(len(hidden)):
        total += model.output[row, k] * hidden[k]
    return total


@compiled(inline="always")
def _logarithm(p: Any) -> Any:
    return np.float32(np.log(np.float64(p) + _TINY))


@compiled
def walk(model: Any, hidden: Any, stack: Any, reached: Any, out: Any, all_labels: Any) -> None:
    """Logarithms of the labels' probabilities by hierarchical softmax, from the root down, left first.

    Without `all_labels` a branch that cannot beat the best leaf so far is not entered. -inf: not reached.
    """
    labels = model.numbers[LABELS]
    out[:] = -np.inf
    least = _logarithm(np.float32(0))
    best = np.float32(-np.inf)
    stack[0], reached[0] = 2 * labels - 2, np.float32(0)
    depth = 1
    while depth > 0:
        depth -= 1
        node, score = stack[depth], reached[depth]
        if score < least or (not all_labels and score < best):
            continue
        if node < labels:
            out[node] = score
            best = max(best, score)
            continue
        odds = np.float32(np.exp(np.float32(-_dot(model, node - labels, hidden))))
        f = np.float32(1.0 / np.float64(np.float32(np.float32(1) + odds)))
        stack[depth], reached[depth] = model.right[node], np.float32(score + _logarithm(f))
        rest = np.float32(1.0 - np.float64(f))
        stack[depth + 1], reached[depth + 1] = model.left[node], np.float32(score + _logarithm(rest))
        depth += 2


@compiled
def outputs(model: Any, hidden: Any, sigmoid: Any, out: Any) -> None:
    """Logarithms of the labels' probabilities by softmax, or by one logistic each (fastText's table of it)."""
    high = np.float32(-np.inf)
    for i in range(len(out)):
        out[i] = _dot(model, i, hidden)
        high = max(high, out[i])
    if model.numbers[LOSS] == SOFTMAX:
        total = np.float32(0)
        for i in range(len(out)):
            out[i] = np.exp(np.float32(out[i] - high))
            total += out[i]
        for i in range(len(out)):
            out[i] = _logarithm(np.float32(out[i] / total))
    else:
        for i in range(len(out)):
            x = out[i]
            p = np.float32(0) if x < 0 else np.float32(1)
            if -8 <= x <= 8:
                p = sigmoid[np.int64(np.float32(x + np.float32(8)) * np.float32(32))]
            out[i] = _logarithm(p)
