"""The workers of a cluster while a run uses them: which joined, were lost, give no sign of life or are slow, in the log alone.

A thread beside the run. Workers that come and go are events of the scheduler; the rest is found by looking every few seconds. No
clock of another machine is read: a worker is silent if the time of its last sign, whatever it is, does not change.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import quantity
from corpusmill.pipeline.engine.local_workers import replace_workers
from corpusmill.pipeline.engine.stage import Item, Result

LOOK = 5.0  # seconds between looks at the cluster
ANSWER = 30.0  # seconds in which a scheduler at work answers
SILENT = 60.0  # seconds without a sign after which a worker is named; they send one every few seconds
SLOW_SECONDS, SLOW_TIMES = 60.0, 5.0  # a slow task: at least so long, and so many times what is expected
ENOUGH = 3  # finished tasks to expect something from
NAMED = 3  # workers that come or go at once and are named, before they are only counted


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


def name_of(item: Any) -> str:
    """What a message calls the task on this item."""
    name = str(item)
    return name if len(name) <= 100 else f"{name[:100]}…"


@dataclass
class Step:
    """The tasks of one call of `map`. `inbox` has the futures that are done, and None if there is a reason to give up."""

    label: str
    items: Sequence[Any]
    sizes: Sequence[int] | None = None
    keys: dict[str, int] = field(default_factory=dict)  # of tasks under way -> index of the item
    inbox: SimpleQueue[Any] = field(default_factory=SimpleQueue)
    gave_up: WorkError | None = None
    finished: list[tuple[int, float]] = field(default_factory=list)  # index of the item, seconds

    def expected(self, index: int) -> float | None:
        """The seconds that the task should take by the median of those that are finished; None while they are few."""
        sizes, finished = self.sizes, list(self.finished)
        if len(finished) < ENOUGH:
            return None
        if sizes is None or not sizes[index] or not all(sizes[other] for other, _ in finished):
            return statistics.median(seconds for _, seconds in finished)
        return sizes[index] * statistics.median(seconds / sizes[other] for other, seconds in finished)


class Seen(NamedTuple):
    """A worker as the scheduler describes it. `sign`: the time of its last sign, of any clock."""

    sign: float
    threads: int = 1


class Observer:
    """What is known of the workers; each method returns the lines to log. `now` is of one clock, in seconds."""

    def __init__(self) -> None:
        self.workers: set[str] = set()
        self.hosts: dict[str, str] = {}  # of workers that have finished a task
        self._signs: dict[str, tuple[float, float]] = {}  # worker -> its last sign, since when it is known
        self._running: dict[str, dict[str, float]] = {}  # worker -> task's key -> since when
        self._silent: dict[str, float] = {}  # worker -> when it is named next
        self._slow: dict[str, float] = {}  # task's key -> seconds after which it is named next

    def called(self, worker: str) -> str:
        """A worker's address and what else is known of it."""
        host = self.hosts.get(worker)
        return f"worker {worker} on {host}" if host else f"worker {worker}"

    def lost(self, gone: Mapping[str, int]) -> list[str]:
        """`gone`: workers -> how many of the step's tasks they had."""
        self.workers -= set(gone)
        remain = quantity(len(self.workers), "remains", "remain")
        if len(gone) > NAMED:
            repeated = _repeated(sum(gone.values()))
            return [f"{len(gone)} workers were lost ({_first(gone)}): {remain}{repeated}"]
        return [
            f"{self.called(worker)} was lost: {remain}{_repeated(tasks)}" for worker, tasks in gone.items()
        ]

    def joined(self, new: Sequence[str]) -> list[str]:
        """New workers, none of them known."""
        before = len(self.workers)
        self.workers |= set(new)
        if len(new) > NAMED:
            return [f"{len(new)} workers joined ({_first(new)}): {len(self.workers)} now"]
        return [f"{self.called(worker)} joined: {now} now" for now, worker in enumerate(new, before + 1)]

    def look(
        self, now: float, workers: Mapping[str, Seen], tasks: Mapping[str, Sequence[str]], step: Step | None
    ) -> list[str]:
        """Workers without a sign and tasks that take long. `tasks`: of each worker, in the order in which it got them."""
        lines = []
        for address, seen in workers.items():
            mine = [key for key in tasks.get(address, ()) if step is not None and key in step.keys]
            self._note(now, address, seen, mine, step)
            lines += self._silence(now, address, len(mine))
            if step is not None:
                lines += self._slowness(now, address, step)
        known: tuple[dict[str, Any], ...] = (self._signs, self._running, self._silent)
        for values in known:
            for address in values.keys() - workers.keys():
                del values[address]
        return lines

    def _note(self, now: float, address: str, seen: Seen, mine: Sequence[str], step: Step | None) -> None:
        if self._signs.get(address, (None, 0.0))[0] != seen.sign:
            self._signs[address] = (seen.sign, now)
            self._silent.pop(address, None)
        before = self._running.get(address, {})
        running = {key: before[key] for key in mine if key in before}
        # A worker runs the task that was submitted first, and keeps the others waiting.
        for key in sorted(mine, key=step.keys.__getitem__) if step is not None else ():
            if len(running) < seen.threads:
                running.setdefault(key, now)
        self._running[address] = running

    def _silence(self, now: float, address: str, tasks: int) -> list[str]:
        silence = now - self._signs[address][1]
        if silence < self._silent.get(address, SILENT):
            return []
        self._silent[address] = 2 * silence
        held = f"; it has {quantity(tasks, 'task')}, repeated if the scheduler gives it up" if tasks else ""
        return [
            f"{self.called(address)}: no sign of life for {silence:.0f} s (stopped, overloaded or cut off){held}"
        ]

    def _slowness(self, now: float, address: str, step: Step) -> list[str]:
        lines = []
        for key, since in self._running[address].items():
            seconds, index = now - since, step.keys[key]
            if seconds < self._slow.get(key, SLOW_SECONDS):
                continue
            expected = step.expected(index)
            if expected is None or seconds < SLOW_TIMES * expected:
                continue
            self._slow[key] = 2 * seconds
            by = "for its size " if step.sizes else ""
            lines.append(
                f"{step.label}: {name_of(step.items[index])} runs for {seconds:.0f} s on {self.called(address)};"
                f" the median of {quantity(len(step.finished), 'task')} is {by}{expected:.1f} s"
            )
        return lines


def _repeated(count: int) -> str:
    return f", {quantity(count, 'task')} will be repeated" if count else ""


def _first(workers: Mapping[str, int] | Sequence[str]) -> str:
    return ", ".join([*list(workers)[:NAMED], "…"])


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
                while True:  # those that come at once are one line
                    events.append(self._events.get(timeout=0.2))
            if None in events:
                return
            self._log(self._event_lines([event for event in events if event is not None]))
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
                start = f"; start some with `dask worker {self.address}`" if self.address else ""
                self._give_up(
                    f"no worker has been alive for {self.patience:.0f} s, and none came back (out of memory?){start}"
                )

    def _give_up(self, reason: str) -> None:
        if (step := self.step) is not None:
            step.gave_up = WorkError(f"{reason}; run the same command again")
            step.inbox.put(None)
