"""Fitting the curves: weighted logistic loss, a ridge on the steps between knots, and bounds on the steps where a direction is set.

A curve is a sum of steps, one per segment between its knots; a step of a curve that may only go up is bounded from below by 0. With
them the problem is convex, and `scipy.optimize` (L-BFGS-B, Byrd et al. 1995) ends at the same numbers for the same input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.optimize import minimize

from corpusmill.pipeline.filter.classifiers.calibration import logistic
from corpusmill.pipeline.filter.quality_signals.inputs import Input
from corpusmill.pipeline.filter.quality_signals.model import Curve, SignalModel
from corpusmill.pipeline.filter.text.view import Array

# Knots lie at these quantiles of the values, and of those that are not 0, which most are of some signals.
QUANTILES: Final = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
RIDGE: Final = (
    0.06  # the weights of the documents adding up to 1; the card of the shipped model says how it was chosen
)
DIGITS: Final = 6  # of knots and values in the file


class Options(NamedTuple):
    """`free`: without the directions of `inputs.INPUTS`."""

    ridge: float = RIDGE
    free: bool = False


DEFAULT: Final = Options()


def knots_of(values: Array) -> Array:
    """float64[K]: distinct knots, ascending; fewer than two where the values are all one."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.zeros(0)
    found: list[Array] = [np.quantile(known, QUANTILES), known.min(keepdims=True)]
    if (known != 0).any():
        found.append(np.quantile(known[known != 0], QUANTILES))
    rounded = np.array([float(f"{one:.{DIGITS}g}") for one in np.concatenate(found)])
    return np.unique(rounded)


def _ramps(x: Array, knots: Array) -> Array:
    """float64[D, K - 1]: how much of each segment lies below x, 0 to 1; NaN is kept."""
    return np.clip((x[:, None] - knots[:-1]) / np.diff(knots), 0.0, 1.0)


def fit(
    columns: Mapping[str, Array], truth: Array, inputs: Sequence[Input], versions: Mapping[str, str],
    label: str, options: Options = DEFAULT, weights: Array | None = None,
) -> SignalModel:  # fmt: skip
    """The model of float64 columns with NaN for what was not measured; `truth` bool[D], `weights` float64[D] (default: equal,
    and half of it for each class). Signals of one value alone are left out, and those that change nothing."""
    weights = balanced(truth) if weights is None else weights / weights.sum()
    used: list[tuple[Input, Array]] = []
    blocks = []
    for one in inputs:
        knots = knots_of(columns[one.signal])
        if len(knots) >= 2:
            used.append((one, knots))
            blocks.append(_ramps(np.asarray(columns[one.signal], np.float64), knots))
    steps = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(truth), 0))
    # Centred on the average document, so that one without a value contributes what that one does: nothing.
    missing = np.isnan(steps)
    filled = np.where(missing, 0.0, steps)
    middle = np.average(filled, axis=0, weights=weights) / np.maximum(
        np.average(~missing, axis=0, weights=weights), 1e-12
    )
    centred = np.where(missing, 0.0, filled - middle)
    free = options.free
    bounds: list[tuple[float | None, float | None]] = []
    for one, knots in used:
        bound = {"up": (0.0, None), "down": (None, 0.0), "free": (None, None)}[
            "free" if free else one.direction
        ]
        bounds += [bound] * (len(knots) - 1)
    found = _minimum(centred, truth, weights, bounds, options.ridge)
    curves, place, bias = [], 0, found[-1]
    for one, knots in used:
        own = slice(place, place + len(knots) - 1)
        place = own.stop
        values = _rounded(np.concatenate([[0.0], np.cumsum(found[own])]) - middle[own] @ found[own])
        if any(values):
            direction = "free" if free else one.direction
            curves.append(Curve(one.signal, versions[one.signal], direction, tuple(knots.tolist()), values))
    return SignalModel(label, float(f"{bias:.{DIGITS}g}"), tuple(curves))


def _rounded(values: Array) -> tuple[float, ...]:
    """Five decimals: rounding keeps the order, and so the directions."""
    return tuple(round(float(one), 5) + 0.0 for one in values)


def balanced(truth: Array) -> Array:
    """float64[D]: weights that add up to 1, half of it for each class."""
    sizes = np.array([(~truth).sum(), truth.sum()])
    return np.asarray(0.5 / sizes[truth.astype(np.int64)])


def _minimum(steps: Array, truth: Array, weights: Array, bounds: Sequence[Any], ridge: float) -> Array:
    """float64[steps + 1]: the steps' heights, then the bias."""
    sign = np.where(truth, 1.0, -1.0)

    def loss(x: Array) -> tuple[float, Array]:
        margin = sign * (steps @ x[:-1] + x[-1])
        value = float(weights @ np.logaddexp(0.0, -margin) + ridge / 2 * (x[:-1] @ x[:-1]))
        slope = -weights * sign * logistic(-margin)
        return value, np.concatenate([steps.T @ slope + ridge * x[:-1], [slope.sum()]])

    start = np.zeros(steps.shape[1] + 1)
    options = {"maxiter": 500, "maxfun": 2000, "ftol": 1e-10, "gtol": 1e-6}
    done = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[*bounds, (None, None)], options=options)
    return np.asarray(done.x)


def calibrated(model: SignalModel, log_odds: Array, truth: Array, weights: Array) -> SignalModel:
    """The model with its log-odds scaled and shifted to fit those that models without these documents gave them: still a sum of
    curves. As in Platt 1999 the aim is a little less than certain, so that classes that lie apart do not make it boundless. The
    scale is at least 0.05, so that no direction turns."""
    positives, negatives = int(truth.sum()), int((~truth).sum())
    aim = np.where(truth, (positives + 1) / (positives + 2), 1 / (negatives + 2))

    def loss(x: Array) -> tuple[float, Array]:
        odds = x[0] * log_odds + x[1]
        slope = weights * (logistic(odds) - aim)
        return float(weights @ (np.logaddexp(0.0, odds) - aim * odds)), np.array(
            [slope @ log_odds, slope.sum()]
        )

    done = minimize(
        loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0.05, None), (None, None)]
    )
    scale, shift = map(float, done.x)
    curves = tuple(one._replace(values=_rounded(scale * np.array(one.values))) for one in model.curves)
    return model._replace(bias=float(f"{scale * model.bias + shift:.{DIGITS}g}"), curves=curves)
