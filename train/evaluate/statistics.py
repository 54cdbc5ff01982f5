"""Means of items with their uncertainty (Miller 2024, arXiv 2411.00640)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from corpusmill.schemas.evaluation import Estimate

Z = 1.959963984540054  # standard errors of a 95 % interval


def estimate(values: Sequence[float], clusters: Sequence[str] | None = None) -> Estimate:
    """The mean of at least one value; values of one cluster are not independent. A single value or cluster has no interval."""
    x = np.asarray(values, dtype=np.float64)
    names = list(range(len(x))) if clusters is None else list(clusters)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    mean, groups = float(x.mean()), len(numbers)
    method = "clustered" if groups < len(x) else "clt"
    if groups < 2:
        return Estimate(value=mean, se=None, low=None, high=None, n=len(x), clusters=groups, method=method)
    sums = np.bincount([numbers[name] for name in names], x - mean)
    se = math.sqrt(float((sums**2).sum()) * groups / (groups - 1)) / len(x)
    return Estimate(
        value=mean, se=se, low=mean - Z * se, high=mean + Z * se, n=len(x), clusters=groups, method=method
    )
