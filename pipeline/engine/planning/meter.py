"""What stages really use: CPU seconds, requests and bytes, and the peak memory of processes, measured in the processes that
do the work and summed on the driver.

A process books what it uses on the stage that is at work (`METER.enter`), since one task takes a partition through several.
Peak memory is that of the process. Linux lets a process set its own high-water mark back, so each stage has its own; where it
may not, a process keeps the mark of what it did before.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple

from corpusmill.common.traffic import TRAFFIC, Amounts
from corpusmill.pipeline.engine.stage import Item, Result, Scheduler
from corpusmill.schemas.manifest import Figures


@dataclass
class Spent:
    """Of one stage in one task, or of the driver."""

    cpu: float = 0.0
    busy: float = 0.0  # wall seconds in which it was at work
    peak: int = 0  # bytes
    traffic: Amounts = field(default_factory=Amounts)

    def add(self, other: Spent) -> None:
        """Sum up; of the peaks the higher."""
        self.cpu, self.busy = self.cpu + other.cpu, self.busy + other.busy
        self.peak, self.traffic = max(self.peak, other.peak), self.traffic.plus(other.traffic)


Account = dict[str, Spent]  # by stage


class Meter:
    """The accounts of this process. Accounts are nested where a driver runs tasks in its own process: what a task used is
    on its account alone."""

    def __init__(self) -> None:
        self._open: list[tuple[str, Account]] = []  # of each account the stage at work
        self._mark()

    def _mark(self) -> None:
        self._cpu, self._wall, self._traffic = time.process_time(), time.monotonic(), TRAFFIC.total

    def _book(self) -> None:
        """What was used since the last mark goes to the stage at work on the innermost account."""
        cpu, wall, traffic = time.process_time(), time.monotonic(), TRAFFIC.total
        if self._open:
            stage, account = self._open[-1]
            used = Spent(cpu - self._cpu, wall - self._wall, peak_bytes(), traffic.minus(self._traffic))
            account.setdefault(stage, Spent()).add(used)
        self._cpu, self._wall, self._traffic = cpu, wall, traffic
        reset_peak()

    def enter(self, stage: str) -> None:
        """From here on this stage is at work. Outside of any account nothing is booked."""
        if self._open and self._open[-1][0] != stage:
            self._book()
            self._open[-1] = (stage, self._open[-1][1])

    @contextmanager
    def account(self, stage: str) -> Iterator[Account]:
        """An account for the block, which begins with `stage`; complete when the block is over."""
        self._book()
        mine: Account = {}
        self._open.append((stage, mine))
        try:
            yield mine
        finally:
            self._book()
            self._open.pop()


METER = Meter()


def peak_bytes() -> int:
    """The most resident memory of this process, since `reset_peak` where that works."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def reset_peak() -> None:
    """Set the high-water mark back to the memory that is in use, where the system lets a process do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class Metered(NamedTuple, Generic[Result]):
    """A task's result with what it used, and in which process."""

    result: Result
    account: Account
    process: str


def metered(stage: str, function: Callable[[Item], Result], item: Item) -> Metered[Result]:
    """`function(item)`, measured; called in the worker."""
    with METER.account(stage) as account:
        result = function(item)
    return Metered(result, account, f"{os.uname().nodename}/{os.getpid()}")


@dataclass
class Booked:
    """Of one stage: its tasks, and the driver while it was at work."""

    tasks: int = 0
    workers: Spent = field(default_factory=Spent)
    driver: Spent = field(default_factory=Spent)
    seconds: float = 0.0  # of wall time


class MeteredScheduler:
    """A `Scheduler` over another one, with what tasks and driver used by stage.

    `booked`: by stage. With tasks in the driver's own process the memory of a worker is that of this process.
    """

    def __init__(self, inner: Scheduler) -> None:
        self.inner, self.stage = inner, ""
        self.booked: dict[str, Booked] = {}
        self._earlier: dict[str, Booked] = {}

    @property
    def count(self) -> int:
        return self.inner.count

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Result]:  # fmt: skip
        """See `corpusmill.pipeline.engine.stage.Scheduler`."""
        found = self.inner.map(partial(metered, self.stage, function), items, label, sizes)
        results: list[Result] = []
        for one in found:
            results.append(one.result)
            for stage, spent in one.account.items():
                booked = self.booked.setdefault(stage, Booked())
                booked.tasks += 1
                booked.workers.add(spent)
        return results

    @contextmanager
    def ahead(self, stage: str) -> Iterator[None]:
        """The block is work for a stage that is not yet at work: inputs that are hashed to see what must run."""
        before, self.stage = self.stage, stage
        kept = self.booked.pop(stage, None)  # of an earlier turn
        start = time.monotonic()
        try:
            with METER.account(stage) as account:
                yield
        finally:
            self.stage = before
            mine = self.booked.pop(stage, Booked())
            if kept is not None:
                self.booked[stage] = kept
        mine.driver, mine.seconds = account[stage], time.monotonic() - start
        self._earlier[stage] = mine

    @contextmanager
    def at_work(self, *stages: str) -> Iterator[None]:
        """The block is the work of these stages: of one, or of several in the same tasks, over which its wall time is divided
        as their tasks' is. Of what is known of them only what was done `ahead` stays."""
        for name in stages:
            self.booked[name] = self._earlier.pop(name, Booked())
        before, self.stage = self.stage, stages[0]
        start = time.monotonic()
        try:
            with METER.account(stages[0]) as account:
                yield
        finally:
            self.stage = before
            seconds = time.monotonic() - start
            busy = {name: self.booked[name].workers.busy for name in stages}
            whole = sum(busy.values())
            for name in stages:
                self.booked[name].seconds += seconds * busy[name] / whole if whole else seconds / len(stages)
                self.booked[name].driver.add(Spent(peak=max(spent.peak for spent in account.values())))
            for name, spent in account.items():
                self.booked.setdefault(name, Booked()).driver.add(spent)

    def used(self, stage: str) -> Figures:
        """What a stage used when it was last at work."""
        booked = self.booked.get(stage, Booked())
        amounts = booked.workers.traffic.plus(booked.driver.traffic)
        return Figures(
            tasks=booked.tasks, seconds=round(booked.seconds, 3),
            cpu_seconds=round(booked.workers.cpu + booked.driver.cpu, 3),
            worker_bytes=booked.workers.peak, driver_bytes=booked.driver.peak, read_bytes=amounts.read,
            written_bytes=amounts.written, gets=amounts.gets, puts=amounts.puts, lists=amounts.lists,
        )  # fmt: skip
