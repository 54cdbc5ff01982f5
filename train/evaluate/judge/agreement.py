"""Krippendorff's alpha for nominal data (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"): any number of raters, any
of whom may have left out any unit. 1: all agree; 0: as much as by chance."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from corpusmill.schemas.evaluation import Estimate
from corpusmill.train.evaluate.resampling import Floats, bootstrapped


def coincidences(units: Sequence[Sequence[Hashable]]) -> Floats:
    """Of units with the values that raters gave them: how often two values stand together in each, float64 [units, V, V]. Units
    with fewer than two values are left out."""
    number = {value: place for place, value in enumerate(dict.fromkeys(v for unit in units for v in unit))}
    pairable = [unit for unit in units if len(unit) > 1]
    found = np.zeros((len(pairable), len(number), len(number)))
    for place, unit in enumerate(pairable):
        counts = np.bincount([number[value] for value in unit], minlength=len(number)).astype(np.float64)
        found[place] = (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    return found


def alpha(together: Floats) -> Floats:
    """Of coincidences [..., V, V] of all units; NaN if there is one value only."""
    marginal = together.sum(-1)
    n = marginal.sum(-1)
    same = np.trace(together, axis1=-2, axis2=-1)
    expected = n**2 - (marginal**2).sum(-1)
    found: Floats = 1 - (n - 1) * (n - same) / np.where(expected > 0, expected, np.nan)
    return found


def agreement(units: Sequence[Sequence[Hashable]]) -> Estimate | None:
    """Alpha with a bootstrap over units; None without two values in a unit, or with one value only."""
    found = coincidences(units)
    if not len(found) or np.isnan(alpha(found.sum(0))):
        return None
    size = found.shape[1]

    def of_sums(sums: Floats) -> Floats:
        return alpha(sums.reshape(*sums.shape[:-1], size, size))

    return bootstrapped(found.reshape(len(found), -1), of_sums, int(found.sum()))
