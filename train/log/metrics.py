"""What a run says of itself: metrics.jsonl (on any store), other sinks, and a line or a bar on stderr."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch

from corpusmill.common.errors import WorkError
from corpusmill.train.tools.estimate.gpus import gpu_seen

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.log.sinks import Sink

TAIL = 50  # rows that a checkpoint carries, should the file lose them
MFU_FORMULA = (
    "tokens/s of one device x (6 x active weights of matrix products + 6 x layers x heads x head_dim x sequence_length)"
    " / its peak FLOP/s in dense bf16, whatever the precision"
)


class MetricsLog:
    """Rows of metrics.jsonl, each step at most once: what lies beyond the resumed step is dropped at the start. They
    also go to the sinks that the config names, unless nothing is left to do."""

    def __init__(self, run: Folder, config: TrainConfig, step: int, tail: list[dict[str, Any]]) -> None:
        self.file = run / "metrics.jsonl"
        rows = {row["step"]: row for row in tail}
        rows.update({row["step"]: row for row in read_metrics(run)})
        self.rows = [rows[s] for s in sorted(rows) if s <= step]
        self._stream: IO[bytes] | None = None
        self._sinks: list[Sink] = []
        if step < config.schedule.steps:
            from corpusmill.train.log.sinks import open_sinks

            self._sinks, told = open_sinks(run, config, step, self.rows)
            for line in told:
                say(line)
        self.flush()
        if run.local:
            self._stream = Path("/" + self.file.path).open("ab")  # noqa: SIM115 (closed by `close`)

    def write(self, row: dict[str, Any]) -> None:
        """Add a row; on a local disk it is there at once, on an object store with the next `flush`."""
        self.rows.append(row)
        if self._stream:
            self._stream.write(_line(row))
            self._stream.flush()
        for sink in self._sinks:
            sink.write(row)

    def flush(self) -> None:
        """Publish all rows."""
        if self._stream is None:
            self.file.write(b"".join(map(_line, self.rows)))
        for sink in self._sinks:
            sink.flush()

    def tail(self) -> list[dict[str, Any]]:
        return self.rows[-TAIL:]

    def close(self) -> None:
        self.flush()
        if self._stream:
            self._stream.close()
        for sink in self._sinks:
            sink.close()


def _line(row: dict[str, Any]) -> bytes:
    import orjson  # here, since the formulas above are read where nothing but torch and numpy is installed (bench/)

    return orjson.dumps(row) + b"\n"


def read_metrics(run: Folder) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl; a last line cut short by a kill is left out."""
    import orjson

    try:
        data = (run / "metrics.jsonl").read()
    except FileNotFoundError:
        return []
    rows = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            if line:
                rows.append(dict(orjson.loads(line)))
        except ValueError:
            if number < len(lines):
                raise WorkError(
                    f"{run / 'metrics.jsonl'}:{number}: not JSON; move the file away to go on"
                ) from None
    return rows


def memory_mib(device: torch.device) -> float:
    """Peak of the device's memory, or of this process's resident memory on CPU, MiB."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def mfu(tokens_per_second: float, flops_per_token: float, device: torch.device) -> float | None:
    """Model FLOPs utilisation of one device by MFU_FORMULA; None on one whose peak is not known."""
    peak = peak_flops(device)["bf16"]
    return tokens_per_second * flops_per_token / peak if peak else None


def peak_flops(device: torch.device) -> dict[str, Any]:
    """The device's name, and its peak FLOP/s in dense bf16 and fp8; None where it has none, or none that is known."""
    if device.type != "cuda":
        return {"device": device.type, "bf16": None, "fp8": None}
    name = torch.cuda.get_device_name(device)
    gpu = gpu_seen(name)
    return {"device": name, "bf16": gpu and gpu.peak, "fp8": gpu and gpu.fp8}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Console:
    """A progress bar on a terminal, one line for each log step when piped; silent unless `speak`."""

    def __init__(self, steps: int, done: int, speak: bool) -> None:
        self.steps, self.first, self.began = steps, done, time.monotonic()
        self.speak = speak
        self._bar: Any = None
        if speak and sys.stderr.isatty():
            from rich.console import Console as Terminal
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("train"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(), console=Terminal(stderr=True),
            )  # fmt: skip
            self._task = self._bar.add_task("train", total=steps, completed=done, figures="")
            self._bar.start()

    def step(self, step: int) -> None:
        if self._bar:
            self._bar.update(self._task, completed=step)

    def log(self, row: dict[str, Any]) -> None:
        loss = "skipped" if row["loss"] is None else f"loss {row['loss']:.4f}"
        figures = f"{loss}  lr {row['lr']:.2e}  {row['tokens_per_second']:,.0f} tokens/s"
        if self._bar:
            self._bar.update(self._task, completed=row["step"], figures=figures)
        elif self.speak:
            each = (time.monotonic() - self.began) / max(row["step"] - self.first, 1)
            left = round(each * (self.steps - row["step"]))
            say(f"step {row['step']}/{self.steps}  {figures}  ETA {left // 60}:{left % 60:02d}")

    def validation(self, step: int, losses: dict[str, float]) -> None:
        self.say(
            f"step {step}/{self.steps}  validation  " + "  ".join(f"{k} {v:.4f}" for k, v in losses.items())
        )

    def say(self, line: str) -> None:
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False)
        elif self.speak:
            say(line)

    def close(self) -> None:
        if self._bar:
            self._bar.stop()
