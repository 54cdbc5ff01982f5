"""Runs that are ended in the middle and begun again end as unbroken ones do, to the bit."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.test_resume import Crash, crash_at, outcome

STEPS, KILLED = 8, 6  # of the runs of two processes, and the last step before they are killed


def crashed_at_every_step(settings: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The run of `settings`, with a checkpoint of every step, crashes in each one and is begun again; returns what the unbroken one ends
    with (`outcome`)."""
    steps = settings["schedule"]["steps"]
    train(TrainConfig.model_validate(settings))
    wanted = outcome(settings["output"], steps)
    for step in range(1, steps):
        again = {**settings, "output": str(folder / f"killed-{step}")}
        with monkeypatch.context() as patched, pytest.raises(Crash):
            crash_at(patched, step)
            train(TrainConfig.model_validate(again))
        train(TrainConfig.model_validate(again))
        assert outcome(again["output"], steps) == wanted
    return wanted


def killed_in_two_processes(make: Callable[..., dict[str, Any]], more: dict[str, Any], folder: Path) -> None:
    """By SIGKILL, in the seventh of eight steps, of which every second has a checkpoint."""
    more = {**more, "schedule.steps": STEPS, "checkpoint.every": 2}
    file = folder / "run.yaml"
    for name in ("unbroken", "run"):
        file.write_text(json.dumps(make(**more, output=str(folder / name))))
        if name == "run":
            done = launch(2, "tests.train.test_resume:dies", str(file), KILLED, "never")
            assert -signal.SIGKILL in done.codes, done.stderr
            assert max(checkpoint.steps(Folder(folder / name))) < STEPS
        done = launch(2, "corpusmill.train", str(file))
        assert done.codes == [0, 0], done.stderr
    assert outcome(str(folder / "run"), STEPS) == outcome(str(folder / "unbroken"), STEPS)
