"""Progress with rate and time left: a bar on a terminal, one line a step when piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from corpusmill.common.format import rate


class Progress:
    """Writes to `out` (stderr); `quiet` writes nothing. Results belong on stdout, never here."""

    def __init__(self, out: TextIO | None = None, quiet: bool = False) -> None:
        self.out = out or sys.stderr
        self.quiet = quiet

    def say(self, line: str) -> None:
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
        self.say(
            f"{label:<22} {done:>5} tasks  {seconds:7.1f} s  {_rate(done, done_bytes, total_bytes, seconds)}"
        )


def _rate(done: int, done_bytes: int, total_bytes: int | None, seconds: float) -> str:
    return rate(done_bytes / 1e6, seconds, "MB") if total_bytes else rate(done, seconds, "tasks")
