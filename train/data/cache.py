"""Caches of blocks. In memory: the blocks that are read soonest, since the future is known (Belady 1966); if it is not, the
most recently used. On disk: fetched ranges in a local folder between runs, by URL, tag and range, up to a size.

The folder is not trusted: a range from it is checked against the block's checksum, as one from the store is. Several
processes may share it; files appear complete, by a rename.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder

Key = tuple[int, int]  # (source, block)
NextUse = Callable[[int, npt.NDArray[np.int64], int], npt.NDArray[np.float64]]
Data = TypeVar("Data")
FREED = 16  # 1/16 of the memory is freed at a time when the future is known: it takes a pass over all blocks


class Memory(Generic[Data]):
    """`kept`: blocks by key. Not thread-safe: its owner's lock guards it.

    Bytes are reserved before a block is fetched and released when it is dropped, so that blocks under way count.
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
        """Set `n` as the start, if nothing was used yet."""
        if self.n is None:
            self.n = n

    def take(self, key: Key, cost: int, pinned: Collection[Key], ahead: bool) -> bool:
        """Reserve `cost` bytes for a block. If it is read `ahead`, only without dropping a block that is used before it:
        otherwise returns False, and nothing is reserved."""
        if self.used + cost > self.capacity:
            before = self.next_uses([key])[0] if ahead and self.next_use else float("-inf")
            self._free(cost, before, pinned, keep_unread=ahead)
            if ahead and self.used + cost > self.capacity:
                return False
        self.used += cost
        return True

    def put(self, key: Key, data: Any, taken: int, cost: int, unread: bool) -> None:
        """Keep a block that has arrived: it costs `cost`, for which `taken` bytes were reserved."""
        self.used += cost - taken
        self.kept[key], self._cost[key] = data, cost
        if unread and self.next_use is None:
            self.unread.add(key)

    def give_back(self, taken: int) -> None:
        """Release the bytes of a block that did not arrive."""
        self.used -= taken

    def trim(self, pinned: Collection[Key]) -> None:
        """Drop what exceeds the memory."""
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
        """Drop blocks until `cost` bytes are free, of those that are not pinned and used after `before`."""
        if self.next_use is None:
            goal = self.capacity - cost
            for key in [key for key in self.kept if key not in pinned]:
                if self.used <= goal:
                    return
                if not (keep_unread and key in self.unread):
                    self._drop(key)
            return
        goal = self.capacity - max(cost, self.capacity // FREED)
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


RANGE = re.compile(r"[0-9a-f]{32}-[0-9]+-[0-9]+")
UNFINISHED = re.compile(r"[0-9]+-[0-9]+\.part")
ABANDONED = 3600.0  # seconds after which an unfinished file is assumed to be that of a killed process
PART = 16  # 1/16 of the size is freed at a time, and written before the folder is listed again

Uses = Callable[[Sequence["Range"]], Sequence[float | None]]
logger = logging.getLogger("corpusmill.train.data")


class Range(NamedTuple):
    """A range of one object as it was at one time: `of` is a hash of its URL and tag."""

    of: str
    start: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.of}-{self.start}-{self.size}"


def object_hash(file: Folder, tag: str) -> str:
    """What the ranges of this object have in common."""
    return checksum(f"{file.url}\n{tag}".encode())


class DiskCache:
    """Up to `limit` bytes of ranges in `folder`. Thread-safe.

    When it is full, ranges of unknown use are deleted first (the oldest first), then those used furthest in the future:
    `uses` gives, per range, the sequence number of the next use, infinity for never and None for unknown.

    The limit holds for one process. Of several that share the folder, each lists it after every 1/16 of `limit` that it
    wrote itself, so together they may exceed it by 1/16 each. Raises `UserError` if the folder cannot be made; a disk that
    fails later is reported once, and the cache is no longer used.
    """

    def __init__(
        self, folder: str, limit: int, uses: Uses | None = None, log: Callable[[str], None] | None = None
    ) -> None:
        self.folder, self.limit = Path(folder).expanduser(), limit
        self._uses, self._log = uses or (lambda ranges: [None] * len(ranges)), log or logger.warning
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._writing = 0  # bytes that are being written
        self._off = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock:
                self._space = self._make_space(0)
        except OSError as error:
            raise UserError(
                f"data.fetch.cache: {folder}: cannot be used: {error.strerror}; give a local folder that can be written to"
            ) from None

    def get(self, wanted: Range) -> bytes | None:
        """The bytes of a range, unchecked; None if they are not there."""
        try:
            return (self.folder / wanted.name).read_bytes()
        except OSError:
            return None

    def drop(self, damaged: Range) -> None:
        """Forget a range."""
        with contextlib.suppress(OSError):
            (self.folder / damaged.name).unlink(missing_ok=True)

    def put(self, found: Range, data: Any) -> None:
        """Keep the bytes (any buffer) of a range."""
        if self._off or len(data) > self.limit:
            return
        part = self.folder / f"{os.getpid()}-{next(self._numbers)}.part"
        try:
            with self._lock:
                if len(data) > self._space:
                    self._space = self._make_space(len(data))
                self._space -= len(data)
                self._writing += len(data)
            try:
                part.write_bytes(data)
                part.replace(self.folder / found.name)
            finally:
                with self._lock:
                    self._writing -= len(data)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            if not self._off:
                self._off = True
                self._log(f"{self.folder}: blocks are no longer kept there: {error.strerror}")

    def _make_space(self, size: int) -> int:
        """Delete the ranges needed least until `size` more bytes fit; returns the bytes to write before the next listing."""
        there: list[tuple[Range, int, float]] = []
        total, mine = self._writing, f"{os.getpid()}-"
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    if RANGE.fullmatch(entry.name):
                        of, start, length = entry.name.split("-")
                        status = entry.stat()
                        there.append((Range(of, int(start), int(length)), status.st_size, status.st_mtime))
                        total += status.st_size
                    elif UNFINISHED.fullmatch(entry.name):
                        if time.time() - entry.stat().st_mtime > ABANDONED:
                            Path(entry.path).unlink()
                        elif not entry.name.startswith(mine):
                            total += entry.stat().st_size
        if total + size > self.limit:
            uses = self._uses([kept for kept, _, _ in there])
            # Unknown ones by age, then known ones by use: the first of them go.
            pairs = zip(there, uses, strict=True)
            rank = [(0, at) if use is None else (1, -use) for (_, _, at), use in pairs]
            goal = self.limit - max(size, self.limit // PART)
            for number in sorted(range(len(there)), key=rank.__getitem__):
                if total <= goal:
                    break
                self.drop(there[number][0])
                total -= there[number][1]
        return max(min(self.limit - total, max(size, self.limit // PART)), size)
