"""A command of CorpusMill in processes of its own, disturbed once at a given share of its work: `chaos.py` starts this module
in a process that has everything imported, so that a try costs no more than its work.

The clock is the CPU time of the command's processes, so that a busy machine moves no fault to another place in the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from bench._chaos_faults import FAULTS, die_while_writing
from bench.object_store import free_ports

LIMIT = 900.0  # seconds that a command may take, even on a busy machine: one that hangs has not survived
GRACE = 5.0  # seconds in which the other processes of a training must notice that one is gone
TICK, LOOK = 0.004, 0.3  # seconds between two looks at the clock, and at which processes there are


@dataclass(frozen=True)
class Command:
    """`corpusmill ARGUMENTS`, `size` processes of it, and what happens to it at which CPU second of its processes."""

    arguments: list[str]
    output: str  # the folder that it writes
    size: int = 1
    at: float | None = None
    fault: str = ""
    seed: int = 0
    workers: list[int] = field(default_factory=list)  # processes of a cluster, each the first of its group


@dataclass
class Ended:
    """Exit codes (negative: a signal) and stderr of the processes, CPU seconds of all; if the fault came before the end,
    where in the run."""

    codes: list[int]
    error: str
    cpu: float
    hit: bool = False
    where: str = ""
    groups: list[int] = field(default_factory=list)  # of its processes


class Watch:
    """The processes of a command, from their start to their end."""

    def __init__(self, command: Command) -> None:
        self.command, self.chance = command, random.Random(command.seed)
        self.others = [psutil.Process(pid) for pid in command.workers]
        self.before = sum(map(_cpu, self.others)) + sum(
            _cpu(child) for p in self.others for child in _children(p)
        )
        port = free_ports(1)[0] if command.size > 1 else 0
        self.logs = [
            Path(f"../stderr.{rank}").resolve() for rank in range(command.size)
        ]  # not on a disk that gets full
        self.pids = [_fork(command, rank, port, self.logs[rank]) for rank in range(command.size)]
        self.codes: dict[int, int] = {}
        self.family: list[psutil.Process] = []
        self.looked = 0.0

    def alive(self) -> list[int]:
        """The command's own processes that have not ended."""
        for pid in self.pids:
            if pid not in self.codes:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    self.codes[pid] = os.waitstatus_to_exitcode(status)
        return [pid for pid in self.pids if pid not in self.codes]

    def cpu(self) -> float:
        """CPU seconds of all its processes so far, workers among them."""
        if time.monotonic() > self.looked + LOOK:  # it goes through all processes of the machine
            mine = [psutil.Process(pid) for pid in self.alive() if psutil.pid_exists(pid)]
            self.family = [
                *mine,
                *self.others,
                *(child for process in [*mine, *self.others] for child in _children(process)),
            ]
            self.looked = time.monotonic()
        return sum(map(_cpu, self.family)) - self.before

    def workers(self) -> list[psutil.Process]:
        """Dask's workers that are at work: those of a cluster, or this command's own that have imported something."""
        found = []
        for process in self.others or [psutil.Process(pid) for pid in self.alive()]:
            for child in _children(process):
                with contextlib.suppress(psutil.Error, OSError):
                    busy = "libarrow" in Path(f"/proc/{child.pid}/maps").read_text()
                    if busy and any("spawn" in word for word in child.cmdline()):
                        found.append(child)
        return found

    def end(self) -> Ended:
        """Wait for the end; processes that are left when one failed are killed after `GRACE`, all after `LIMIT`."""
        fault, at = self.command.fault, self.command.at
        until, cpu, ended = time.monotonic() + LIMIT, 0.0, Ended([], "", 0.0)
        while alive := self.alive():
            cpu = max(cpu, self.cpu())
            if at is not None and cpu >= at and fault != "write":
                time.sleep(self.chance.uniform(0, 0.01))  # the system counts CPU time in hundredths
                if FAULTS[fault](self):
                    ended.hit, ended.where = True, where(Path(self.command.output))
                    at = None
            if any(self.codes.values()):
                until = min(until, time.monotonic() + GRACE)
            if time.monotonic() > until:
                for pid in alive:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
            time.sleep(TICK)
        ended.codes = [self.codes[pid] for pid in self.pids]
        if fault == "write" and -signal.SIGKILL in ended.codes:
            ended.hit, ended.where = True, where(Path(self.command.output))
        ended.error = "".join(log.read_text(errors="replace") for log in self.logs)
        ended.cpu, ended.groups = cpu, self.pids
        return ended


def _cpu(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(process.children(recursive=True))
    return []


def _fork(command: Command, rank: int, port: int, log: Path) -> int:
    """Start one process of the command; its id, which is that of its group too."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # it may have done so itself
            os.setpgid(pid, pid)
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # ignored in what a shell starts in its background
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        if command.size > 1:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(command.size), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )  # fmt: skip
        if command.fault == "write":
            die_while_writing(int(command.at or 1), random.Random(command.seed))
        from corpusmill.__main__ import main

        sys.argv = ["corpusmill", *command.arguments]
        main()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]  # threads that are no daemons, as at any interpreter's end
        sys.stderr.flush()
    os._exit(code)


def where(output: Path) -> str:
    """The part of a run to which the newest file in its folder belongs: a stage, or what a trainer does."""
    newest, name = 0, ""
    for file in output.rglob("*"):
        with contextlib.suppress(OSError):
            if file.is_file() and file.stat().st_mtime_ns > newest and file.name != "owner.json":
                newest, name = file.stat().st_mtime_ns, file.relative_to(output).as_posix()
    first, *rest = name.split("/")
    if first == "checkpoints" and not (output / first / rest[0] / "manifest.json").exists():
        return "within a checkpoint"
    if first in ("checkpoints", "metrics.jsonl"):
        done = (
            (output / "metrics.jsonl").read_bytes().count(b"\n") if (output / "metrics.jsonl").exists() else 0
        )
        return f"steps {done // 20 * 20 + 1} to {done // 20 * 20 + 20}"
    return part_of(name)


def part_of(name: str) -> str:
    """The stage of a pipeline's file by its path in the output; `start` or `end` for those of the whole run."""
    first, _, rest = name.partition("/")
    if rest:
        return {"shards": "shard"}.get(first, first)
    return "end" if first in ("manifest.json", "result.json", "report.html", "evaluation.json") else "start"


def main(request: str) -> None:
    """Run the command of a JSON request in the present directory, and print how it ended."""
    print(json.dumps(asdict(Watch(Command(**json.loads(request))).end())))
