"""What the terminal shows of work under way: progress with rate and time left (a bar, or one line a step when piped), and the
state after Ctrl-C.

At a terminal Ctrl-C reaches all processes, and only the driver answers it: it prints what the state is and closes its workers; a
worker left alone ends with its nanny. Dask loads this module in each worker (`dask_setup`)."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from corpusmill.common.format import rate


class Progress:
    """Writes to `out` (stderr); `quiet` writes nothing. Results belong on stdout, never here."""

    def __init__(self, out: TextIO | None = None, quiet: bool = False) -> None:
        self.out = out or sys.stderr
        self.quiet = quiet

    def log(self, line: str) -> None:
        """One line of log."""
        if not self.quiet:
            print(line, file=self.out, flush=True)

    @contextmanager
    def task(self, label: str, total: int, total_bytes: int | None = None) -> Iterator[Callable[[int], None]]:
        """A step of `total` tasks; call the yielded function after each, with the bytes that it covered."""
        start = time.monotonic()
        done = done_bytes = 0
        if not self.quiet and self.out.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description:<22}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:>12}"),
                TimeRemainingColumn(),
            )
            with Bar(*columns, console=Console(file=self.out), transient=True) as bar:
                task = bar.add_task(label, total=total, rate="")

                def advance(size: int) -> None:
                    nonlocal done, done_bytes
                    done, done_bytes = done + 1, done_bytes + size
                    speed = _rate(done, done_bytes, total_bytes, time.monotonic() - start)
                    bar.update(task, advance=1, rate=speed)

                yield advance
        else:

            def count(size: int) -> None:
                nonlocal done, done_bytes
                done, done_bytes = done + 1, done_bytes + size

            yield count
        seconds = time.monotonic() - start
        self.log(
            f"{label:<22} {done:>5} tasks  {seconds:7.1f} s  {_rate(done, done_bytes, total_bytes, seconds)}"
        )


def _rate(done: int, done_bytes: int, total_bytes: int | None, seconds: float) -> str:
    return rate(done_bytes / 1e6, seconds, "MB") if total_bytes else rate(done, seconds, "tasks")


def dask_setup(worker: Any) -> None:
    """Leave SIGINT to the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def explained(state: str | Callable[[], str]) -> Iterator[None]:
    """Where Ctrl-C ends the block, say in a line what the state is and what to do."""
    try:
        yield
    except KeyboardInterrupt:
        line = state if isinstance(state, str) else state()
        print(f"interrupted; {line}", file=sys.stderr, flush=True)
        raise


@contextlib.contextmanager
def held(answer: bool) -> Iterator[None]:
    """Keep Ctrl-C out of a block that is left half done by it, such as the start and the end of workers: it is answered
    when the block is over, or where `answer` is false not at all. Threads and processes that begin in the block never
    get it."""
    # The main thread alone gets it. A process that ignores it needs no other handler, and putting SIG_IGN back over one would
    # race with a signal that another thread has taken but not yet passed on.
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # begun in the block, it would let the signal through again
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if came and answer and callable(before):
        before(signal.SIGINT, None)
