"""Bands and rows of the LSH: the S-curve, and the choice of both from a promise within budgets.

A pair of documents with Jaccard similarity s meets in at least one of b bands of r rows with probability
1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.schemas.dedup import DedupParams

CURVE = tuple(round(0.05 * step, 2) for step in range(2, 21))
DATATROVE = (14, 8)
MOST_PERMUTATIONS = 1024  # what `dedup.num_perm` may be at most
BAND_BYTES = 24  # a record of one text in one band
_NODES = 64


class Banding(NamedTuple):
    """`bands` x `rows` permutations are used, the first ones of `num_perm`."""

    bands: int
    rows: int

    def found(self, similarity: float) -> float:
        """Probability that a pair with this Jaccard similarity becomes a candidate."""
        return -math.expm1(self.bands * math.log1p(-(similarity**self.rows))) if similarity < 1 else 1.0

    def curve(self) -> dict[str, float]:
        """The S-curve at similarities 0.1, 0.15 ... 1."""
        return {f"{s:.2f}": round(self.found(s), 6) for s in CURVE}

    def false_share(self, similarity: float) -> float:
        """Share of the pairs below `similarity` that become candidates, if all similarities are as frequent.

        The weight is datasketch's (`MinHashLSH` integrates the same curve); any other weighting would rank the
        bandings that meet the recall nearly the same.
        """
        # With v = x^r the curve is v g(v), and g smooth: few nodes are enough for any r, in t = (x / s)^((r+1)/2).
        nodes, weights = _gauss()
        v = similarity**self.rows * nodes ** (2 * self.rows / (self.rows + 1))
        with np.errstate(divide="ignore", invalid="ignore"):  # v underflows to 0 where r is large
            g = np.where(v > 0, -np.expm1(self.bands * np.log1p(-v)) / v, self.bands)
        return float(2 * similarity**self.rows / (self.rows + 1) * (weights @ (g * nodes)))


@lru_cache(maxsize=1)
def _gauss() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Nodes and weights of Gauss and Legendre on 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2


def least_bands(similarity: float, recall: float, rows: int) -> int | None:
    """The fewest bands of `rows` rows that find a share `recall` of the pairs at `similarity`; None if more
    than 10^9 are needed."""
    hit = similarity**rows
    if hit >= 1:
        return 1
    wanted = math.log1p(-recall) / math.log1p(-hit) if hit > 0 else math.inf
    if wanted > 1e9:
        return None
    bands = max(1, math.ceil(wanted) - 1)  # the logarithms may be off by a rounding
    while Banding(bands, rows).found(similarity) < recall:
        bands += 1
    return bands


def solve(similarity: float, recall: float, num_perm: int, most_bands: int | None = None) -> Banding | None:
    """The banding with the fewest false candidates (`Banding.false_share`) that finds a share `recall` of the
    pairs at `similarity`, with at most `num_perm` permutations and `most_bands` bands. None: no banding does.
    """
    found = []
    for rows in range(1, num_perm + 1):
        bands = least_bands(similarity, recall, rows)
        if bands is None or bands > num_perm // rows:
            break  # more rows need more bands still
        if most_bands is None or bands <= most_bands:
            found.append(Banding(bands, rows))
    return min(found, key=lambda item: (item.false_share(similarity), item), default=None)


def fixed_bytes(params: DedupParams) -> int:
    """Intermediate bytes that each document costs whatever the bands: its two records, each with the survivor
    order. Candidates cost more (their shingle sets), which no parameter bounds."""
    order = 8 * (1 + len(params.keep_order))
    return (56 + order) + (80 + order)


def banding(params: DedupParams) -> Banding:
    """The banding that the parameters give or ask for, within `num_perm` and `scratch_bytes_per_doc`.

    Raises `UserError`, naming the nearest values that work, if the promise cannot be kept.
    """
    budget = params.scratch_bytes_per_doc
    if budget is None or not params.minhash:
        most_bands = None
    else:
        most_bands = (budget - fixed_bytes(params)) // BAND_BYTES
    given = (params.bands, params.rows) if params.bands and params.rows else None
    if given is None and params.preset == "datatrove":
        given = DATATROVE
        if params.num_perm < given[0] * given[1]:
            raise UserError(
                f"dedup.num_perm: {params.num_perm} is fewer than the {given[0]} x {given[1]} permutations of"
                f" dedup.preset datatrove; raise it to {given[0] * given[1]}"
            )
    if given is not None:
        if most_bands is not None and given[0] > most_bands:
            raise UserError(_over_budget(params, given[0], most_bands))
        return Banding(*given)
    solved = solve(params.similarity, params.recall, params.num_perm, most_bands)
    if solved is None and not params.minhash:
        return Banding(1, 1)  # nothing will use it
    if solved is None:
        raise UserError(_impossible(params, most_bands))
    return solved


def budget_for(params: DedupParams, bands: int) -> int:
    """The least `scratch_bytes_per_doc` that allows so many bands."""
    return fixed_bytes(params) + BAND_BYTES * bands


def _over_budget(params: DedupParams, bands: int, most_bands: int) -> str:
    fewer = f", or lower dedup.bands to {most_bands}" if most_bands > 0 and params.bands else ""
    return (
        f"dedup.scratch_bytes_per_doc: {params.scratch_bytes_per_doc} is too little for {bands} bands; raise it"
        f" to {budget_for(params, bands)}{fewer}"
    )


def _impossible(params: DedupParams, most_bands: int | None) -> str:
    """One row a band asks for the fewest bands and the fewest permutations: if that fails, all do."""
    bands = least_bands(params.similarity, params.recall, 1)
    limits = [f"dedup.num_perm {params.num_perm}"]
    raises = []
    if bands is not None and bands > params.num_perm:
        raises.append(f"dedup.num_perm to {bands}" if bands <= MOST_PERMUTATIONS else "")
    if most_bands is not None:
        limits.append(f"dedup.scratch_bytes_per_doc {params.scratch_bytes_per_doc}")
        if bands is not None and bands > most_bands:
            raises.append(f"dedup.scratch_bytes_per_doc to {budget_for(params, bands)}")
    advice = [] if bands is None or "" in raises else [f"raise {' and '.join(raises)}"]
    most = params.num_perm if most_bands is None else min(params.num_perm, most_bands)
    best = Banding(most, 1).found(params.similarity) if most > 0 else 0.0
    lower = _rounded_down(best)
    if lower > 0:
        advice.append(f"lower dedup.recall to {lower:.6g}")
    return (
        f"dedup.recall: {params.recall} at dedup.similarity {params.similarity} cannot be reached with"
        f" {' and '.join(limits)} (at most {lower:.6g}); {', or '.join(advice) or 'raise dedup.similarity'}"
    )


def _rounded_down(share: float) -> float:
    """With six significant digits (of what is missing to 1, near 1), never above `share`, and below 1."""
    share = min(share, 1 - 1e-6)
    return math.floor(share * 1e6) / 1e6 if share >= 1e-6 else 0.0
