"""The engine in a thread of its own. Requests come and pieces of text go by queues; nothing else is shared, apart from
`Request.cancelled`, which anyone may set."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from corpusmill.common.errors import WorkError
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.generate import Piece, Texts
from corpusmill.train.generate.request import Event
from corpusmill.train.generate.serve.metrics import Metrics
from corpusmill.train.log.sinks import log_line

if TYPE_CHECKING:
    from corpusmill.train.generate.generate import Opened
    from corpusmill.train.generate.request import Request

Receive = Callable[[Piece | None], None]  # None: the worker has failed, and nothing will come
Deliver = Callable[[list[tuple[Receive, Piece | None]]], None]


class Full(Exception):
    """As many texts wait as may."""


class Failed(Exception):
    """The engine has failed, or is being stopped."""


@dataclass(eq=False)
class Places:
    """Of texts that were submitted together: taken until all have ended, and what came of them is sent."""

    count: int
    left: int  # texts that have not ended
    sent: bool = False


@dataclass
class _Text:
    receive: Receive
    places: Places
    since: float
    begun: bool = False
    end: str | None = None  # of its text, which may come before the engine's, by a stop string


class Worker:
    """Generates up to `rows` texts at a time, while up to `queue` wait. A text ends with the model's context; it counts until its
    answer is `sent`, since it is kept that long."""

    def __init__(self, opened: Opened, rows: int, queue: int) -> None:
        self.engine = Engine(opened.runner, rows, slide=False, draft=opened.draft)
        self.metrics = Metrics(rows, queue)
        self.error: BaseException | None = None
        self.most = rows + queue
        self._texts = Texts(opened.tokenizer)
        self._open: dict[Request, _Text] = {}  # of the thread alone
        self._count = 0  # of texts accepted and not ended
        self.held = 0  # of these and of those that are being sent
        self._closed = False
        self._inbox: SimpleQueue[tuple[Sequence[Request], Receive, Places, float] | str] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._deliver: Deliver = lambda pieces: None

    def start(self, deliver: Deliver) -> None:
        """`deliver` is called in the worker's thread with the pieces of each step, and with whom they are for."""
        self._deliver = deliver
        self._thread.start()

    def submit(self, requests: Sequence[Request], receive: Receive) -> Places:
        """Queue all of them or none. Raises `Full` and `Failed`."""
        places = Places(len(requests), len(requests))
        with self.metrics.lock:
            if self._closed:
                raise Failed
            if self.held + len(requests) > self.most:
                raise Full
            self.held += len(requests)
            self._count += len(requests)
            self.metrics.accepted += len(requests)
            self.metrics.waiting += len(requests)
            # Under the lock: nothing comes into the inbox after `stop`.
            self._inbox.put((requests, receive, places, time.monotonic()))
        return places

    def sent(self, places: Places) -> None:
        """What has come of these texts is sent, or nobody wants it any more."""
        with self.metrics.lock:
            if not places.sent:
                places.sent = True
                self._release(places)

    def _release(self, places: Places) -> None:
        """Under the lock, after a change of `places`."""
        if places.sent and not places.left:
            self.held -= places.count

    @property
    def open(self) -> int:
        """Texts that are not ended."""
        return self._count

    def cancel_all(self) -> None:
        """End what runs and waits."""
        self._inbox.put("cancel")

    def stop(self) -> None:
        """Cancel what is left and end the thread."""
        with self.metrics.lock:
            self._closed = True
            self._inbox.put("stop")
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._take():
                self._step()
            while self.engine.busy:
                self._step()
        except BaseException as error:  # a panic of a library in Rust is no `Exception`
            self.error = error
            with self.metrics.lock:
                self._closed = True
            self._fail()

    def _take(self) -> bool:
        """Take in what has come, and wait for something if there is nothing to generate; False if it is to stop."""
        while True:
            try:
                found = self._inbox.get(block=not self.engine.busy)
            except Empty:
                return True
            if isinstance(found, str):
                for request in self._open:
                    request.cancelled = True
                if found == "stop":
                    return False
                continue
            requests, receive, places, since = found
            for request in requests:
                self._open[request] = _Text(receive, places, since)
                try:
                    self._texts.begin(request)
                    self.engine.submit(request)
                except BaseException as error:
                    self._begin_failed(request, error)

    def _begin_failed(self, request: Request, error: BaseException) -> None:
        """End a text that the engine did not take in."""
        text, event = self._open[request], Event(request, None, "failed")
        piece = self._failed(event, error)
        with self.metrics.lock:
            self._account(event, text, time.monotonic())
            self.metrics.waiting = self._count - self.metrics.active
        self._deliver([(text.receive, piece)])

    def _failed(self, event: Event, error: BaseException) -> Piece:
        """The last piece of a text in which something went wrong; the others go on."""
        request = event.request
        request.fail(error)
        request.cancelled = True
        self._texts.forget(request)
        return Piece(request, "", "failed", event)

    def _step(self) -> None:
        events = self.engine.step()
        now = time.monotonic()
        found: list[tuple[Receive, Piece | None]] = []
        with self.metrics.lock:
            for event in events:
                text = self._open[event.request]
                try:
                    piece = self._texts.piece(event)
                except BaseException as error:
                    piece = self._failed(event, error)
                if piece is not None:
                    text.end = piece.end or text.end
                    found.append((text.receive, piece))
                self._account(event, text, now)
            self.metrics.active = len(self.engine.active)
            self.metrics.waiting = self._count - self.metrics.active
        if found:
            self._deliver(found)

    def _account(self, event: Event, text: _Text, now: float) -> None:
        metrics, request = self.metrics, event.request
        if not text.begun and request.tokens:
            text.begun = True
            metrics.first_token.add(now - text.since)
        if event.end is not None:
            del self._open[request]
            self._count -= 1
            text.places.left -= 1
            self._release(text.places)
            metrics.ended[text.end or event.end] += 1
            metrics.text.add(now - text.since)
            metrics.prompt_tokens += len(request.prompt)
            metrics.generated_tokens += len(request.tokens)
            if isinstance(request.failure, WorkError):
                log_line(f"serve: a text failed: {request.failure}")

    def _fail(self) -> None:
        """Say to all who wait that nothing will come."""
        found: list[tuple[Receive, Piece | None]] = [(text.receive, None) for text in self._open.values()]
        while True:
            try:
                one = self._inbox.get_nowait()
            except Empty:
                break
            if not isinstance(one, str):
                found += [(one[1], None)] * len(one[0])
                self._open |= {request: _Text(*one[1:]) for request in one[0]}
        with self.metrics.lock:
            self.metrics.ended["failed"] += len(self._open)
            self._count = self.held = self.metrics.active = self.metrics.waiting = 0
        self._open.clear()
        self._deliver(found)
