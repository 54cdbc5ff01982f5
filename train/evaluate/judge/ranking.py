"""Bradley-Terry scores (Bradley & Terry 1952): P(i beats j) = 1 / (1 + exp(s_j - s_i)), by maximum likelihood, with mean 0.

A tie, and a pair of which both texts are bad, is half a win for each of the two. Of two models the solution has a closed form:
s_a - s_b = ln(wins of a / wins of b).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from scipy.special import stdtrit

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.judging import Judgement
from corpusmill.train.evaluate.resampling import Floats, percentiles, resampled
from corpusmill.train.evaluate.statistics import LEVEL, estimate

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


def groups(rows: Sequence[Judgement]) -> list[list[str]]:
    """The models that ratings compare with one another, directly or by way of others; scores of several groups have nothing in common."""
    models = models_of(rows)
    compared = wins(rows, models)[0].sum(0)
    count, numbers = connected_components(compared + compared.T, directed=False)
    return [
        [name for name, one in zip(models, numbers, strict=True) if one == number] for number in range(count)
    ]


def models_of(rows: Sequence[Judgement]) -> list[str]:
    return sorted({name for row in rows for name in (row.a, row.b)})


def ranked(rows: Sequence[Judgement]) -> dict[str, Estimate]:
    """Each model's score, the highest first, with a bootstrap over prompts; nothing if there is no solution. An interval has no end
    where too many resamples are one-sided.

    For each two models that are compared, two prompts are added to those that are drawn from, of which either has won one, each with as
    many ratings as a prompt has: ties alone would have an interval of no width, and few prompts one that is too narrow.
    """
    models = models_of(rows)
    won, prompts = wins(rows, models)
    value = scores(won.sum(0))
    if np.isnan(value).any():
        return {}
    drawn = np.empty((0, len(models)))
    if len(prompts) > 1:
        units = np.concatenate([won, even_prompts(won)])
        drawn = scores(resampled(units.reshape(len(units), -1), DRAWS).reshape(DRAWS, *won.shape[1:]))
    lost = bool(len(drawn)) and float(np.isnan(drawn).any(1).mean()) >= ONE_SIDED
    found = {}
    for place, name in enumerate(models):
        n = sum(name in (row.a, row.b) for row in rows)
        draws = np.empty(0) if lost or not len(drawn) else drawn[:, place]
        found[name] = percentiles(float(value[place]), draws, n, len(prompts))
    return dict(sorted(found.items(), key=lambda each: -each[1].value))


def even_prompts(won: Floats) -> Floats:
    """Two more prompts for each two models that are compared, one won by either, with the mean number of ratings of those that there
    are."""
    games = won + won.swapaxes(-1, -2)
    mean = games.sum(0) / np.maximum((games > 0).sum(0), 1)
    found = []
    for place in np.argwhere(mean > 0):
        one = np.zeros_like(mean)
        one[tuple(place)] = mean[tuple(place)]
        found.append(one)
    return np.stack(found)


def win_rate(credit: Sequence[float], prompts: Sequence[Hashable]) -> Estimate:
    """The mean of 1 (won), 1/2 (a tie) and 0, with an interval within [0, 1]; none for a single prompt.

    Twice the win rate less 1 is the difference of two paired proportions, wins and losses: the interval is that of Agresti and Min
    (2005), with Student's t, for as many independent ratings as tell as much as these (Korn and Graubard 1998).
    """
    found, alone = estimate(credit, prompts, proportion=False), estimate(credit, proportion=False)
    if found.clusters < 2:
        return found
    n = float(found.n)
    if found.clusters < found.n:
        n = min(n, n * (alone.se / found.se) ** 2) if found.se and alone.se else float(found.clusters)
    won = (2 * found.value - 1) * n
    apart = sum(one != 0.5 for one in credit) / found.n * n
    student = float(stdtrit(found.clusters - 1, (1 + LEVEL) / 2))
    centre, half = won / (n + 2), student * math.sqrt(apart + 1 - won**2 / (n + 2)) / (n + 2)
    low, high = (1 + max(-1.0, centre - half)) / 2, (1 + min(1.0, centre + half)) / 2
    return found.model_copy(update={"low": low, "high": high, "method": "agresti-min"})
