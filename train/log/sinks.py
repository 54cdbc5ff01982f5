"""Where rows go beside metrics.jsonl, if the config wants it: TensorBoard, Weights & Biases, a live dashboard."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, Protocol

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig


class Sink(Protocol):
    """Takes rows in the order of their steps; a step lower than the last one begins anew there (a roll-back)."""

    def write(self, row: dict[str, Any]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def open_sinks(
    run: Folder, config: TrainConfig, step: int, rows: list[dict[str, Any]]
) -> tuple[list[Sink], list[str]]:
    """The sinks that `config.log` names, for a run that goes on after `step` with these rows; what to tell the user.

    Raises `UserError` for a sink whose package is not installed.
    """
    sinks: list[Sink] = []
    told: list[str] = []
    if config.log.tensorboard and run.local:
        sinks.append(TensorBoard(run, step))
    elif config.log.tensorboard:
        told.append(f"log.tensorboard: needs a local output, {run} is not: metrics.jsonl alone is written")
    if config.log.wandb:
        try:
            sinks.append(WeightsAndBiases(run, config))
        except UserError:
            raise
        except Exception as error:  # whatever W&B's own errors are: the run matters more
            told.append(
                f"log.wandb: {(str(error) or type(error).__name__).splitlines()[0]}; going on without it"
            )
    if config.log.dashboard:
        from corpusmill.train.log.dashboard.live import Live

        sinks.append(Live(run, config, rows))
    return sinks, told


def flatten(row: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """(`loss/wiki`, number) pairs of the numbers in a row."""
    pairs: list[tuple[str, float]] = []
    for name, value in row.items():
        if isinstance(value, dict):
            pairs += flatten(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            pairs.append((f"{prefix}{name}", float(value)))
    return pairs


class TensorBoard:
    """`tensorboard/` in the run's folder; what lies beyond the resumed step is purged."""

    def __init__(self, run: Folder, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter("/" + (run / "tensorboard").path, purge_step=step + 1)

    def write(self, row: dict[str, Any]) -> None:
        for name, value in flatten(row):
            self._writer.add_scalar(name, value, row["step"])

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """One W&B run for a run's folder, however often it is taken up. Without an API key it is written offline, into
    `wandb/` of a local output, for `wandb sync`; `WANDB_MODE`, `WANDB_PROJECT` and the like are obeyed.

    Steps are a metric of their own there: W&B's counter cannot go back, and a roll-back does.
    """

    def __init__(self, run: Folder, config: TrainConfig) -> None:
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError:
            raise UserError(
                "log.wandb: the package wandb is not installed: pip install wandb, or set log.wandb to false"
            ) from None
        home = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
        keyed = "WANDB_API_KEY" in os.environ or (
            home.exists() and "wandb" in home.read_text(errors="replace")
        )
        options: dict[str, Any] = {} if keyed or "WANDB_MODE" in os.environ else {"mode": "offline"}
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
