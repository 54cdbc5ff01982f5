"""Blocks of tokens, fetched concurrently and ahead of their use, kept in memory, replaced by others if damaged."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import Future

from corpusmill.common.errors import WorkError
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.shards import BlockDocuments
from corpusmill.train.data.cache import Key, Memory, NextUse
from corpusmill.train.data.reader import VERIFY, BlockData, Reader, memory_of, substitutes
from corpusmill.train.data.requests import Closed, Damaged, Log
from corpusmill.train.data.shards import Source

__all__ = ["BlockData", "Blocks", "Key", "NextUse"]
logger = logging.getLogger("corpusmill.train.data")


class Flight:
    """A block being fetched; `ahead` of its use, until a caller waits for it."""

    def __init__(self, key: Key, taken: int, ahead: bool) -> None:
        self.key, self.taken, self.ahead = key, taken, ahead
        self.begun = False
        self.done: Future[BlockData] = Future()


class Blocks:
    """The blocks of some sources, by (source, block) number. Thread-safe.

    In memory are the blocks that are read soonest by `next_use` (without it, the most recently used), up to
    `fetch.memory_mb`, or more while one `get` needs more.

    A block that stays damaged is replaced by another of its source with at least as many tokens, which depends on the
    source's index and the block's number alone, so that every rank and every restart takes the same. Each is reported to
    `log` (default: a warning of `logging`) and listed in `replaced` (damaged -> substitute); with more than
    `fetch.bad_blocks` of them, or if the store does not answer until the deadline, `WorkError` is raised.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        fetch: FetchConfig = FetchConfig(),
        next_use: NextUse | None = None,
        log: Log | None = None,
    ) -> None:
        self.sources, self.fetch = list(sources), fetch
        self.replaced: dict[Key, Key] = {}
        self._log = log or logger.warning
        self._memory: Memory[BlockData] = Memory(int(fetch.memory_mb * 2**20), next_use)
        self._reader = Reader(self.sources, fetch, self._memory, self._log)
        self._damaged: dict[Key, str] = {}
        self._lock = threading.Lock()
        self._work_there = threading.Condition(self._lock)
        self._flights: dict[Key, Flight] = {}  # on their way, or failed and not raised yet
        self._urgent: deque[Flight] = deque()
        self._ahead: deque[Flight] = deque()
        self._pinned: Counter[Key] = Counter()  # blocks that a running get needs
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    @property
    def requests(self) -> int:
        """Requests so far."""
        return self._reader.requests.requests

    @property
    def fetched_bytes(self) -> int:
        """Bytes that came from the store."""
        return self._reader.requests.fetched_bytes

    @property
    def retries(self) -> int:
        """Times that something was asked for again after a failure."""
        return self._reader.requests.retries

    @property
    def hedged(self) -> int:
        """Second requests, because the first was slow."""
        return self._reader.requests.hedged

    def get(self, keys: Iterable[Key], n: int = 0) -> dict[Key, BlockData]:
        """The blocks of these keys, missing ones fetched concurrently; `n`: the sequence number they are read for.

        A damaged block's key has its substitute's data. Raises `WorkError` naming shard and block.
        """
        found: dict[Key, BlockData] = {}
        missing: dict[Key, None] = {}
        with self._lock:
            kept = self._memory.kept
            for key in keys:
                data = kept.get(key)
                if data is None:
                    missing[key] = None
                else:
                    found[key] = data
            self._memory.touch(found, n)
            if not missing:
                return found
            if self._closed:
                raise Closed("the blocks were closed")
            needed = [*found, *missing]
            self._pinned.update(needed)
            flights = [self._wanted(key) for key in missing]
        try:
            for flight in flights:
                found[flight.key] = flight.done.result()
        finally:
            with self._lock:
                for flight in flights:
                    if flight.done.done() and self._flights.get(flight.key) is flight:
                        del self._flights[flight.key]  # it failed, and the error is raised now
                self._pinned.subtract(needed)
                self._pinned = +self._pinned
                self._memory.trim(self._pinned)
        return found

    def read_ahead(self, keys: Iterable[Key], n: int = 0) -> None:
        """Start fetching blocks, in this order, without waiting, as far as they fit in memory without dropping a block that is
        read sooner; `get` raises the error of a failure. `n` is used before the first `get` alone."""
        with self._lock:
            self._memory.begin(n)
            for key in keys:
                if self._closed:
                    return
                if key not in self._memory.kept and key not in self._flights:
                    cost = self._cost(key)
                    if not self._memory.take(key, cost, self._pinned, ahead=True):
                        return
                    self._start(Flight(key, cost, ahead=True))

    def documents(self, key: Key) -> BlockDocuments:
        """The `.json` member of a block, or of its substitute if an earlier `get` found the block damaged: its documents' ids
        and character ranges. Raises `WorkError` if the member itself is damaged."""
        return self._reader.documents(self.replaced.get(key, key))

    def close(self) -> None:
        """Cancel what is under way, and end the threads."""
        with self._lock:
            self._closed = True
            waiting = [flight for flight in self._flights.values() if not flight.begun]
            self._flights.clear()
            self._work_there.notify_all()
        for flight in waiting:
            flight.done.set_exception(Closed("the blocks were closed"))
        self._reader.requests.close()
        for thread in self._threads:
            thread.join()

    def _cost(self, key: Key) -> int:
        return memory_of(self.sources[key[0]].blocks[key[1]][1])

    def _wanted(self, key: Key) -> Flight:
        """The flight of a block that a caller waits for. The lock is held."""
        flight = self._flights.get(key)
        if flight is None:
            cost = self._cost(key)
            self._memory.take(key, cost, self._pinned, ahead=False)
            flight = Flight(key, cost, ahead=False)
            self._start(flight)
        elif flight.ahead:
            flight.ahead = False
            self._urgent.append(flight)  # the thread that takes it second finds it begun
        return flight

    def _start(self, flight: Flight) -> None:
        """The lock is held."""
        self._flights[flight.key] = flight
        (self._ahead if flight.ahead else self._urgent).append(flight)
        if self._idle < len(self._urgent) + len(self._ahead) and len(self._threads) < self.fetch.threads:
            thread = threading.Thread(target=self._work, name=f"fetch-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        else:
            self._work_there.notify()

    def _work(self) -> None:
        """The loop of a thread: first the blocks that callers wait for, then those read ahead."""
        while True:
            with self._lock:
                while not (self._urgent or self._ahead or self._closed):
                    self._idle += 1
                    self._work_there.wait()
                    self._idle -= 1
                if self._closed:
                    return
                flight = (self._urgent or self._ahead).popleft()
                if flight.begun:
                    continue
                flight.begun = True
            try:
                read, data = self._read(flight.key)
            except BaseException as error:
                with self._lock:
                    self._memory.give_back(flight.taken)
                flight.done.set_exception(error)
            else:
                with self._lock:
                    self._memory.put(flight.key, data, flight.taken, self._cost(read), flight.ahead)
                    self._flights.pop(flight.key, None)
                flight.done.set_result(data)

    def _read(self, key: Key) -> tuple[Key, BlockData]:
        """The block, or its first undamaged substitute: key and data."""
        data = self._undamaged(key)
        if data is not None:
            return key, data
        source = self.sources[key[0]]
        for number in substitutes(source, key[1]):
            other = key[0], number
            data = self._undamaged(other)
            if data is not None:
                with self._lock:
                    known = self.replaced.get(key) == other
                    self.replaced[key] = other
                if not known:
                    self._log(
                        f"{self._damage(key)}. In its place, block {source.blocks[number][1].key} is read"
                        f" ({len(self._damaged)} damaged blocks of at most {self.fetch.bad_blocks}; data.fetch.bad_blocks)"
                    )
                return other, data
        raise WorkError(f"{self._damage(key)}. No undamaged block of '{source.name}' is as long. {VERIFY}")

    def _undamaged(self, key: Key) -> BlockData | None:
        """The block; None if it is damaged. Raises `WorkError` if that makes too many."""
        with self._lock:
            if key in self._damaged:
                return None
            data = self._memory.kept.get(key)
        if data is not None:
            return data
        try:
            return self._reader.read(key)
        except Damaged as error:
            with self._lock:
                self._damaged[key] = str(error)
                count = len(self._damaged)
            if count > self.fetch.bad_blocks:
                raise WorkError(
                    f"{self._damage(key)}. Damaged blocks: {count}; data.fetch.bad_blocks lets {self.fetch.bad_blocks} be"
                    f" replaced by others. {VERIFY}; write what is damaged again, or raise data.fetch.bad_blocks"
                ) from None
            return None

    def _damage(self, key: Key) -> str:
        return f"{self._reader.name(key)} is damaged: {self._damaged[key]}"
