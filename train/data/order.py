"""The order of all sequences of a run, as a pure function of the global sequence number n: no state but n.

    segment         stretch of steps with one mixture, batch and length (`Plan.segments`); in it:
    turn, slot      = divmod(n - segment.n, slots);  the slot's source is fixed, and so is its lane of that source
    lane, turn      the lane's cell number `turn`. A lane walks windows of `window_blocks` chunks, the cells of a window
                    permuted; the chunks of a source (`Cells`) go round its lanes
    epoch, block, sequence   what the chunk holds at that place

So the mixture is exact in every batch, every sequence of a source comes once per epoch, nothing depends on ranks or
workers, and who serves some lanes reads only the blocks of those lanes (MosaicML's canonical nodes, one for each
slot of the batch). When a segment ends, what its lanes had not come to is dealt out first to the lanes of the next,
so that a change of mixture neither loses nor repeats a token (levanter's stages, without its fixed blocks).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.shuffle import key_of, keys_of, permute

if TYPE_CHECKING:
    from corpusmill.train.data.sequences import Cells
    from corpusmill.train.data.plan import Plan

Ints = npt.NDArray[np.int64]


class Address(NamedTuple):
    """Where sequences lie; arrays of equal length. `source` counts the plan's sources, `block` the source's blocks."""

    source: Ints
    epoch: Ints
    block: Ints
    sequence: Ints


@dataclass(frozen=True, eq=False)
class Deal:
    """A source's chunks among its lanes, in one segment: rests of the deal before, then fresh chunks from `first` on.

    `taken[i]`: cells that lane i of the deal before had come to when it ended.
    """

    lanes: int
    window: int  # chunks
    cells: Cells
    first: int = 0
    before: Deal | None = None
    taken: Ints | None = None

    @cached_property
    def rests(self) -> Ints:
        """[lanes of the deal before + 1]: rests counted up to each of its lanes."""
        if self.before is None or self.taken is None:
            return np.zeros(1, dtype=np.int64)
        ends = self.before.heads + self.before.opened(self.taken) * self.span
        return np.concatenate([[0], np.cumsum(ends - self.taken)])

    @cached_property
    def span(self) -> int:
        """Cells in a window."""
        return self.window * self.cells.size

    @cached_property
    def edges(self) -> Ints:
        """[lanes + 1]: where each lane's part of the rests begins; parts are equal to one cell."""
        return np.arange(self.lanes + 1) * self.rests[-1] // self.lanes

    @cached_property
    def heads(self) -> Ints:
        """[lanes]: rests that each lane begins with."""
        return np.diff(self.edges)

    def opened(self, taken: Ints) -> int:
        """Windows of every lane that count as begun when lanes have come to `taken` cells."""
        windows = -(-(taken - self.heads) // self.span)  # rounded up
        return max(int(windows.max()), 0)

    def successor(self, taken: Ints, lanes: int) -> Deal:
        """The deal of the source's next segment, after lanes of this one have come to `taken` cells."""
        first = self.first + self.opened(taken) * self.window * self.lanes
        return Deal(lanes, self.window, self.cells, first, self, taken)

    def locate(self, lane: Ints, turn: Ints) -> tuple[Ints, Ints]:
        """(chunk, place in the chunk) of each lane's cell number `turn`."""
        window, inner = np.divmod(turn - self.heads[lane], self.span)
        first = self.first + window * (self.window * self.lanes) + lane  # names lane and window
        number, place = np.divmod(permute(inner, self.span, keys_of(self._key, first)), self.cells.size)
        chunk = first + number * self.lanes
        rest = np.flatnonzero(window < 0)
        if len(rest) and self.before is not None and self.taken is not None:
            row = self.edges[lane[rest]] + turn[rest]
            owner = np.searchsorted(self.rests, row, side="right") - 1
            chunk[rest], place[rest] = self.before.locate(owner, self.taken[owner] + row - self.rests[owner])
        return chunk, place

    @cached_property
    def _key(self) -> int:
        return key_of(self.cells.seed, self.cells.name, "window")


def order(plan: Plan, n: npt.ArrayLike) -> Address:
    """Addresses of the global sequence numbers `n` (int64, any shape flattened, any order)."""
    numbers = np.asarray(n, dtype=np.int64).ravel()
    result = Address(*(np.empty_like(numbers) for _ in range(4)))
    segments = np.searchsorted(plan.starts, numbers, side="right") - 1
    for s in np.flatnonzero(np.bincount(segments)).tolist():
        segment, here = plan.segments[s], np.flatnonzero(segments == s)
        turn, slot = np.divmod(numbers[here] - segment.n, len(segment.slots))
        result.source[here] = segment.slots[slot]
        for source, deal in segment.deals.items():
            at = np.flatnonzero(segment.slots[slot] == source)
            if len(at):
                mine = here[at]
                chunk, place = deal.locate(segment.lanes[slot[at]], turn[at])
                result.epoch[mine], result.block[mine], result.sequence[mine] = deal.cells.at(chunk, place)
    return result
