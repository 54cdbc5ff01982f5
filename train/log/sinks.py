"""Where rows go beside metrics.jsonl, if the config wants it: TensorBoard, Weights & Biases, a live dashboard."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.console import log_line
from corpusmill.train.log.metrics import MetricsLog, Sink, flatten, rows_up_to


def open_log(run: Folder, config: TrainConfig, step: int, tail: list[dict[str, Any]]) -> MetricsLog:
    """metrics.jsonl of a run that goes on after `step`: later rows are dropped, `tail` are the last rows that the
    checkpoint carries. Rows also go to the sinks that the config names, unless nothing is left to do.

    Raises `UserError` for a sink whose package is not installed.
    """
    rows = rows_up_to(run, step, tail)
    return MetricsLog(run, rows, open_sinks(run, config, step, rows) if step < config.schedule.steps else [])


def open_sinks(run: Folder, config: TrainConfig, step: int, rows: list[dict[str, Any]]) -> list[Sink]:
    """The sinks that `config.log` names, for a run that goes on after `step` with these rows; what cannot be opened is
    left out with a line on standard error. Raises `UserError` for a sink whose package is not installed."""
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
            log_line(f"log.wandb: {reason}; going on without it")
    if config.log.dashboard:
        from corpusmill.train.log.dashboard import Live

        sinks.append(Live(run, config, rows))
    return sinks


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
    """One W&B run for a run's folder, however often it is resumed. Without an API key it is written offline, into
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
