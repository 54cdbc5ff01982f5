"""What is known of the workers of a cluster, and what of it is worth a line in the log: which joined, were lost, give no sign of
life or are slow. `corpusmill.pipeline.engine.watch` passes on what the scheduler says; nothing here waits or asks.

No clock of another machine is read: a worker is silent if the time of its last sign, whatever it is, does not change.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from queue import SimpleQueue
from typing import Any, NamedTuple

from corpusmill.common.errors import WorkError
from corpusmill.common.format import quantity

SILENT = 60.0  # seconds without a sign after which a worker is named; they send one every few seconds
SLOW_SECONDS, SLOW_TIMES = 60.0, 5.0  # a slow task: at least so long, and so many times what is expected
ENOUGH = 3  # finished tasks to expect something from
NAMED = 3  # workers that come or go at once and are named, before they are only counted


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


class _Moment:
    """A step as one look finds it: meanwhile the run takes keys away and adds times. Medians are computed once, if at all."""

    def __init__(self, step: Step | None) -> None:
        self.step = step
        self.keys = dict(step.keys) if step is not None else {}

    @cached_property
    def _finished(self) -> list[tuple[int, float]]:
        return list(self.step.finished) if self.step is not None else []

    @cached_property
    def _usual(self) -> float:
        return statistics.median(seconds for _, seconds in self._finished)

    @cached_property
    def _usual_of_a_byte(self) -> float | None:
        sizes = self.step.sizes if self.step is not None else None
        if sizes is None or not all(sizes[index] for index, _ in self._finished):
            return None
        return statistics.median(seconds / sizes[index] for index, seconds in self._finished)

    def expected(self, index: int) -> float | None:
        """The seconds that a task should take by the median of those that are finished; None while they are few."""
        if self.step is None or len(self._finished) < ENOUGH:
            return None
        size, by_byte = self.step.sizes[index] if self.step.sizes else 0, self._usual_of_a_byte
        return size * by_byte if size and by_byte is not None else self._usual

    def sentence(self, expected: float) -> str:
        """What the expectation rests on."""
        by = "for its size " if self.step is not None and self.step.sizes else ""
        return f"the median of {quantity(len(self._finished), 'task')} is {by}{expected:.1f} s"


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
        lines, moment = [], _Moment(step)
        for address, seen in workers.items():
            mine = [key for key in tasks.get(address, ()) if key in moment.keys]
            self._note(now, address, seen, sorted(mine, key=moment.keys.__getitem__))
            lines += self._silence(now, address, len(mine))
            lines += self._slowness(now, address, moment)
        known: tuple[dict[str, Any], ...] = (self._signs, self._running, self._silent)
        for values in known:
            for address in values.keys() - workers.keys():
                del values[address]
        for key in self._slow.keys() - moment.keys.keys():
            del self._slow[key]
        return lines

    def _note(self, now: float, address: str, seen: Seen, mine: Sequence[str]) -> None:
        """`mine`: its tasks of this step, in the order in which they were submitted."""
        if self._signs.get(address, (None, 0.0))[0] != seen.sign:
            self._signs[address] = (seen.sign, now)
            self._silent.pop(address, None)
        before = self._running.get(address, {})
        running = {key: before[key] for key in mine if key in before}
        # A worker runs the task that was submitted first, and keeps the others waiting.
        for key in mine:
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

    def _slowness(self, now: float, address: str, moment: _Moment) -> list[str]:
        lines: list[str] = []
        step = moment.step
        if step is None:
            return lines
        for key, since in self._running[address].items():
            seconds, index = now - since, moment.keys[key]
            if seconds < self._slow.get(key, SLOW_SECONDS):
                continue
            expected = moment.expected(index)
            if expected is None or seconds < SLOW_TIMES * expected:
                continue
            self._slow[key] = 2 * seconds
            lines.append(
                f"{step.label}: {name_of(step.items[index])} runs for {seconds:.0f} s on {self.called(address)};"
                f" {moment.sentence(expected)}"
            )
        return lines


def _repeated(count: int) -> str:
    return f", {quantity(count, 'task')} will be repeated" if count else ""


def _first(workers: Mapping[str, int] | Sequence[str]) -> str:
    return ", ".join([*list(workers)[:NAMED], "…"])
