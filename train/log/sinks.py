"""Destinations of rows beside metrics.jsonl: standard error (a progress bar on a terminal, lines elsewhere) and, by config,
TensorBoard, Weights & Biases, a live dashboard."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.common.stores import failure
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.metrics import MetricsLog, Sink, flatten, rows_up_to


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
        figures = "  ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
        self.print(f"step {step}/{self.steps}  validation  {figures}")

    def print(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False)
        elif self.enabled:
            log_line(line)

    def close(self) -> None:
        if self._bar:
            self._bar.stop()


def open_log(run: Folder, config: TrainConfig, step: int, tail: list[dict[str, Any]]) -> MetricsLog:
    """metrics.jsonl of a run that continues after `step`: later rows are dropped; `tail`: the last rows, from the
    checkpoint. Rows also go to the sinks of the config, unless the run is complete.

    Raises `UserError` for a sink whose package is not installed.
    """
    rows = rows_up_to(run, step, tail)
    return MetricsLog(run, rows, open_sinks(run, config, step, rows) if step < config.schedule.steps else [])


def open_sinks(run: Folder, config: TrainConfig, step: int, rows: list[dict[str, Any]]) -> list[Sink]:
    """The sinks of `config.log`, for a run that continues after `step` with these rows; one that cannot be opened is left
    out with a line on standard error. Raises `UserError` for a sink whose package is not installed."""
    sinks: list[Sink] = []
    if config.log.tensorboard and run.local:
        sinks.append(TensorBoard(run, step))
    elif config.log.tensorboard:
        log_line(f"log.tensorboard: needs a local output, {run} is not: metrics.jsonl alone is written")
    if config.log.wandb:
        try:
            sinks.append(WeightsAndBiases(run, config))
        except UserError:
            raise
        except Exception as error:  # whatever W&B's own errors are: the run matters more
            reason = (str(error) or type(error).__name__).splitlines()[0]
            log_line(f"log.wandb: {reason}; continuing without it")
    if config.log.dashboard:
        from corpusmill.train.log.dashboard import Live

        sinks.append(Live(run, config, rows))
    return sinks


class TensorBoard:
    """`tensorboard/` in the run's folder; rows after the resumed step are purged. Raises `WorkError` where nothing can be written."""

    def __init__(self, run: Folder, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = run / "tensorboard"
        self._hook = threading.excepthook
        threading.excepthook = self._in_thread
        try:
            with self._failing():
                self._writer = SummaryWriter(self.folder.url, purge_step=step + 1)
        except WorkError:
            threading.excepthook = self._hook
            raise

    def write(self, row: dict[str, Any]) -> None:
        with self._failing():
            for name, value in flatten(row):
                self._writer.add_scalar(name, value, row["step"])

    def flush(self) -> None:
        with self._failing():
            self._writer.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # `flush` has raised it
            self._writer.close()
        threading.excepthook = self._hook

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise failure(self.folder.url, self.folder.root, "write", error) from None

    def _in_thread(self, args: threading.ExceptHookArgs) -> None:
        """The writer's thread prints a traceback of what it then raises from the next `write` or `flush` too."""
        ours = type(args.thread).__module__.startswith("tensorboard.")
        if not (ours and issubclass(args.exc_type, OSError)):
            self._hook(args)


class WeightsAndBiases:
    """One W&B run for a run's folder, however often it is resumed. Without an API key it is written offline, into
    `wandb/` of a local output, for `wandb sync`; `WANDB_MODE`, `WANDB_PROJECT` and the like are respected.

    Steps are a metric of their own, since W&B's counter cannot go back after a rollback.
    """

    def __init__(self, run: Folder, config: TrainConfig) -> None:
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError:
            raise UserError(
                "log.wandb: the package wandb is not installed: pip install wandb, or set log.wandb to false"
            ) from None
        home = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
        keyed = home.exists() and "wandb" in home.read_text(errors="replace")
        online = keyed or "WANDB_API_KEY" in os.environ or "WANDB_MODE" in os.environ
        options: dict[str, Any] = {} if online else {"mode": "offline"}
        if run.local:
            Path(run.url).mkdir(parents=True, exist_ok=True)
            options["dir"] = run.url
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "corpusmill"), name=config.name, id=checksum(run.url.encode())[:16],
            resume="allow", config=config.model_dump(mode="json"), **options,
        )  # fmt: skip
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, row: dict[str, Any]) -> None:
        self._run.log({"step": row["step"], **dict(flatten(row))})

    def flush(self) -> None:
        pass  # its own process does

    def close(self) -> None:
        self._run.finish()
