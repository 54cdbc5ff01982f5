"""The workers of a cluster while a run uses them, in the log alone: a thread beside the run, which asks the scheduler.

Workers that come and go are events of the scheduler; the rest is found by looking every few seconds. What is worth a line:
`corpusmill.pipeline.engine.observer`. Where no worker is left, or the scheduler does not answer, the step under way is given up.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError, WorkError
from corpusmill.pipeline.engine.local_workers import replace_workers
from corpusmill.pipeline.engine.observer import Observer, Seen, Step
from corpusmill.pipeline.engine.stage import Item, Result

LOOK = 5.0  # seconds between looks at the cluster
ANSWER = 30.0  # seconds in which a scheduler at work answers


class Answer(NamedTuple):
    """The result of a task, and where and how long it ran."""

    worker: str
    host: str
    seconds: float
    result: Any


def answered(function: Callable[[Item], Result], item: Item, named: bool) -> Answer:
    """`function(item)`; called on a worker. `named`: errors say on which."""
    from distributed import get_worker

    start, worker, host = time.monotonic(), get_worker().address, socket.gethostname()
    try:
        result = function(item)
    except (UserError, WorkError) as error:
        if named:
            error.args = (f"{error} (on worker {worker}, host {host})", *error.args[1:])
        raise
    return Answer(worker, host, time.monotonic() - start, result)


class Watch:
    """The thread. `step`: the tasks under way, if any. Without a worker, or an answer of a scheduler by address, for
    `patience` seconds the step is given up."""

    def __init__(self, client: Any, address: str | None, patience: float, log: Callable[[str], None]) -> None:
        self.client, self.address, self.patience, self.log = client, address, patience, log
        self.observer = Observer()
        self.step: Step | None = None
        self._events: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._scheduler = ""
        self._alone = self._unanswered = 0.0  # since when: no worker; no answer
        self._thread = threading.Thread(target=self._run, daemon=True)
        client.subscribe_topic("all", self._event)
        self._meet(client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._events.put(None)
        with contextlib.suppress(Exception):
            self.client.unsubscribe_topic("all")
        # One that starts workers must have ended before the cluster is closed.
        self._thread.join(ANSWER if self.client.cluster is not None else 1.0)

    def _event(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and message.get("action") in ("add-worker", "remove-worker"):
            self._events.put(message)

    def _meet(self, identity: dict[str, Any]) -> None:
        """The scheduler, for the first time or after its restart."""
        self._scheduler, self.observer.workers = identity["id"], set(identity["workers"])

    def _run(self) -> None:
        pause = min(LOOK, self.patience)
        looked = time.monotonic()
        while True:
            events: list[dict[str, Any] | None] = []
            with contextlib.suppress(Empty):
                events.append(self._events.get(timeout=max(0.0, looked + pause - time.monotonic())))
                while events[-1] is not None:  # those that come at once are one line
                    events.append(self._events.get(timeout=0.2))
            self._log(self._event_lines([event for event in events if event is not None]))
            if None in events:
                return
            if time.monotonic() - looked >= pause:
                with contextlib.suppress(Exception):  # the client is being closed
                    self._log(self._look())
                looked = time.monotonic()

    def _log(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.log(line)

    def _event_lines(self, events: Sequence[dict[str, Any]]) -> list[str]:
        lines, step, known = [], self.step, self.observer.workers
        new = [e["worker"] for e in events if e["action"] == "add-worker" and e["worker"] not in known]
        gone: dict[str, int] = {}
        for event in events:
            if event["action"] == "remove-worker":
                tasks = event.get("processing-tasks", ())
                gone[event["worker"]] = sum(step is not None and key in step.keys for key in tasks)
        if new:
            lines += self.observer.joined(new)
        if gone:
            lines += self.observer.lost(gone)
            if not self.observer.workers:
                lines.append(f"no worker is left; waiting for one, up to {self.patience:.0f} s")
        return lines

    def _look(self) -> list[str]:
        now = time.monotonic()
        try:
            identity = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER)
            tasks = self.client.sync(self.client.scheduler.processing, workers=None, callback_timeout=ANSWER)
        except (OSError, TimeoutError):
            return self._no_answer(now)
        self._unanswered = 0.0
        if identity["id"] != self._scheduler:  # the client found its way to another one by itself
            self.client.subscribe_topic("all", self._event)
            self._meet(identity)
        cluster = self.client.cluster
        lines = replace_workers(cluster) if cluster is not None else []
        self._check_alone(now, identity["workers"])
        workers = {
            address: Seen(worker["last_seen"], worker["nthreads"])
            for address, worker in identity["workers"].items()
        }
        return lines + self.observer.look(now, workers, tasks, self.step)

    def _no_answer(self, now: float) -> list[str]:
        self._unanswered = self._unanswered or now - ANSWER
        silence = now - self._unanswered
        if not self.address:
            return []  # the scheduler is a thread of this process, which may be busy
        if silence > self.patience:
            self._give_up(f"--scheduler {self.address}: no answer for {silence:.0f} s; restart the scheduler")
        return [f"the scheduler at {self.address} has not answered for {silence:.0f} s"]

    def _check_alone(self, now: float, workers: Mapping[str, Any]) -> None:
        """Give up if there is no worker and none comes back."""
        if workers or self.step is None:
            self._alone = 0.0
        else:
            self._alone = self._alone or now
            if now - self._alone > self.patience:
                start = (
                    f"; start some with `dask worker {self.client.scheduler.address}`" if self.address else ""
                )
                self._give_up(
                    f"no worker has been alive for {self.patience:.0f} s, and none came back (out of memory?){start}"
                )

    def _give_up(self, reason: str) -> None:
        if (step := self.step) is not None:
            step.gave_up = WorkError(f"{reason}; run the same command again")
            step.inbox.put(None)
