"""Which blocks stay in memory: those used again soonest, for the future is known (Belady 1966).

Where it is not known, the least recently used go first.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Key = tuple[int, int]  # (source, block)
NextUse = Callable[[int, npt.NDArray[np.int64], int], npt.NDArray[np.float64]]
Data = TypeVar("Data")
PART = 16  # of the future's order, 1/16 of the memory is freed at a time: it costs one look at all blocks


class Memory(Generic[Data]):
    """`kept`: blocks by key. Not thread-safe: its owner's lock guards it.

    Bytes are taken before a block is fetched and given back when it goes, so that what is on its way counts.
    `next_use(source, blocks, n)` gives the sequence number at or after n at which each block is read next.
    """

    def __init__(self, capacity: int, next_use: NextUse | None) -> None:
        self.capacity, self.used = capacity, 0
        self.n: int | None = None  # uses count from this sequence number on
        self.kept: OrderedDict[Key, Data] = OrderedDict()
        self.unread: set[Key] = set()  # read ahead, and not asked for yet
        self.next_use = next_use
        self._cost: dict[Key, int] = {}
        self._use: dict[Key, float] = {}  # next use of kept blocks, valid while it is not before n

    def touch(self, keys: Iterable[Key], n: int) -> None:
        """These kept blocks are used at `n`."""
        if self.n is not None and n < self.n:
            self._use.clear()
        self.n = n
        if self.next_use is None:
            for key in keys:
                self.kept.move_to_end(key)
        if self.unread:
            self.unread.difference_update(keys)

    def begin(self, n: int) -> None:
        """Nothing was used yet, and `n` comes first."""
        if self.n is None:
            self.n = n

    def take(self, key: Key, cost: int, pinned: Collection[Key], ahead: bool) -> bool:
        """Take `cost` bytes for a block. If it is read ahead, only where no block has to go that is used before it:
        else False, and nothing is taken."""
        if self.used + cost > self.capacity:
            before = self.next_uses([key])[0] if ahead and self.next_use else float("-inf")
            self._free(cost, before, pinned, keep_unread=ahead)
            if ahead and self.used + cost > self.capacity:
                return False
        self.used += cost
        return True

    def put(self, key: Key, data: Any, taken: int, cost: int, unread: bool) -> None:
        """The block came: it costs `cost`, for which `taken` bytes were taken."""
        self.used += cost - taken
        self.kept[key], self._cost[key] = data, cost
        if unread and self.next_use is None:
            self.unread.add(key)

    def give_back(self, taken: int) -> None:
        """The block did not come."""
        self.used -= taken

    def trim(self, pinned: Collection[Key]) -> None:
        """Let go of what exceeds the memory."""
        if self.used > self.capacity:
            self._free(0, float("-inf"), pinned, keep_unread=False)

    def next_uses(self, keys: list[Key]) -> npt.NDArray[np.float64]:
        """Next use of each block, at or after n."""
        uses = np.full(len(keys), np.inf)
        if self.next_use:
            places: dict[int, list[int]] = defaultdict(list)
            for place, (source, _) in enumerate(keys):
                places[source].append(place)
            for source, here in places.items():
                blocks = np.array([keys[place][1] for place in here], dtype=np.int64)
                uses[here] = self.next_use(source, blocks, self.n or 0)
        return uses

    def _free(self, cost: int, before: float, pinned: Collection[Key], keep_unread: bool) -> None:
        """Drop blocks until `cost` bytes are free, as far as they are not pinned and used after `before`."""
        if self.next_use is None:
            goal = self.capacity - cost
            for key in [key for key in self.kept if key not in pinned]:
                if self.used <= goal:
                    return
                if not (keep_unread and key in self.unread):
                    self._drop(key)
            return
        goal = self.capacity - max(cost, self.capacity // PART)
        keys = [key for key in self.kept if key not in pinned]
        stale = [key for key in keys if self._use.get(key, -1.0) < (self.n or 0)]
        self._use.update(zip(stale, self.next_uses(stale).tolist(), strict=True))
        for use, key in sorted(((self._use[key], key) for key in keys), reverse=True):
            if self.used <= goal or use <= before:
                return
            self._drop(key)

    def _drop(self, key: Key) -> None:
        del self.kept[key]
        self.used -= self._cost.pop(key)
        self._use.pop(key, None)
        self.unread.discard(key)
