"""Scores as probabilities: log-odds to probabilities, and how far these are from what was right."""

from __future__ import annotations

import numpy as np

from corpusmill.pipeline.filter.text.view import Array


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)) of log-odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -60, 60))))


def calibration_error(found: Array, truth: Array, weights: Array | None = None, bins: int = 10) -> float:
    """Expected calibration error (Naeini et al. 2015): over bins of equal width, the mean difference between the score and the
    share of positives, weighted by the documents of the bin.

    `found` are scores in [0, 1], `truth` is bool of the same length, `weights` float64 of it (default: equal).
    """
    found = np.asarray(found, np.float64)
    weights = np.full(len(truth), 1 / len(truth)) if weights is None else weights / weights.sum()
    place = np.minimum((found * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(place, weights * (found - truth), bins)).sum())
