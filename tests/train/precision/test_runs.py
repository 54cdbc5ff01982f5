"""Whole runs: the precisions end near each other, fp16 goes on where it was, and memory options change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint, trainer
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.run_folder import open_run
from corpusmill.train.trainer import train

Make = Callable[..., dict[str, Any]]
# Of the loss of the last row and of validation, in nats, against fp32 (docs/precision.md).
DISTANCE = {"bf16": 2e-3, "fp16": 1e-3, "fp8": 1e-2}


def run(settings: dict[str, Any]) -> dict[str, Any]:
    return train(TrainConfig.model_validate(settings))


def hashes(found: checkpoint.Checkpoint) -> list[str]:
    """Of weights and optimizer."""
    return [file.xxh3 for file in found.manifest.files if file.path.endswith(".safetensors")]


@pytest.mark.slow
def test_the_precisions_end_within_a_stated_distance(
    config: Make, tmp_path: Path, decoded_products: None
) -> None:
    more = {
        "schedule.steps": 60,
        "log.every": 10,
        "checkpoint.every": 60,
        "model.qk_norm": True,
        "threads": 1,
    }
    ends = {
        precision: run(config(**more, precision=precision, output=str(tmp_path / precision)))
        for precision in ("fp32", *DISTANCE)
    }
    first = next(iter(read_metrics(Folder(tmp_path / "fp32"))))["loss"]
    exact = ends["fp32"]
    assert exact["loss"] < first - 0.5
    for precision, most in DISTANCE.items():
        found = ends[precision]
        assert 0 < abs(found["loss"] - exact["loss"]) < most, precision
        for source, loss in exact["validation"].items():
            assert abs(found["validation"][source] - loss) < most, (precision, source)
    scales = [row["loss_scale"] for row in read_metrics(Folder(tmp_path / "fp16"))]
    assert scales == [65536.0] * 6
    assert not any("loss_scale" in row for row in read_metrics(Folder(tmp_path / "bf16")))


def test_an_automatic_precision_stays_what_the_run_began_with(
    config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine the same command continues it, and `evaluate` computes in it."""
    monkeypatch.setattr(trainer, "automatic", lambda device: "bf16")
    run(config(precision="auto", stop_after=10))
    monkeypatch.setattr(trainer, "automatic", lambda device: "fp32")
    settings = config(precision="auto")
    run(settings)
    output = Folder(settings["output"])
    assert json.loads((output / "config.json").read())["precision"] == "bf16"
    file = Path(settings["output"]).with_suffix(".yaml")
    file.write_text(json.dumps(settings))
    assert open_run(file)[0].precision == "bf16"
    with pytest.raises(UserError, match="precision"):
        run(config(precision="fp32"))


def test_an_fp16_run_cut_anywhere_ends_as_an_unbroken_one(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale starts where it overflows, backs off, and grows: the checkpoint carries all of that on."""
    scaling = {"initial": 2.0**28, "growth_interval": 3, "hysteresis": 2, "backoff_factor": 0.125}
    settings = {"precision": "fp16", "loss_scale": scaling, "checkpoint.every": 1, "schedule.steps": 16}
    run(config(**settings, output=str(tmp_path / "unbroken")))
    rows = read_metrics(Folder(tmp_path / "unbroken"))
    scales = [row["loss_scale"] for row in rows]
    assert scales[0] == scales[1] > scales[2] and max(scales[4:]) > min(
        scales
    )  # two overflows, down, and up again
    assert all(
        row["loss"] is None or row["loss"] < 6 for row in rows
    )  # None: it overflowed, and was not taken
    wanted = checkpoint.load_newest(Folder(tmp_path / "unbroken"))
    healthy = trainer.train_step
    for cut in (1, 2, 9):
        output = str(tmp_path / f"cut-{cut}")

        def fatal(state: Any, *rest: Any, cut: int = cut, **more: Any) -> Any:
            if state.step == cut:
                raise KeyboardInterrupt
            return healthy(state, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(trainer, "train_step", fatal)
            with pytest.raises(KeyboardInterrupt):
                run(config(**settings, output=output))
        run(config(**settings, output=output))
        found = checkpoint.load_newest(Folder(output))
        assert found is not None and wanted is not None
        assert hashes(found) == hashes(wanted)
        assert found.state["loss_scale"] == wanted.state["loss_scale"]
        assert json.dumps(found.state["loss_scale"])


def test_checkpointing_and_offload_give_the_same_weights(config: Make, tmp_path: Path) -> None:
    weights = []
    for memory in ({}, {"checkpointing": "full", "offload": "activations"}, {"checkpointing": "selective"}):
        output = str(tmp_path / f"run-{len(weights)}")
        run(config(**{"schedule.steps": 6, "model.dropout": 0.1}, memory=memory, output=output))
        found = checkpoint.load_newest(Folder(output))
        assert found is not None
        weights.append(hashes(found))
    assert weights[0] == weights[1] == weights[2]
