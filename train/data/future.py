"""When a block will be read next: the order backwards, so that memory and disk give up first what is wanted last."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.order import Deal
from corpusmill.train.data.plan import Plan, Segment

Ints = npt.NDArray[np.int64]


class Future:
    """The reads of one rank. Exact to a window of its lanes; of leftovers that several blocks share it knows nothing."""

    def __init__(self, plan: Plan, rank: int = 0, world: int = 1) -> None:
        self.plan, self.rank, self.world = plan, rank, world
        self._mine: dict[int, dict[int, npt.NDArray[np.bool_]]] = {}

    def next_use(self, source: int, blocks: Ints, n: int) -> npt.NDArray[np.float64]:
        """The sequence number, at or after n, at which each block of a source is read next; inf: not in this
        segment's present and next epoch of it."""
        number = int(np.searchsorted(self.plan.starts, n, side="right")) - 1
        segment = self.plan.segments[number]
        result = np.full(len(blocks), np.inf)
        deal = segment.deals.get(source)
        if deal is None:
            return result
        mine = self._lanes(number, segment)[source]
        now = (n - segment.n) // len(segment.slots)
        for epoch in self._epochs(deal, now):
            owner, chunk = deal.cells.chunks_of(blocks, epoch)
            window, place = np.divmod(chunk - deal.first, deal.window * deal.lanes)
            lane = place % deal.lanes
            start = deal.heads[lane] + window * deal.span
            # Chunks below the first lie in the rests of an earlier segment: until those are dealt, all may be.
            waits = np.where(window >= 0, start + deal.span > now, now < deal.heads.max())
            ahead = waits & ((window < 0) | mine[lane])
            use = np.where(window >= 0, np.maximum(segment.n + start * len(segment.slots), n), n)
            np.minimum.at(result, owner[ahead], use[ahead].astype(np.float64))
        return result

    def _epochs(self, deal: Deal, now: int) -> range:
        begun = max((now - int(deal.heads.max())) // deal.span, 0) * deal.window * deal.lanes
        first = int(deal.cells.epoch_of(np.array(deal.first + begun)))
        if deal.before is not None and now < deal.heads.max():
            first = max(first - 1, 0)
        return range(first, first + 2)

    def _lanes(self, number: int, segment: Segment) -> dict[int, npt.NDArray[np.bool_]]:
        """Of each source, which of its lanes this rank serves."""
        if number not in self._mine:
            batch = segment.stretch.cells
            share = batch // self.world
            served = np.arange(len(segment.slots)) % batch // share == self.rank
            self._mine = {number: {s: served[segment.slots == s] for s in segment.deals}}
        return self._mine[number]
