"""One range of one object, exactly: retries of the whole range with a deadline, a timeout for each request, `If-Match`, hedging.

Wrong bytes and no answer end differently. A range whose bytes stay wrong is `Damaged`, and may be replaced; a store that
does not answer may do so later, so it is a `WorkError` at the deadline: a stream that skipped the block would depend on the
state of the network.

Remote requests run on an event loop in a separate thread, so that one which takes too long is cancelled. Pauses are
exponential with full jitter (Brooker 2015, "Exponential Backoff And Jitter"); a second request for a slow answer follows
Dean & Barroso 2013, "The Tail at Scale".
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any, TypeVar

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Changed, Folder, Tagged, Truncated
from corpusmill.common.stores import Missing
from corpusmill.schemas.data import FetchConfig

Result = TypeVar("Result")
Log = Callable[[str], None]
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds
SAMPLES = 32  # answers needed before any counts as slow
FLOOR = 0.05  # seconds before which no answer counts as slow
SHARE = 0.1  # of requests that may be second ones, so that the load on a slow store does not double

logger = logging.getLogger("corpusmill.train.data")


class Wrong(Exception):
    """These are not the bytes that were asked for; what a `check` raises."""


class Damaged(Exception):
    """The store answered `attempts` times with wrong or missing bytes; the message lists the answers."""


class Closed(WorkError):
    """Reading was ended by `close`."""


class Requests:
    """Reads ranges of objects. Thread-safe: each call runs in its caller's thread.

    `requests`, `retries`, `hedged` (second requests for a slow answer) and `fetched_bytes` count what was done.
    """

    def __init__(self, config: FetchConfig, log: Log | None = None) -> None:
        self.config = config
        self.requests = self.retries = self.hedged = self.fetched_bytes = 0
        self._log = log or logger.warning
        self._tags: dict[str, str] = {}  # URL -> tag of the object that is read
        self._others: dict[str, tuple[str, str]] = {}  # URL -> (tag that was read first, present tag)
        self._seconds: deque[float] = deque(maxlen=256)  # of the newest answers
        self._slow = float("inf")  # seconds after which an answer is slow
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def read(self, file: Folder, offset: int, size: int, check: Callable[[Any], Result]) -> Result:
        """`check` of `size` bytes (any buffer) from `offset`, requested again whenever it raises `Wrong`.

        Raises `Damaged` after `attempts` answers that were wrong, truncated or "no such object", `WorkError` if there is no
        right answer by the deadline.
        """

        def whole(answer: Tagged) -> Result:
            if len(answer.data) != size:
                ends = f", for the object ends at byte {answer.size}" if answer.size < offset + size else ""
                raise Wrong(f"truncated: {len(answer.data)} of {size} bytes came{ends}")
            return check(answer.data)

        return self._repeat(file, lambda limit: self._attempt(file, offset, size, whole, limit))

    def tag(self, file: Folder) -> str:
        """The tag of the object, requested if unknown. Empty: the store has no (strong) one."""
        with self._lock:
            tag = self._tags.get(file.url)
        if tag is not None:
            return tag
        return self._repeat(file, lambda limit: self._attempt(file, 0, 0, lambda answer: answer.tag, limit))

    def close(self) -> None:
        """End pauses and requests; their callers get a `WorkError`."""
        self._closed.set()
        with self._lock:
            loop, self._loop = self._loop, None
        if loop and self._thread:
            asyncio.run_coroutine_threadsafe(_end(), loop)
            self._thread.join()
            loop.close()

    def _repeat(self, file: Folder, attempt: Callable[[float], Result]) -> Result:
        began, pause, wrong = time.monotonic(), FIRST_PAUSE, 0
        met: Counter[str] = Counter()
        while True:
            spent = time.monotonic() - began
            try:
                return attempt(min(self.config.attempt_s, max(self.config.deadline_s - spent, 0.001)))
            except (Wrong, Missing, Truncated) as error:
                wrong += 1
                met[self._plain(file, error)] += 1
                damaged = wrong == self.config.attempts
            except (WorkError, Changed) as error:
                met[self._plain(file, error)] += 1
                damaged = False
            if self._closed.is_set():
                raise Closed("reading was ended")
            nap = pause * random.random()
            spent = time.monotonic() - began
            if damaged or spent + nap > self.config.deadline_s:
                attempts = "; ".join(f"{text} ({times} times)" for text, times in met.most_common())
                attempts += f"; asked {met.total()} times in {spent:.1f} s"
                if damaged:
                    raise Damaged(attempts)
                raise WorkError(attempts)
            with self._lock:
                self.retries += 1
            self._closed.wait(nap)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _attempt(
        self, file: Folder, offset: int, size: int, check: Callable[[Tagged], Result], limit: float
    ) -> Result:
        with self._lock:
            tag = self._tags.get(file.url, "")
        try:
            return self._ask(file, offset, size, tag, check, limit)
        except Changed:
            # The object was replaced, perhaps by the same bytes: the check decides.
            return self._ask(file, offset, size, "", check, limit)

    def _ask(
        self, file: Folder, offset: int, size: int, tag: str, check: Callable[[Tagged], Result], limit: float
    ) -> Result:
        """One request, and a second one if the first is slow: `check` of the first answer that passes it."""
        began = time.monotonic()
        under_way = {self._send(file, offset, size, tag)}
        every = set(under_way)
        failure: Exception | None = None
        try:
            while under_way:
                spent = time.monotonic() - began
                second = size > 0 and len(every) == 1 and self._may_hedge(file)
                done, under_way = wait(
                    under_way,
                    max(min(limit, self._slow if second else limit) - spent, 0),
                    return_when=FIRST_COMPLETED,
                )
                spent = time.monotonic() - began
                if not done and second and self._slow <= spent < limit:
                    with self._lock:
                        self.hedged += 1
                    under_way.add(self._send(file, offset, size, tag))
                    every |= under_way
                elif not done and spent >= limit:
                    raise WorkError(f"no answer within {limit:.3g} s")
                for future in done:
                    try:
                        answer = future.result()
                        self._learn(file, answer, spent, size > 0)
                        result = check(answer)
                        if answer.tag != tag:
                            self._settle(file, answer)
                        return result
                    except CancelledError:
                        failure = Closed("reading was ended")
                    except Wrong as error:
                        failure = error
                        if other := self._others.get(file.url):
                            since = f"the object was replaced since: ETag {other[0]}, now {other[1]}"
                            failure = Wrong(f"{error} ({since})")
                    except Exception as error:
                        failure = error
            raise failure or WorkError("no answer")
        finally:
            for future in every:
                future.cancel()

    def _send(self, file: Folder, offset: int, size: int, tag: str) -> Future[Tagged]:
        with self._lock:
            self.requests += 1
        if file.local:  # in this thread, since reads of a file system cannot be cancelled
            answer: Future[Tagged] = Future()
            try:
                answer.set_result(file.read_tagged(offset, size, tag))
            except Exception as error:
                answer.set_exception(error)
            return answer
        with self._lock:
            if self._closed.is_set():
                raise Closed("reading was ended")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="requests", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(file.read_tagged_async(offset, size, tag), self._loop)

    def _may_hedge(self, file: Folder) -> bool:
        return self.config.hedge and not file.local and self.hedged < SHARE * self.requests

    def _learn(self, file: Folder, answer: Tagged, seconds: float, body: bool) -> None:
        with self._lock:
            self.fetched_bytes += len(answer.data)
            first = self._tags.setdefault(file.url, answer.tag)
            if first != answer.tag:
                self._others[file.url] = (first, answer.tag)
            if body:
                self._seconds.append(seconds)
                if len(self._seconds) >= SAMPLES:
                    self._slow = max(sorted(self._seconds)[int(0.99 * len(self._seconds))], FLOOR)

    def _settle(self, file: Folder, answer: Tagged) -> None:
        """The object was replaced by one with the right bytes: continue with it."""
        with self._lock:
            first, self._tags[file.url] = self._tags[file.url], answer.tag
        if first != answer.tag:
            self._log(
                f"{file}: replaced since it was first read (ETag {first}, now {answer.tag}), with the same bytes as far"
                " as they are read; reading goes on, each block against its checksum"
            )

    def _plain(self, file: Folder, error: Exception) -> str:
        """The error without the URL (the caller names it) and without varying times."""
        text = str(error).removeprefix(f"{file}: ").removeprefix("cannot read: ")
        return text.rpartition(" - ")[2].rstrip(": ") or type(error).__name__


async def _end() -> None:
    """Cancel every request of this loop, and stop it when they are gone."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    asyncio.get_running_loop().stop()
