"""metrics.jsonl of a run: writing and reading it on any store, and its rows: what a run measured since the row before."""

from __future__ import annotations

import math
import resource
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import torch

from corpusmill.common.errors import Diverged, WorkError
from corpusmill.common.stores import failure
from corpusmill.train.model.flops import mfu
from corpusmill.train.model.moe import load_figures

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.train.data.stream import StreamingTokens
    from corpusmill.train.log.probe import Inside
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.step import Metrics, TrainState

TAIL = 50  # rows that a checkpoint holds, in case the file loses them


class Sink(Protocol):
    """Takes rows in the order of their steps; a step lower than the last one follows a rollback."""

    def write(self, row: dict[str, Any]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class MetricsLog:
    """Rows of metrics.jsonl, each step at most once; they also go to the sinks."""

    def __init__(self, run: Folder, rows: list[dict[str, Any]], sinks: list[Sink]) -> None:
        self.file, self.rows, self._sinks = run / "metrics.jsonl", rows, sinks
        self._stream: IO[bytes] | None = None
        self.flush()
        if run.local:
            self._stream = Path("/" + self.file.path).open("ab", buffering=0)  # noqa: SIM115 (closed by `close`)

    def write(self, row: dict[str, Any]) -> None:
        """Add a row; on a local disk it is written at once, on an object store with the next `flush`. Raises `WorkError`."""
        self.rows.append(row)
        if self._stream:
            _append(self._stream, _line(row), self.file)
        for sink in self._sinks:
            sink.write(row)

    def flush(self) -> None:
        """Publish all rows."""
        if self._stream is None:
            self.file.write(b"".join(map(_line, self.rows)))
        for sink in self._sinks:
            sink.flush()

    def tail(self) -> list[dict[str, Any]]:
        """The last rows, for a checkpoint."""
        return self.rows[-TAIL:]

    def close(self) -> None:
        try:
            self.flush()
        finally:
            if self._stream:
                self._stream.close()
            for sink in self._sinks:
                sink.close()


def _append(stream: IO[bytes], line: bytes, file: Folder) -> None:
    """Without a buffer: what a full disk does not take would be written again, and fail again, when the stream is closed."""
    try:
        while line:
            line = line[stream.write(line) :]
    except OSError as error:
        raise failure(file.url, file.root, "write", error) from None


def _line(row: dict[str, Any]) -> bytes:
    import orjson  # here: benches import this module where nothing but torch and numpy is installed

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
                    f"{run / 'metrics.jsonl'}:{number}: not JSON; move the file away to continue"
                ) from None
    return rows


def rows_up_to(run: Folder, step: int, tail: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a run up to `step`, in order: those of the file, and those of a checkpoint's `tail` that it lost."""
    rows = {row["step"]: row for row in [*tail, *read_metrics(run)]}
    return [rows[at] for at in sorted(rows) if at <= step]


def flatten(row: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """(`loss/wiki`, number) pairs of the numbers in a row."""
    pairs: list[tuple[str, float]] = []
    for name, value in row.items():
        if isinstance(value, dict):
            pairs += flatten(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            pairs.append((f"{prefix}{name}", float(value)))
    return pairs


class Span:
    """The time between two rows: of training, of waiting for data, and pauses that do not count (saving, validating)."""

    def __init__(self, step: int) -> None:
        self.step, self.began, self.stalled, self.paused = step, time.monotonic(), 0.0, 0.0

    def next_batch(self, stream: StreamingTokens) -> Any:
        asked = time.monotonic()
        batch = next(stream)
        self.stalled += time.monotonic() - asked
        return batch

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began - self.paused


def row_of(
    state: TrainState,
    world: World,
    stream: StreamingTokens,
    sums: torch.Tensor,
    metrics: Metrics,
    span: Span,
    seconds: float,
    inside: Inside | None = None,
) -> dict[str, Any]:
    """A row: means over the steps taken since the last one, norms and rate of this step. `sums`: `totals`; `seconds`: the
    duration of these steps."""
    plan, steps, seconds = stream.plan, state.step - span.step, max(seconds, 1e-9)
    length = plan.segment_of(state.step).stage.length
    speed = (plan.tokens(state.step) - plan.tokens(state.step - steps)) / seconds
    loss, tokens, *stats = sums.sum(0).tolist()
    objective = state.objective
    return {
        "step": state.step,
        "tokens": plan.tokens(state.step),
        "loss": loss / tokens if tokens else None,  # all steps were skipped
        "loss_per_source": {
            name: total / count
            for name, (total, count, *_) in zip(stream.sources, sums.tolist(), strict=True)
            if count
        },
        **({} if objective is None else {"preference": objective.named([loss, tokens, *stats])}),
        "lr": metrics.rate,
        "grad_norm": number(metrics.grad_norm),
        "param_norm": number(metrics.param_norm),
        "update_norm": number(metrics.update_norm),
        "activation_rms": number(metrics.activation_rms),
        **({} if metrics.loss_scale is None else {"loss_scale": number(metrics.loss_scale)}),
        **(inside.row() if inside else {}),
        **auxiliary(state, metrics),
        "tokens_per_second": round(speed, 1),
        "mfu": mfu(speed / world.size, state.model.whole.flops_per_token(length), world.device),
        "loader_stall": round(span.stalled / seconds, 5),
        "memory_mib": memory_mib(world.device),
        "blocks_replaced": stream.fetched["replaced"],
        **({} if state.outer is None else {"outer_bytes": state.outer.bytes_sent}),
    }


def auxiliary(state: TrainState, metrics: Metrics) -> dict[str, Any]:
    """Of this step: the losses beside the cross entropy, and the load of the experts."""
    values = dict(metrics.auxiliary or {})
    load = values.pop("load", None)
    row: dict[str, Any] = {name: number(value) for name, value in values.items()}
    return row if load is None else {**row, "expert_load": load_figures(state.config.model, load)}


def number(value: torch.Tensor | None) -> float | None:
    """A number for JSON: None if it is not finite."""
    found = math.nan if value is None else float(value)
    return found if math.isfinite(found) else None


def totals(state: TrainState, world: World, sources: list[str], run: str) -> torch.Tensor:
    """`TrainState.window` of all processes since the last row; raises `Diverged` if it is not finite."""
    return totals_and_each(state, world, sources, run, 0.0)[0]


def totals_and_each(
    state: TrainState, world: World, sources: list[str], run: str, mine: float
) -> tuple[torch.Tensor, list[float]]:
    """`totals`, and in the same message a number of each process, by rank."""
    each = torch.zeros(world.size, dtype=torch.float64)
    each[world.rank] = mine
    window = state.window.detach().to("cpu", torch.float64)
    found = world.total(torch.cat((window.flatten(), each)))
    sums = found[: window.numel()].view_as(window)
    if not bool(sums.isfinite().all()):
        finite = sums[:, 0].isfinite().tolist()
        bad = [name for name, fine in zip(sources, finite, strict=True) if not fine]
        raise Diverged(
            f"{run}: the loss of {', '.join(bad)} is not a finite number at step {state.step}; nothing of it was saved."
            f" Lower optimizer.lr, or set optimizer.grad_clip or guard.enabled, and start in another output"
        )
    return sums, found[window.numel() :].tolist()


def memory_mib(device: torch.device) -> float:
    """Peak of the device's memory, or of this process's resident memory on CPU, MiB."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
