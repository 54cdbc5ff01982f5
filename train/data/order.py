"""The order of all sequences of a run, as a pure function of the global sequence number n: no state but n.

    segment                  steps with one mixture, batch and length (`Plan.segments`); in it:
    cycle, slot              divmod(n - segment.n, slots); the slot's source is fixed, and so is its place among the source's
    made                     = cycle * (slots of the source) + place: how many of the source were drawn before
    draw                     its number: a lane has every so-many-th one, and slots next to each other in their batches
    epoch, place             a source's draws are its epochs, one after the other, each a permutation of its sequences in
                             which a lane's draws read `window_blocks` chunks at a time (`corpusmill.train.data.lanes`)
    block, sequence          what the epoch has at that place

So the mixture is exact in every `lanes` sequences and within one sequence in every batch, every sequence of a source occurs
once per epoch and before any occurs again, nothing depends on ranks or workers, and a rank reads only the blocks of its own
slots (MosaicML's canonical nodes, one for each slot). When a segment ends within an epoch, its rest goes first to the lanes of
the next, so that a change of mixture neither loses nor repeats a token (levanter's stages, without its fixed blocks).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.plan import Plan, Segment

Ints = npt.NDArray[np.int64]


class Address(NamedTuple):
    """Where sequences are; arrays of equal length. `source` indexes the plan's sources, `block` the source's blocks."""

    source: Ints
    epoch: Ints
    block: Ints
    sequence: Ints


def order(plan: Plan, n: npt.ArrayLike) -> Address:
    """Addresses of the global sequence numbers `n` (int64, any shape flattened, any order)."""
    numbers = np.asarray(n, dtype=np.int64).ravel()
    result = Address(*(np.empty_like(numbers) for _ in range(4)))
    segments = np.searchsorted(plan.starts, numbers, side="right") - 1
    for s in np.flatnonzero(np.bincount(segments)).tolist():
        segment, here = plan.segments[s], np.flatnonzero(segments == s)
        cycle, slot = np.divmod(numbers[here] - segment.n, len(segment.slots))
        result.source[here] = segment.slots[slot]
        for source, assignment in segment.assignments.items():
            at = np.flatnonzero(segment.slots[slot] == source)
            if len(at):
                mine = here[at]
                made = cycle[at] * segment.stage.counts[source] + segment.numbers[slot[at]]
                epoch, place = assignment.locate(made)
                block, sequence = assignment.sequences.at(epoch, place)
                result.epoch[mine], result.block[mine], result.sequence[mine] = epoch, block, sequence
    return result


class Future:
    """When a rank reads a block next: the inverse of the order, for caches to drop first what is read last. Exact to a window
    of a lane. Not taken into account are chunks of leftovers, the draws of a cycle that a segment's end cuts, and that other
    ranks may have a lane's draws in a cycle in which an epoch ends."""

    def __init__(self, plan: Plan, rank: int = 0, world: int = 1) -> None:
        self.plan, self.rank, self.world = plan, rank, world
        self._mine: dict[int, dict[int, npt.NDArray[np.bool_]]] = {}

    def next_use(self, source: int, blocks: Ints, n: int) -> npt.NDArray[np.float64]:
        """The sequence number, at or after n, at which each block of a source is read next; inf: not in this
        segment's present and next epoch of it."""
        number = int(np.searchsorted(self.plan.starts, n, side="right")) - 1
        segment = self.plan.segments[number]
        result = np.full(len(blocks), np.inf)
        assignment = segment.assignments.get(source)
        if assignment is None:
            return result
        mine = self._lanes(number, segment)[source]
        slots = np.flatnonzero(segment.slots == source)
        now = segment.draws(source, n)
        present = assignment.epoch_of(now)
        for epoch in range(present, present + 2):
            owner, chunk = assignment.sequences.chunks_of(blocks, epoch)
            first, last = assignment.reach(epoch, chunk)
            own = mine[first % assignment.lanes] | mine[last % assignment.lanes]
            # What an earlier segment left in one lane may be dealt to the end of one and the beginning of the next.
            parted = first % assignment.lanes != last % assignment.lanes
            first, last = np.where(parted, 0, first), np.where(parted, assignment.carried, last)
            ahead = (assignment.made_before(last) >= now) & own
            cycle, place = np.divmod(assignment.made_before(first), len(slots))
            use = np.maximum(segment.n + cycle * len(segment.slots) + slots[place], n)
            np.minimum.at(result, owner[ahead], use[ahead].astype(np.float64))
        return result

    def _lanes(self, number: int, segment: Segment) -> dict[int, npt.NDArray[np.bool_]]:
        """Of each source, which of its lanes this rank has slots of."""
        if number not in self._mine:
            batch = segment.stage.sequences
            served = np.arange(len(segment.slots)) % batch // (batch // self.world) == self.rank
            mine = {}
            for source, assignment in segment.assignments.items():
                mine[source] = np.zeros(assignment.lanes, dtype=np.bool_)
                slots = served[segment.slots == source]
                lanes = assignment.turns[np.resize(slots, len(assignment.turns))] % assignment.lanes
                mine[source][lanes] = True
            self._mine = {number: mine}
        return self._mine[number]
