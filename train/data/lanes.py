"""How the slots of a batch are dealt to sources, so that every part of it has the mixture."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def largest_remainder(weights: list[float], seats: int) -> list[int]:
    """`seats` dealt in proportion to `weights` (which sum to 1): whole parts first, then the largest rests."""
    exact = np.array(weights, dtype=np.float64) * seats
    counts = np.floor(exact + 1e-9).astype(np.int64)  # 0.3 x 10 is 3, whatever binary fractions make of it
    rest = np.argsort(counts - exact, kind="stable")[: max(seats - int(counts.sum()), 0)]
    counts[rest] += 1
    return [int(count) for count in counts]


def layout(counts: list[int], batch: int) -> Ints:
    """Source of each slot, int64 [sum(counts)]; `counts` are the slots of each source.

    Each batch of `batch` consecutive slots holds of every source its share to one slot; so does, within a batch, every
    part that halving it (or dividing it by its next prime factor) again and again gives. `batch` divides the slots.
    """
    total = sum(counts)
    if batch < 1 or total % batch:
        raise ValueError(f"{total} slots are no whole number of batches of {batch}")
    parts = [np.array(counts, dtype=np.int64)]
    for factor in [total // batch, *_prime_factors(batch)]:
        parts = [piece for part in parts for piece in _split(part, factor)]
    return np.concatenate([np.repeat(np.arange(len(counts)), part) for part in parts]).astype(np.int64)


def _split(counts: Ints, parts: int) -> list[Ints]:
    """`counts` cut in `parts` of equal sums, each count in each part rounded down or up.

    What division leaves over goes round the parts source by source (McNaughton 1959), so no part gets two of one.
    """
    whole, over = np.divmod(counts, parts)
    seats = np.repeat(np.arange(len(counts)), over)
    found = []
    for part in range(parts):
        mine = whole.copy()
        mine[seats[part::parts]] += 1
        found.append(mine)
    return found


def _prime_factors(number: int) -> list[int]:
    factors, prime = [], 2
    while prime * prime <= number:
        while number % prime == 0:
            factors.append(prime)
            number //= prime
        prime += 1
    return [*factors, number] if number > 1 else factors
