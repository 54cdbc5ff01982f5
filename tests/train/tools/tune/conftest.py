"""Searches on the tiny shard set; trials in this process where processes are not the subject."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corpusmill.common.config import load
from corpusmill.common.errors import UserError, WorkError
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.tools.tune.trial import Trial
from corpusmill.train.trainer import train

LR = {"low": 1e-3, "high": 3e-2, "log": True}


@pytest.fixture
def write_search(write_config: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A search config as a file; `write_search("a", sampler="grid")` searches in the folder a."""

    def make(name: str = "found", **given: Any) -> Path:
        settings = {
            "schedule.steps": 8,
            "schedule.warmup_steps": 2,
            "validation.every": 2,
            **given.pop("settings", {}),
        }
        value = {
            "name": name, "output": str(tmp_path / name), "config": str(write_config()), "seed": 3,
            "settings": settings, "space": {"optimizer.lr": LR}, **given,
        }  # fmt: skip
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(value))
        return path

    return make


class Stopped(Exception):
    pass


def in_process(
    trials: Iterator[Trial], parallel: int, watch: Callable[[Trial], str]
) -> Generator[Trial, None, None]:
    """`run_trials` without processes: a tenth of the time."""
    for trial in trials:
        trial.folder.mkdir(parents=True, exist_ok=True)
        log = trial.folder / "log.txt"
        log.touch()
        trial._log_start, code = 0, 0

        def on_row(_: Any, trial: Trial = trial) -> None:
            trial.verdict = watch(trial)
            if trial.verdict:
                raise Stopped

        try:
            train(load(TrainConfig, trial.command[4], trial.command[6::2]), on_row=on_row)
        except Stopped:
            code = -9
        except (UserError, WorkError) as error:
            log.write_text(f"error: {error}\n")
            code = error.exit_code
        trial.process = SimpleNamespace(returncode=code)  # type: ignore[assignment]
        yield trial


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials run in this process."""
    monkeypatch.setattr("corpusmill.train.tools.tune.search.run_trials", in_process)
    monkeypatch.setattr("corpusmill.train.tools.tune.population.run_trials", in_process)


@pytest.fixture
def bowl(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trained at all: the loss is a bowl around a rate of 0.01, deeper from step to step."""

    def run(config: TrainConfig, on_row: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        folder = Path(config.output_url)
        loss = math.log10(config.optimizer.lr / 0.01) ** 2
        with (folder / "metrics.jsonl").open("a") as rows:
            for step in range(1, config.schedule.steps + 1):
                row = {"step": step, "loss": 5 + loss - step / 100, "validation": {"wiki": loss - step / 100}}
                rows.write(json.dumps(row) + "\n")
                rows.flush()
                on_row(row)
        (folder / "result.json").write_text(json.dumps(row))
        return row

    monkeypatch.setattr("tests.train.tools.tune.conftest.train", run)


def outcome(result: dict[str, Any]) -> dict[str, Any]:
    """What a search found, without its places."""
    trials = [{k: v for k, v in row.items() if k != "folder"} for row in result["trials"]]
    best = result["best"] and result["best"]["number"]
    return {"trials": trials, "best": best, "lineage": result.get("lineage")}
