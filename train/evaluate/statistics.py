"""Figures with their uncertainty (Miller 2024, arXiv 2411.00640): means, and paired differences of two models."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from corpusmill.schemas.evaluation import Estimate

Z = 1.959963984540054  # of a 95 % interval


def estimate(values: Sequence[float], clusters: Sequence[Hashable] | None = None) -> Estimate:
    """The mean of at least one value. Its standard error takes those of one cluster as dependent; shares of independent items
    (values 0 and 1) have a Wilson interval."""
    x = np.asarray(values, dtype=np.float64)
    if not len(x):
        raise ValueError("no values")
    mean = float(x.mean())
    groups = len(set(clusters)) if clusters is not None else len(x)
    if groups < 2:
        return Estimate(value=mean, se=None, low=None, high=None, n=len(x), clusters=groups, method="clt")
    if groups == len(x):
        se = float(x.std(ddof=1) / math.sqrt(len(x)))
        if np.isin(x, (0.0, 1.0)).all():
            low, high = wilson(mean, len(x))
            return Estimate(value=mean, se=se, low=low, high=high, n=len(x), clusters=groups, method="wilson")
        method = "clt"
    else:
        assert clusters is not None
        number = {name: place for place, name in enumerate(dict.fromkeys(clusters))}
        sums = np.bincount([number[name] for name in clusters], x - mean)
        se, method = float(math.sqrt((sums**2).sum() * groups / (groups - 1)) / len(x)), "clustered"
    return Estimate(
        value=mean, se=se, low=mean - Z * se, high=mean + Z * se, n=len(x), clusters=groups, method=method
    )


def difference(
    a: Sequence[float], b: Sequence[float], clusters: Sequence[Hashable] | None = None
) -> Estimate:
    """The mean of a - b over the same items."""
    return estimate([x - y for x, y in zip(a, b, strict=True)], clusters)


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n independent items (Wilson 1927)."""
    middle = share + Z * Z / (2 * n)
    spread = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    return max((middle - spread) / scale, 0.0), min((middle + spread) / scale, 1.0)
