"""What a run says of itself: metrics.jsonl (on any store), TensorBoard, and a line or a bar on stderr."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch

from schemas.errors import WorkError

if TYPE_CHECKING:
    from schemas.storage import Folder

TAIL = 50  # rows that a checkpoint carries, should the file lose them
# Dense bf16 FLOP/s of one device without sparsity, as its maker states it.
PEAK_BF16 = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 4090": 165e12}
MFU_FORMULA = "tokens/s of one process x (6 x active weights of matrix products + 6 x layers x heads x head_dim x sequence_length) / peak bf16 FLOP/s"


class MetricsLog:
    """Rows of metrics.jsonl, each step at most once: what lies beyond the resumed step is dropped at the start."""

    def __init__(self, run: Folder, step: int, tail: list[dict[str, Any]], tensorboard: bool) -> None:
        self.file = run / "metrics.jsonl"
        rows = {row["step"]: row for row in tail}
        rows.update({row["step"]: row for row in read_metrics(run)})
        self.rows = [rows[s] for s in sorted(rows) if s <= step]
        self._stream: IO[bytes] | None = None
        self._board: Any = None
        self.flush()
        if run.local:
            self._stream = Path("/" + self.file.path).open("ab")  # noqa: SIM115 (closed by `close`)
        if tensorboard and run.local:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter("/" + (run / "tensorboard").path, purge_step=step + 1)
        elif tensorboard:
            say(f"log.tensorboard: needs a local output, {run} is not: metrics.jsonl alone is written")

    def write(self, row: dict[str, Any]) -> None:
        """Add a row; on a local disk it is there at once, on an object store with the next `flush`."""
        self.rows.append(row)
        if self._stream:
            self._stream.write(_line(row))
            self._stream.flush()
        if self._board:
            for name, value in flatten(row):
                self._board.add_scalar(name, value, row["step"])

    def flush(self) -> None:
        """Publish all rows."""
        if self._stream is None:
            self.file.write(b"".join(map(_line, self.rows)))
        if self._board:
            self._board.flush()

    def tail(self) -> list[dict[str, Any]]:
        return self.rows[-TAIL:]

    def close(self) -> None:
        self.flush()
        if self._stream:
            self._stream.close()
        if self._board:
            self._board.close()


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


def flatten(row: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """(`loss/wiki`, number) pairs of the numbers in a row."""
    pairs: list[tuple[str, float]] = []
    for name, value in row.items():
        if isinstance(value, dict):
            pairs += flatten(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            pairs.append((f"{prefix}{name}", float(value)))
    return pairs


def memory_mib(device: torch.device) -> float:
    """Peak of the device's memory, or of this process's resident memory on CPU, MiB."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def mfu(tokens_per_second: float, flops_per_token: float, device: torch.device) -> float | None:
    """Model FLOPs utilisation of one process by MFU_FORMULA; None on a device whose peak is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    peak = next((flops for part, flops in PEAK_BF16.items() if part in name), None)
    return tokens_per_second * flops_per_token / peak if peak else None


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
        figures = f"loss {row['loss']:.4f}  lr {row['lr']:.2e}  {row['tokens_per_second']:,.0f} tokens/s"
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
