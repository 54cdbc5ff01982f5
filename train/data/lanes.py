"""Which slots of a batch belong to a source, so that every part of a batch has the mixture, and which sequences to each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.sequences import Sequences
from corpusmill.train.data.shuffle import key_of, keys_of, permute

Ints = npt.NDArray[np.int64]


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


@dataclass(frozen=True, eq=False)
class LaneAssignment:
    """A source's chunks among its lanes, in one segment: what the assignment before left
    over (`carry_over`), then new chunks from `first` on.

    `taken[i]`: sequences that lane i of the assignment before had come to when it ended.
    """

    lanes: int
    window: int  # chunks
    sequences: Sequences
    first: int = 0
    before: LaneAssignment | None = None
    taken: Ints | None = None

    @cached_property
    def carry_over(self) -> Ints:
        """[lanes of the assignment before + 1]: sequences that it left over, summed up to each of its lanes."""
        if self.before is None or self.taken is None:
            return np.zeros(1, dtype=np.int64)
        ends = self.before.carried_per_lane + self.before.opened(self.taken) * self.span
        return np.concatenate([[0], np.cumsum(ends - self.taken)])

    @cached_property
    def span(self) -> int:
        """Sequences in a window."""
        return self.window * self.sequences.size

    @cached_property
    def edges(self) -> Ints:
        """[lanes + 1]: where each lane's part of what was left over begins; parts are equal to one sequence."""
        edges: Ints = np.arange(self.lanes + 1) * self.carry_over[-1] // self.lanes
        return edges

    @cached_property
    def carried_per_lane(self) -> Ints:
        """[lanes]: left-over sequences that each lane begins with."""
        return np.diff(self.edges)

    def opened(self, taken: Ints) -> int:
        """Windows of every lane that count as begun when lanes have come to `taken` sequences."""
        windows = -(-(taken - self.carried_per_lane) // self.span)  # rounded up
        return max(int(windows.max()), 0)

    def successor(self, taken: Ints, lanes: int) -> LaneAssignment:
        """The assignment of the source's next segment, after lanes of this one have come to `taken` sequences."""
        first = self.first + self.opened(taken) * self.window * self.lanes
        return LaneAssignment(lanes, self.window, self.sequences, first, self, taken)

    def locate(self, lane: Ints, lane_position: Ints) -> tuple[Ints, Ints]:
        """(chunk, place in the chunk) of each lane's sequence number `lane_position`."""
        window, inner = np.divmod(lane_position - self.carried_per_lane[lane], self.span)
        first = self.first + window * (self.window * self.lanes) + lane  # names lane and window
        number, place = np.divmod(permute(inner, self.span, keys_of(self._key, first)), self.sequences.size)
        chunk = first + number * self.lanes
        rest = np.flatnonzero(window < 0)
        if len(rest) and self.before is not None and self.taken is not None:
            row = self.edges[lane[rest]] + lane_position[rest]
            owner = np.searchsorted(self.carry_over, row, side="right") - 1
            chunk[rest], place[rest] = self.before.locate(
                owner, self.taken[owner] + row - self.carry_over[owner]
            )
        return chunk, place

    @cached_property
    def _key(self) -> int:
        return key_of(self.sequences.seed, self.sequences.name, "window")
