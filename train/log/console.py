"""A run on standard error: a progress bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any


def log_line(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr, flush=True)


class Console:
    """A progress bar on a terminal, one line for each log step when piped; silent unless `enabled`."""

    def __init__(self, steps: int, done: int, enabled: bool) -> None:
        self.steps, self.first, self.enabled, self.began = steps, done, enabled, time.monotonic()
        self._bar: Any = None
        if enabled and sys.stderr.isatty():
            from rich.console import Console as Terminal
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("train"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(), console=Terminal(stderr=True),
            )  # fmt: skip
            self._task = self._bar.add_task("train", total=steps, completed=done, figures="")
            self._bar.start()

    def step(self, step: int) -> None:
        """Move the bar."""
        if self._bar:
            self._bar.update(self._task, completed=step)

    def row(self, row: dict[str, Any]) -> None:
        """Show a row of metrics.jsonl."""
        loss = "skipped" if row["loss"] is None else f"loss {row['loss']:.4f}"
        figures = f"{loss}  lr {row['lr']:.2e}  {row['tokens_per_second']:,.0f} tokens/s"
        if self._bar:
            self._bar.update(self._task, completed=row["step"], figures=figures)
        elif self.enabled:
            each = (time.monotonic() - self.began) / max(row["step"] - self.first, 1)
            left = round(each * (self.steps - row["step"]))
            log_line(f"step {row['step']}/{self.steps}  {figures}  ETA {left // 60}:{left % 60:02d}")

    def validation(self, step: int, losses: dict[str, float]) -> None:
        self.print(
            f"step {step}/{self.steps}  validation  " + "  ".join(f"{k} {v:.4f}" for k, v in losses.items())
        )

    def print(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False)
        elif self.enabled:
            log_line(line)

    def close(self) -> None:
        if self._bar:
            self._bar.stop()
