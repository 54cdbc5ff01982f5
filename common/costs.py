"""What this process spends, by stage and phase: CPU and wall seconds, peak memory, requests and bytes.

Every moment since the process began is booked once: on the stage that is at work (`METER.enter`) and the phase of it
(`METER.phase`), or on the process itself, under the stage "". CPU seconds are those of all its threads. Peak memory is that of
the process; Linux lets it set its own high-water mark back, so each stage has its own, and elsewhere a process keeps the mark of
what it did before.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from corpusmill.common.traffic import TRAFFIC, Amounts

START = "start of Python, imports"  # the first phase of a process
BETWEEN = "waiting for tasks"  # of a worker, behind its first task


@dataclass
class Spent:
    """Of a phase of a stage in one process."""

    cpu: float = 0.0
    busy: float = 0.0  # wall seconds in which it was at work
    peak: int = 0  # bytes
    traffic: Amounts = field(default_factory=Amounts)

    def add(self, other: Spent) -> None:
        """Sum up; of the peaks the higher."""
        self.cpu, self.busy = self.cpu + other.cpu, self.busy + other.busy
        self.peak, self.traffic = max(self.peak, other.peak), self.traffic.plus(other.traffic)


Account = dict[tuple[str, str], Spent]  # by stage and phase


def add_to(account: Account, other: Account) -> None:
    """Sum up."""
    for key, spent in other.items():
        account.setdefault(key, Spent()).add(spent)


class Meter:
    """The accounts of this process. Accounts are nested where a driver runs tasks in its own process: what a task used is
    on its account alone. The outermost is the process' own, from its start."""

    def __init__(self) -> None:
        self.own: Account = {}
        self._open: list[tuple[str, str, Account]] = [("", START, self.own)]  # stage, phase, account
        self._thread = threading.get_ident()  # that works on the innermost account
        self._cpu, self._wall, self._traffic = 0.0, time.monotonic() - _age(), Amounts()

    def _book(self, peak: bool = False) -> None:
        """What was used since the last mark goes to the phase at work on the innermost account."""
        cpu, wall, traffic = time.process_time(), time.monotonic(), TRAFFIC.total
        stage, phase, account = self._open[-1]
        most = peak_bytes() if peak else 0
        used = Spent(cpu - self._cpu, wall - self._wall, most, traffic.minus(self._traffic))
        account.setdefault((stage, phase), Spent()).add(used)
        self._cpu, self._wall, self._traffic = cpu, wall, traffic
        if peak:
            reset_peak()

    def _replace(self, stage: str, phase: str) -> None:
        self._open[-1] = (stage, phase, self._open[-1][2])

    def enter(self, stage: str) -> None:
        """From here on this stage is at work on the task's account. Outside of any nothing changes."""
        at_work, phase, _ = self._open[-1]
        if len(self._open) > 1 and at_work != stage:
            self._book(peak=True)
            self._replace(stage, phase)

    @contextmanager
    def phase(self, name: str, stage: str | None = None) -> Iterator[None]:
        """The block is this phase of the stage at work, or of `stage`; of phases within each other the innermost counts. Other
        threads than the one that works on the account change nothing: what they use goes to its phase."""
        if threading.get_ident() != self._thread:
            yield
            return
        depth, before = len(self._open), self._open[-1][:2]
        self._book()
        self._replace(before[0] if stage is None else stage, name)
        try:
            yield
        finally:
            if len(self._open) == depth:
                self._book()
                self._replace(before[0] if stage is not None else self._open[-1][0], before[1])

    @contextmanager
    def account(self, stage: str, phase: str = "") -> Iterator[Account]:
        """An account for the block, which begins with `stage`; complete when the block is over."""
        self._book(peak=True)
        mine: Account = {}
        thread, self._thread = self._thread, threading.get_ident()
        self._open.append((stage, phase, mine))
        try:
            yield mine
        finally:
            self._book(peak=True)
            self._open.pop()
            self._thread = thread

    def wait(self, phase: str = BETWEEN) -> None:
        """Outside of accounts this process is in that phase from here on."""
        if len(self._open) == 1:
            self._book()
            self._replace("", phase)

    def add(self, phase: str, cpu: float) -> None:
        """So many CPU seconds of processes that this one had work for it, in a phase of its own account."""
        self.own.setdefault(("", phase), Spent()).add(Spent(cpu))

    def restart(self) -> None:
        """Nothing was spent before now: what a process did before a run is not the run's."""
        self._book()
        self.own.clear()

    def whole(self) -> Account:
        """What this process spent outside of accounts so far."""
        self._book()
        return {key: Spent(**vars(spent)) for key, spent in self.own.items()}


def _age() -> float:
    """Seconds since this process began, to a clock tick; its CPU seconds where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return time.process_time()


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


def process_name() -> str:
    """This process among those of a run: its machine and number."""
    return f"{os.uname().nodename}/{os.getpid()}"


METER = Meter()
os.register_at_fork(after_in_child=METER.__init__)  # type: ignore[misc]
