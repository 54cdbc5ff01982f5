"""Early stopping: what counts as better, the best checkpoint kept, the same end after a resume and in several processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.schemas.validation import ValidationConfig
from corpusmill.train import checkpoint
from corpusmill.train.plateau import Plateau
from corpusmill.train.trainer import train
from tests.forks import launch

# After the first validation none is better by so much: the run ends at the third.
SETTINGS = {
    "validation.every": 3, "validation.patience": 2, "validation.min_delta": 9.0, "schedule.steps": 20,
    "checkpoint.every": 100, "checkpoint.keep_last": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("losses", "patience", "min_delta", "best", "end"),
    [
        ([3.0, 2.0, 2.5, 2.4], 2, 0.0, 2, 4),
        ([3.0, 2.0, 2.5, 1.9, 2.0], 2, 0.0, 4, None),
        ([3.0, 2.95, 2.91], 2, 0.1, 1, 3),
        ([3.0, 2.95, 2.89], 2, 0.1, 3, None),
        ([3.0, math.nan, 2.0], 2, 0.0, 3, None),
        ([3.0, 3.0], 1, 0.0, 1, 2),
        ([3.0, 3.0], None, 0.0, 0, None),
        ([math.nan, math.nan, math.nan, 3.0], 2, 0.0, 4, None),
    ],
)
def test_which_step_is_the_best_and_which_the_last(
    losses: list[float], patience: int | None, min_delta: float, best: int, end: int | None
) -> None:
    plateau, config = Plateau(), ValidationConfig(patience=patience, min_delta=min_delta)
    ended = None
    for step, loss in enumerate(losses, 1):
        plateau.see({"a": loss - 1, "b": loss + 1}, step, config)
        ended = ended or (step if plateau.over(config) else None)
    assert (plateau.step, ended) == (best, end)
    assert plateau.pinned == ((best,) if best else ())
    if best:
        assert Plateau(**plateau.saved()["plateau"]) == plateau


def steps(run: Path) -> list[int]:
    return list(checkpoint.steps(Folder(run)))


def weights(run: Path, step: int) -> str:
    return checkpoint.open_step(Folder(run), step).weights_xxh3


def test_a_run_ends_early_keeps_its_best_checkpoint_and_is_not_run_again(
    write_config: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    file = write_config(**SETTINGS, output=str(run))
    found = train(load(TrainConfig, file))
    assert found["steps"] == 9 and found["best_step"] == 3 and steps(run) == [3, 9]
    assert found["best_validation"] == pytest.approx(
        sum(found["validation"].values()) / len(found["validation"]), abs=1
    )
    ended = weights(run, 9)
    capsys.readouterr()
    assert train(load(TrainConfig, file)) == found
    printed = "".join(capsys.readouterr())
    assert (
        "nothing is left to do" in printed and "stopping after step 9: no validation since step 3" in printed
    )
    assert weights(run, 9) == ended and steps(run) == [3, 9]
    # Killed before its last checkpoint was finished, it ends where it did.
    Folder(run / "checkpoints/step-000009").delete()
    assert train(load(TrainConfig, file))["steps"] == 9 and weights(run, 9) == ended
    # With more patience it continues.
    again = train(load(TrainConfig, file, ["validation.patience=3"]))
    assert again["steps"] == 12 and again["best_step"] == 3 and steps(run) == [3, 12]


def test_a_run_that_improves_ends_at_its_last_step(config: Callable[..., Any], tmp_path: Path) -> None:
    settings = {**SETTINGS, "validation.min_delta": 0.0, "schedule.steps": 7, "output": str(tmp_path / "run")}
    found = train(TrainConfig.model_validate(config(**settings)))
    assert found["steps"] == 7 and found["best_step"] in (3, 6, 7)
    assert {7, found["best_step"]} == set(steps(tmp_path / "run"))


def test_processes_end_together(write_config: Callable[..., Path], tmp_path: Path) -> None:
    done = launch(
        2,
        "corpusmill.train",
        write_config(**SETTINGS, output=str(tmp_path / "two"), **{"data.micro_batch": 2}),
    )
    assert done.returncode == 0, done.stderr
    assert steps(tmp_path / "two") == [3, 9]
