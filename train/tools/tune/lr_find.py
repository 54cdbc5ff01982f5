"""The learning rate range test (Smith 2017): one short run whose rate rises until the loss diverges."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from corpusmill.common.charts import Line, line_chart, page
from corpusmill.common.config import validate
from corpusmill.common.errors import Diverged, UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.guard import GuardConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.guard.judge import History, StepSignals, judge, observe
from corpusmill.train.run_folder import dumped, write_json

BETA = 0.9  # of the moving mean
FACTOR = (
    1.5  # a loss above this multiple of the lowest has diverged; most losses never reach 4 times their lowest
)


class Enough(Exception):
    """The test ends here, for this reason."""


def smoothed(losses: Sequence[float], beta: float = BETA) -> list[float]:
    """Exponential moving means with bias correction (Kingma & Ba 2015), as fastai draws them."""
    found, mean = [], 0.0
    for count, loss in enumerate(losses, 1):
        mean = beta * mean + (1 - beta) * loss
        found.append(mean / (1 - beta**count))
    return found


def diverged(losses: Sequence[float | None], factor: float = FACTOR) -> str | None:
    """Why a run with these losses (None: NaN, as in JSON) should be stopped now, or None."""
    if not losses:
        return None
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if len(known) < len(losses):
        return "the loss is not a finite number"
    means = smoothed(known)
    if means[-1] > factor * min(means):
        return f"the loss is {factor:g} times its lowest"
    return None


def range_config(
    config: TrainConfig, low: float, high: float, steps: int, folder: str, tokens: str
) -> TrainConfig:
    """The config of the test: its model, data and optimizer; a row at every step, nothing saved or validated. Without ramps,
    stages and skips of the data: the rate is for the full batch and the main mixture."""
    given = dumped(config)
    given.update(
        output=folder, stop_after=None, may_change=[], checkpoint={"every": steps + 1}, validation={"every": None},
        log={"every": 1, "tensorboard": False},
        guard={"enabled": False}, schedule={"steps": steps, "warmup_steps": 0, "kind": "range_test", "floor": low / high},
    )  # fmt: skip
    given["data"].update(stages=[], skip={}, sequence_ramp={}, batch_ramp={})
    given["data"]["token_cache"] = config.data.token_cache or tokens
    given["optimizer"]["lr"] = high
    if config.optimizer.muon_lr:  # keeps its ratio to lr
        given["optimizer"]["muon_lr"] = high * config.optimizer.muon_lr / config.optimizer.lr
    return validate(TrainConfig, given, config.name)


def range_test(
    config: TrainConfig, low: float, high: float, steps: int, out: Folder, factor: float = FACTOR
) -> dict[str, Any]:
    """Train for `steps` steps from `low` to `high`, or until the loss diverges; returns what lr-find.json holds.

    The run's own output is neither read nor written. Raises `UserError` under torchrun: the test needs one process.
    """
    from corpusmill.train.trainer import train

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("lr-find: runs in one process; start it without torchrun")

    rates, losses = list[float](), list[float]()
    history, guard = History(), GuardConfig()

    def on_row(row: dict[str, Any]) -> None:
        rates.append(row["lr"])
        losses.append(row["loss"])
        # What the guard would roll back for ends the test.
        nonlocal history
        signals = StepSignals(row["step"], row["loss"], row["grad_norm"])
        verdict = judge(history, signals, guard)
        history = observe(history, signals, verdict.kind == "go_on", guard)
        if verdict.kind in ("roll_back", "stop"):
            raise Enough(f"the guard would go back: {verdict.why[0].signal} {verdict.why[0].value:.4g}")
        if reason := diverged(losses, factor):
            raise Enough(reason)
        if row["step"] == steps:
            raise Enough("the highest rate is reached")

    with tempfile.TemporaryDirectory(prefix="lr-find-") as folder:
        try:
            train(range_config(config, low, high, steps, folder, str(out / "tokens")), on_row=on_row)
        except (Enough, Diverged) as why:
            reason = str(why) if isinstance(why, Enough) else "the loss is not a finite number"
    means = smoothed(losses)
    result = {
        "v": 1, "name": config.name, "seed": config.seed, "low": low, "high": high, "steps": steps, "factor": factor,
        "stopped_after": len(rates), "stopped_at": rates[-1] if rates else low, "because": reason,
        "suggestions": suggestions(rates, means),
        "curve": [
            {"lr": rate, "loss": loss, "smoothed": mean} for rate, loss, mean in zip(rates, losses, means, strict=True)
        ],
    }  # fmt: skip
    write_json(out / "lr-find.json", result)
    (out / "lr-find.html").write(drawn(result).encode())
    return result


def suggestions(rates: Sequence[float], means: Sequence[float]) -> dict[str, float]:
    """Rates read off the smoothed curve: fastai's three. Empty if the curve has under 4 points."""
    if len(rates) < 4:
        return {}
    lowest = min(range(len(means)), key=means.__getitem__)
    slopes = [  # central differences, by the logarithm of the rate
        (means[i + 1] - means[i - 1]) / math.log(rates[i + 1] / rates[i - 1])
        for i in range(1, len(rates) - 1)
    ]
    return {
        "steepest": rates[1 + min(range(len(slopes)), key=slopes.__getitem__)],
        "minimum_tenth": rates[lowest] / 10,
        "valley": rates[valley(means)],
    }


def valley(means: Sequence[float]) -> int:
    """The middle of the longest falling subsequence (fastai's `valley`), as an index."""
    length, before = [1] * len(means), [-1] * len(means)
    for i, mean in enumerate(means):
        for j in range(i):
            if mean < means[j] and length[j] + 1 > length[i]:
                length[i], before[i] = length[j] + 1, j
    at = max(range(len(means)), key=length.__getitem__)
    for _ in range(length[at] // 2):
        at = before[at]
    return at


def drawn(result: dict[str, Any]) -> str:
    """The curve as one HTML page."""
    curve = result["curve"]
    top = min(row["smoothed"] for row in curve) * result["factor"] * 1.05 if curve else 1.0
    lines = [
        Line("loss", [(row["lr"], row["loss"]) for row in curve], "faint"),
        Line("smoothed", [(row["lr"], row["smoothed"]) for row in curve]),
    ]
    marks = {name.replace("_", " "): rate for name, rate in result["suggestions"].items()}
    chart = line_chart(lines, marks, "learning rate", "loss (nats a token)", log=True, top=top)
    rows = [["suggestion", "learning rate"], *([name, f"{rate:.2e}"] for name, rate in marks.items())]
    words = f"Stopped after step {result['stopped_after']} of {result['steps']}: {result['because']}."
    return page(f"Learning rate range test of {result['name']}", words, [chart], rows)


def tables(result: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """(title, rows) for the terminal, within 80 columns: the suggestions, and a dozen points of the curve."""
    curve = result["curve"]
    every = max(1, math.ceil(len(curve) / 12))
    points = curve[::every] + ([curve[-1]] if (len(curve) - 1) % every else [])
    rates = [[name, f"{rate:.2e}"] for name, rate in result["suggestions"].items()]
    rows = [[f"{row['lr']:.2e}", f"{row['loss']:.4f}", f"{row['smoothed']:.4f}"] for row in points]
    title = f"{result['name']}: stopped at {result['stopped_at']:.2e}: {result['because']}"
    return [
        (title, [["suggestion", "lr"], *rates]),
        (f"{len(curve)} of {result['steps']} steps", [["lr", "loss", "smoothed"], *rows]),
    ]
