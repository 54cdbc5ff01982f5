"""What `chaos.py` does to the processes of a command: signals to all or to one of them, a disk that becomes full or read-only, and death
at a chosen write."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from bench._chaos_command import Watch

Fault = Callable[
    ["Watch"], bool
]  # whether it has happened; if not, it is tried again while the command lives


def _signal_all(number: int) -> Fault:
    def fault(watch: Watch) -> bool:
        for pid in watch.alive():
            os.killpg(pid, number)
        return True

    return fault


def _signal_one(number: int) -> Fault:
    def fault(watch: Watch) -> bool:
        os.kill(watch.chance.choice(watch.alive()), number)
        return True

    return fault


def _worker(watch: Watch) -> bool:
    """SIGKILL of a worker; its nanny starts another."""
    workers = watch.workers()
    if workers:
        watch.chance.choice(workers).kill()
    return bool(workers)


def _node(watch: Watch) -> bool:
    """SIGKILL of a cluster's worker with its nanny: nobody starts another."""
    os.killpg(watch.chance.choice(watch.others).pid, signal.SIGKILL)
    return True


def _paused(watch: Watch) -> bool:
    """A worker stands still for some seconds."""
    workers = watch.workers()
    if workers:
        one = watch.chance.choice(workers)
        one.suspend()
        time.sleep(watch.chance.uniform(0.5, 3))
        with contextlib.suppress(psutil.NoSuchProcess):
            one.resume()
    return bool(workers)


def _disk_of(watch: Watch) -> Path:
    """The mount point of the disk on which the output is."""
    folder = Path(watch.command.output).resolve()
    while not folder.is_mount():
        folder = folder.parent
    return folder


def fill(disk: Path) -> bool:
    """Write `filler` until a disk has no byte left."""
    with (disk / "filler").open("wb", buffering=0) as file:
        block = bytes(1 << 16)
        while block:
            try:
                file.write(block)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
                block = block[: len(block) // 2]
    return True


def lock(disk: Path) -> bool:
    """Make a disk read-only; whether it could be: not at a moment when a file is open for writing."""
    return subprocess.run(["mount", "-o", "remount,ro", disk], capture_output=True).returncode == 0


FAULTS: dict[str, Fault] = {
    "kill all": _signal_all(signal.SIGKILL), "kill one": _signal_one(signal.SIGKILL), "kill worker": _worker,
    "kill node": _node, "pause worker": _paused, "terminate": _signal_one(signal.SIGTERM),
    "interrupt": _signal_all(signal.SIGINT), "fill disk": lambda watch: fill(_disk_of(watch)),
    "read-only": lambda watch: lock(_disk_of(watch)),
}  # fmt: skip


def die_while_writing(number: int, chance: random.Random) -> None:
    """This process dies by SIGKILL at its `number`th write to a checkpoint: before, within or after it."""
    from corpusmill.common.storage import Folder

    create, write, counted = Folder.create, Folder.write, iter(range(1, 1 << 30))
    moment = chance.choice(["before", "within", "after"])

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def due(folder: Folder) -> bool:
        return "/checkpoints/" in folder.url and next(counted) == number

    def dying_write(self: Folder, data: bytes) -> None:
        now = due(self)
        if now and moment != "after":  # it is atomic: there is no "within"
            die()
        write(self, data)
        if now:
            die()

    class Stream:
        def __init__(self, stream: IO[bytes]) -> None:
            self.stream, self.left = stream, chance.randint(1, 1 << 15)

        def write(self, data: Any) -> int:
            self.left -= len(data)
            if self.left < 0:
                die()
            return self.stream.write(data)

    @contextlib.contextmanager
    def dying_create(self: Folder) -> Iterator[Any]:
        now = due(self)
        if now and moment == "before":
            die()
        with create(self) as stream:
            yield Stream(stream) if now and moment == "within" else stream
        if now:
            die()

    Folder.write, Folder.create = dying_write, dying_create  # type: ignore[method-assign, assignment]
