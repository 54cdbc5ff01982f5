"""What stages really use, measured in the processes that do the work (`corpusmill.common.costs`) and summed on the driver: by
stage, beside its plan, and by process, stage and phase, as the profile of the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple

from corpusmill.common.costs import METER, Account, Spent, add_to, process_name
from corpusmill.pipeline.engine.stage import Item, Result, Scheduler
from corpusmill.schemas.manifest import Figures
from corpusmill.schemas.profile import PhaseCosts, ProcessCosts, RunProfile


class Metered(NamedTuple, Generic[Result]):
    """A task's result with what it used, and in which process."""

    result: Result
    account: Account
    process: str


def metered(stage: str, phase: str, function: Callable[[Item], Result], item: Item) -> Metered[Result]:
    """`function(item)`, measured; called in the worker."""
    with METER.account(stage, phase) as account:
        result = function(item)
    METER.wait()
    return Metered(result, account, process_name())


def outside_tasks() -> tuple[str, Account]:
    """A worker's name, and what it spent on no task; called in the worker."""
    return process_name(), METER.whole()


DRIVER = "work of the driver"
UNDER_WAY = "driver, tasks under way"


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
        self._processes: dict[str, Account] = {process_name(): {}}  # the driver's first

    @property
    def count(self) -> int:
        return self.inner.count

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Result]:  # fmt: skip
        """See `corpusmill.pipeline.engine.stage.Scheduler`."""
        with METER.phase(UNDER_WAY):
            found = self.inner.map(
                partial(metered, self.stage, _phase_of(label, self.stage), function), items, label, sizes
            )
        results: list[Result] = []
        for one in found:
            results.append(one.result)
            add_to(self._processes.setdefault(one.process, {}), one.account)
            for stage in dict.fromkeys(stage for stage, _ in one.account):
                self.booked.setdefault(stage, Booked()).tasks += 1
            for (stage, _), spent in one.account.items():
                self.booked[stage].workers.add(spent)
        return results

    def beside(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """See `corpusmill.pipeline.engine.stage.Scheduler`. What it uses while tasks are under way is theirs on the driver."""
        return self.inner.beside(work)

    def close(self, last: Callable[[], Result]) -> list[Result]:
        """See `corpusmill.pipeline.engine.stage.Scheduler`."""
        return self.inner.close(last)

    def end(self) -> None:
        """End the workers, whose time outside of tasks is asked for before; further tasks start others."""
        with METER.phase("end of the workers"):
            ended = self.close(outside_tasks)
        for name, account in ended:
            add_to(self._processes.setdefault(name, {}), account)

    def profile(self) -> RunProfile:
        """All that was spent since this process began, or `METER.restart` was called. Of a worker that died it holds what its
        finished tasks used; of one of a cluster that was there before, its tasks alone."""
        driver, *workers = map(_copied, self._processes.values())
        add_to(driver, METER.whole())
        named = {"driver": driver, **{f"worker {number}": one for number, one in enumerate(workers, 1)}}
        processes = [ProcessCosts(process=name, phases=_phases(account)) for name, account in named.items()]
        return RunProfile(
            seconds=round(sum(spent.busy for spent in driver.values()), 3),
            cpu_seconds=round(sum(one.cpu_seconds for one in processes), 4),
            processes=processes,
        )

    @contextmanager
    def ahead(self, stage: str) -> Iterator[None]:
        """The block is work for a stage that is not yet at work: inputs that are hashed to see what must run."""
        before, self.stage = self.stage, stage
        kept = self.booked.pop(stage, None)  # of an earlier turn
        start = time.monotonic()
        try:
            with METER.account(stage, DRIVER) as account:
                yield
        finally:
            self.stage = before
            mine = self.booked.pop(stage, Booked())
            if kept is not None:
                self.booked[stage] = kept
        add_to(self._processes[process_name()], account)
        for spent in account.values():
            mine.driver.add(spent)
        mine.seconds = time.monotonic() - start
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
            with METER.account(stages[0], DRIVER) as account:
                yield
        finally:
            self.stage = before
            seconds = time.monotonic() - start
            busy = {name: self.booked[name].workers.busy for name in stages}
            whole = sum(busy.values())
            for name in stages:
                self.booked[name].seconds += seconds * busy[name] / whole if whole else seconds / len(stages)
                self.booked[name].driver.add(Spent(peak=max(spent.peak for spent in account.values())))
            add_to(self._processes[process_name()], account)
            for (name, _), spent in account.items():
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


def _phase_of(label: str, stage: str) -> str:
    """A step's label as a phase of its stage: `tokenizer: sample` is `sample`. The step of a stage, or of several fused, has
    no name of its own."""
    if stage in label.split("+"):
        return "work of tasks"
    return label.removeprefix(stage).lstrip(": ") if label.startswith((f"{stage}:", f"{stage} ")) else label


def _copied(account: Account) -> Account:
    made: Account = {}
    add_to(made, account)
    return made


def _phases(account: Account) -> list[PhaseCosts]:
    """In the order in which they first came."""
    return [
        PhaseCosts(
            stage=stage, phase=phase, seconds=round(spent.busy, 4), cpu_seconds=round(spent.cpu, 4),
            read_bytes=spent.traffic.read, written_bytes=spent.traffic.written,
        )
        for (stage, phase), spent in account.items()
    ]  # fmt: skip
