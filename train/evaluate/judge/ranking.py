"""Bradley-Terry scores (Bradley & Terry 1952): P(i beats j) = 1 / (1 + exp(s_j - s_i)), by maximum likelihood, with mean 0.

A tie, and a pair of which both texts are bad, is half a win for each of the two. Of two models the solution has a closed form:
s_a - s_b = ln(wins of a / wins of b).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.judging import Judgement
from corpusmill.train.evaluate.resampling import Floats, percentiles, resampled

STEPS = 200  # of Newton's method at most; from 0 about ten are needed
DRAWS = 1000
ONE_SIDED = 0.025  # share of resamples without a solution from which on an interval has no end


def wins(rows: Sequence[Judgement], models: Sequence[str]) -> tuple[Floats, list[str]]:
    """(wins of the first over the second model by prompt, float64 [prompts, M, M]; the prompts)."""
    number = {name: place for place, name in enumerate(models)}
    prompts = list(dict.fromkeys(row.prompt for row in rows))
    place = {prompt: at for at, prompt in enumerate(prompts)}
    found = np.zeros((len(prompts), len(models), len(models)))
    for row in rows:
        share = {"a": 1.0, "b": 0.0}.get(row.choice, 0.5)
        a, b = number[row.a], number[row.b]
        found[place[row.prompt], a, b] += share
        found[place[row.prompt], b, a] += 1 - share
    return found, prompts


def solvable(won: Floats) -> npt.NDArray[np.bool_]:
    """Whether scores exist, bool [...], of wins [..., M, M]: every model has beaten every other one, directly or by way of others
    (Ford 1957). Otherwise some would be infinitely far apart."""
    reach = np.logical_or(won > 0, np.eye(won.shape[-1], dtype=bool))
    for _ in range(won.shape[-1]):
        reach = np.matmul(reach, reach)
    return np.asarray(reach.all((-2, -1)))


def scores(won: Floats) -> Floats:
    """Of wins [..., M, M]: scores [..., M], NaN where there is no solution."""
    games = won + won.swapaxes(-1, -2)
    good = solvable(won)
    theta = np.zeros(won.shape[:-1])
    for _ in range(STEPS):
        expected = games / (1 + np.exp(theta[..., None, :] - theta[..., :, None]))
        slope = (won - expected).sum(-1)
        curve = expected * (1 - expected / np.maximum(games, 1e-300))
        hessian = -curve
        diagonal = np.arange(won.shape[-1])
        hessian[..., diagonal, diagonal] += curve.sum(-1)
        # Scores are free but for a constant: a one everywhere fixes it at a mean of 0.
        hessian = np.where(good[..., None, None], hessian + 1.0, np.eye(won.shape[-1]))
        step = np.linalg.solve(hessian, np.where(good[..., None], slope, 0.0)[..., None])[..., 0]
        theta = theta + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-12:
            break
    theta -= theta.mean(-1, keepdims=True)
    return np.where(good[..., None], theta, np.nan)


def ranked(rows: Sequence[Judgement]) -> dict[str, Estimate]:
    """Each model's score, the highest first, with a bootstrap over prompts; nothing if there is no solution. An interval has no end
    where too many resamples are one-sided."""
    models = sorted({name for row in rows for name in (row.a, row.b)})
    won, prompts = wins(rows, models)
    value = scores(won.sum(0))
    if np.isnan(value).any():
        return {}
    drawn = np.empty((0, len(models)))
    if len(prompts) > 1:
        sums = resampled(won.reshape(len(prompts), -1), DRAWS)
        drawn = scores(sums.reshape(DRAWS, *won.shape[1:]))
    lost = bool(len(drawn)) and float(np.isnan(drawn).any(1).mean()) >= ONE_SIDED
    found = {}
    for place, name in enumerate(models):
        n = sum(name in (row.a, row.b) for row in rows)
        draws = np.empty(0) if lost or not len(drawn) else drawn[:, place]
        found[name] = percentiles(float(value[place]), draws, n, len(prompts))
    return dict(sorted(found.items(), key=lambda each: -each[1].value))
