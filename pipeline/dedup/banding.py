"""Bands and rows of the LSH: the S-curve, and the choice of both from a promised recall.

A pair of documents with Jaccard similarity s meets in at least one of b bands of r rows with probability
1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from schemas.dedup import DedupParams
from schemas.errors import UserError

CURVE = tuple(round(0.05 * step, 2) for step in range(2, 21))


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


def solve(similarity: float, recall: float, num_perm: int) -> Banding | None:
    """The banding with the fewest false candidates that finds a share `recall` of the pairs at `similarity`.

    That is the largest number of rows that can reach the recall within `num_perm`, and then the fewest bands:
    more rows steepen the curve, more bands lift all of it. None if no banding reaches the recall.
    """
    for rows in range(num_perm, 0, -1):
        hit = similarity**rows
        if hit >= 1:
            return Banding(1, rows)
        wanted = math.log1p(-recall) / math.log1p(-hit) if hit > 0 else math.inf
        if wanted > num_perm + 1:
            continue
        bands = math.ceil(wanted)
        for count in (bands - 1, bands, bands + 1):  # the logarithms may be off by a rounding
            if 1 <= count <= num_perm // rows and Banding(count, rows).found(similarity) >= recall:
                return Banding(count, rows)
    return None


def banding(params: DedupParams) -> Banding:
    """The banding that the parameters give or ask for; raises `UserError` if their promise cannot be kept."""
    if params.bands and params.rows:
        return Banding(params.bands, params.rows)
    solved = solve(params.similarity, params.recall, params.num_perm)
    if solved is None:
        best = Banding(params.num_perm, 1).found(params.similarity)
        raise UserError(
            f"dedup.recall: {params.recall} at dedup.similarity {params.similarity} cannot be had with"
            f" dedup.num_perm {params.num_perm} (at most {best:.4f}); raise num_perm or lower recall"
        )
    return solved
