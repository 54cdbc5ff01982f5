"""What the terminal shows of work under way: a bar that moves with the bytes of the tasks, or lines in a log when piped; and the
state after Ctrl-C.

At a terminal Ctrl-C reaches all processes, and only the driver answers it: it prints what the state is and closes its workers; a
worker left alone ends with its nanny. Dask loads this module in each worker (`dask_setup`)."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from corpusmill.common.format import compact, number, short_span
from corpusmill.common.lazy_pandas import put_off_pandas
from corpusmill.common.task_progress import watched
from corpusmill.pipeline.engine.local_workers import RARELY
from corpusmill.pipeline.engine.phase import Phase

INTERVAL = 30.0  # seconds at most without a line in a log while anything is under way
FRAME = 0.25  # seconds between two states of the bar


class Progress:
    """Writes to `out` (stderr); `quiet` writes nothing. Results belong on stdout, never here.

    Phases may contain others: the innermost is shown. While there is one, a thread moves the bar, or adds a line where
    `interval` seconds brought none; it ends with the outermost phase.
    """

    def __init__(self, out: TextIO | None = None, quiet: bool = False, interval: float = INTERVAL) -> None:
        self.out = out or sys.stderr
        self.quiet, self.interval = quiet, interval
        self._phases: list[Phase] = []
        self._bar: _Bar | None = None
        self._lock = threading.RLock()  # of what is written
        self._written = time.monotonic()  # when the last line was
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def log(self, line: str) -> None:
        """One line of log; on a terminal folded to its width."""
        if self.quiet:
            return
        with self._lock:
            self._written = time.monotonic()
            if self._bar is not None:
                self._bar.log(line)
            else:
                print(
                    _folded(line, _width(self.out)) if self.out.isatty() else line, file=self.out, flush=True
                )

    @property
    def report_every(self) -> float:
        """Seconds between two reports of a task under way, which are sent from where it runs; infinite if nobody looks."""
        return float("inf") if self.quiet else 2 * FRAME if self.out.isatty() else self.interval / 3

    @contextmanager
    def phase(
        self, label: str, total: int = 0, sizes: Sequence[int] | None = None, done: bool = True
    ) -> Iterator[Phase]:
        """A phase of `total` tasks of these bytes: the code that does the work calls the `Phase`. If all goes well, and `done`,
        a line at its end."""
        phase = Phase(label, total, sizes)
        with self._lock:
            self._phases.append(phase)
            if len(self._phases) == 1 and not self.quiet:
                self._begin()
        try:
            yield phase
        finally:
            with self._lock:
                self._phases.remove(phase)
                if self._phases and self._bar is not None:
                    self._bar.show(self._phases[-1])
                last = not self._phases
            if last:
                self._end()
        if done:
            self.log(phase.summary())

    @contextmanager
    def work(self, label: str, size: int = 0) -> Iterator[None]:
        """A phase of work in this thread, of `size` bytes if it is known, which calls `common.task_progress.advance`."""
        with self.phase(label, int(size > 0), [size] if size else None, done=False) as phase:
            if not size:
                yield
                return
            with watched(lambda done: phase.under_way(0, done), size, 0.0):
                yield

    def _begin(self) -> None:
        self._stop.clear()
        self._written = time.monotonic()
        self._bar = _Bar.on(self.out)
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            if self._bar is not None:
                self._bar.close()
                self._bar = None

    def _show(self) -> None:
        """The thread: until the outermost phase ends."""
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            while not self._stop.wait(FRAME if self._bar else min(1.0, self.interval / 4)):
                with self._lock:
                    if not self._phases:
                        return
                    phase = self._phases[-1]
                    if self._bar is not None:
                        self._bar.show(phase)
                    elif time.monotonic() - self._written >= self.interval:
                        self.log(phase.line())


class _Bar:
    """One bar at the foot of a terminal, and lines above it."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        fields = [
            TextColumn("{task.fields[" + name + "]:" + form + "}")
            for name, form in (("share", ">5"), ("tasks", ">13"), ("rate", ">13"), ("left", ">11"))
        ]
        # 79 characters with the blanks between them, up to 100,000 tasks, 10,000 of them a second, and 1,000 days.
        columns = (TextColumn("{task.description:<22.22}"), BarColumn(bar_width=10), *fields)
        # What is printed meanwhile goes above the bar, unless it goes to a file.
        self.bar = Bar(
            *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=sys.stdout.isatty()
        )
        self.task: Any = None
        self.phase: Phase | None = None
        self.bar.start()

    @classmethod
    def on(cls, out: TextIO) -> _Bar | None:
        """A bar, if `out` is a terminal that can show one."""
        if not out.isatty():
            return None
        from rich.console import Console

        console = Console(file=out)
        return None if console.is_dumb_terminal else cls(console)

    def log(self, line: str) -> None:
        folded = _folded(line, self.bar.console.width)
        self.bar.console.print(folded, soft_wrap=True, markup=False, highlight=False, emoji=False)

    def show(self, phase: Phase) -> None:
        if phase is not self.phase:
            if self.task is not None:
                self.bar.remove_task(self.task)
            self.phase = phase
            self.task = self.bar.add_task(phase.label, total=None, share="", tasks="", rate="", left="")
        share = phase.share
        self.bar.update(
            self.task,
            total=None if share is None else 1.0,
            completed=share or 0.0,
            share=short_span(round(phase.seconds, 1)) if share is None else f"{100 * share:.0f} %",
            tasks=_tasks(phase) if phase.total > 1 else "",
            rate=phase.rate,
            left=phase.left,
            refresh=True,
        )

    def close(self) -> None:
        self.bar.stop()


def _tasks(phase: Phase) -> str:
    """`1,234/10,000`, in 13 characters."""
    write = number if phase.total < 100_000 else compact
    return f"{write(phase.finished)}/{write(phase.total)}"


def _width(out: TextIO) -> int:
    """The columns of a terminal."""
    from rich.console import Console

    return Console(file=out).width


def _folded(line: str, columns: int) -> str:
    """Lines that fit into a terminal; what holds no blank, such as a path, stays whole."""
    width = max(20, columns - 1)
    return "\n".join(
        part
        for one in line.splitlines()
        for part in textwrap.wrap(
            one, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        or [""]
    )


def dask_setup(worker: Any) -> None:
    """Leave SIGINT to the driver, and pandas to what uses it."""
    put_off_pandas()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*RARELY)


def dask_teardown(worker: Any) -> None:
    """End without a last search for cycles."""
    gc.freeze()


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
