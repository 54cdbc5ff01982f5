"""Two processes give the loss curve and the weights of one, to rounding; dropout included."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint, trainer
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.processes import torchrun


def test_two_processes_route_and_balance_as_one(
    config: Callable[..., Any], write_config: Callable[..., Path], tmp_path: Path
) -> None:
    moe = {"experts": 4, "ffn_dim": 32, "bias_rate": 0.01, "router_z_loss": 1e-3, "first": 1}
    settings = {"model.moe": moe, "model.z_loss": 1e-3, "data.micro_batch": 2, "schedule.steps": 7}
    done = launch(2, "corpusmill.train", write_config(**settings, output=str(tmp_path / "two")))
    assert done.returncode == 0, done.stderr
    train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / "one"))))
    one, two = (read_metrics(Folder(tmp_path / name)) for name in ("one", "two"))
    assert len(one) == len(two) == 7
    for a, b in zip(one, two, strict=True):
        for name in ("loss", "grad_norm", "z_loss", "router_z_loss"):
            assert b[name] == pytest.approx(a[name], rel=2e-5), (a["step"], name)
        assert b["expert_load"] == a["expert_load"] and a["expert_load"]["layer_1"]["max"] > 1
    weights = [checkpoint.load_newest(Folder(tmp_path / name)) for name in ("one", "two")]
    biases = [checkpoint.read_tensors(found)["layers.1.ffn.bias"] for found in weights if found]
    assert torch.equal(*biases) and (biases[0] != 0).all()  # an odd number of moves


def test_two_processes_that_share_sequences_are_as_one(
    config: Callable[..., Any], write_config: Callable[..., Path], tmp_path: Path
) -> None:
    """A whole run, validation, figures of attention and the switch to one process among it."""
    model = {"model.dropout": 0.1, "model.window": 6, "model.global_every": 2, "model.attention_sinks": True}
    settings = {**model, "data.micro_batch": 2, "schedule.steps": 12, "validation.every": 6}
    shared = {"parallel.context": 2, "output": str(tmp_path / "two")}
    done = launch(2, "corpusmill.train", write_config(**settings, **shared))
    assert done.returncode == 0, done.stderr
    train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / "one"))))
    rows = {name: read_metrics(Folder(tmp_path / name)) for name in ("one", "two")}
    assert len(rows["one"]) == len(rows["two"]) == 12
    for one, two in zip(rows["one"], rows["two"], strict=True):
        for name in ("loss", "grad_norm", "update_norm", "logit_max"):
            assert two[name] == pytest.approx(one[name], rel=2e-5), (one["step"], name)
        for name in ("loss_per_source", "attention_entropy", "attention_entropy_share"):
            assert two[name] == pytest.approx(one[name], rel=2e-5), (one["step"], name)
    for number in (5, 11):
        assert rows["two"][number]["validation"] == pytest.approx(rows["one"][number]["validation"], rel=2e-5)
    Folder(tmp_path / "two/checkpoints/step-000012").delete()
    found = train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / "two"))))
    assert found["steps"] == 12 and found["loss"] == pytest.approx(rows["one"][-1]["loss"], rel=2e-5)


def test_two_processes_give_the_curve_of_one_and_resume_as_one(
    config: Callable[..., Any], write_config: Callable[..., Path], tmp_path: Path
) -> None:
    settings = {"model.dropout": 0.1, "data.micro_batch": 2}  # two micro-batches in each process
    done = torchrun(2, "-m", "corpusmill.train", write_config(**settings, output=str(tmp_path / "two")))
    assert done.returncode == 0, done.stderr
    train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / "one"))))
    rows = {name: read_metrics(Folder(tmp_path / name)) for name in ("one", "two")}
    assert [row["step"] for row in rows["two"]] == list(range(1, 21))
    for one, two in zip(rows["one"], rows["two"], strict=True):
        for name in ("loss", "grad_norm", "param_norm", "update_norm", "lr"):
            assert two[name] == pytest.approx(one[name], rel=2e-5), (one["step"], name)
        assert two["loss_per_source"] == pytest.approx(one["loss_per_source"], rel=2e-5)
    assert rows["one"][0]["loss"] - rows["one"][-1]["loss"] > 0.05
    assert rows["two"][9]["validation"] == pytest.approx(rows["one"][9]["validation"], rel=2e-5)
    weights = [checkpoint.load_newest(Folder(tmp_path / name)) for name in ("one", "two")]
    first, second = (checkpoint.read_tensors(found) for found in weights if found)
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=2e-5, rtol=1e-3, msg=name)
    # Two processes stopped after step 15: one goes on from there.
    file = write_config(**settings, output=str(tmp_path / "two"))
    checkpoints = Folder(tmp_path / "two/checkpoints/step-000020")
    checkpoints.delete()
    found = train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / "two"))))
    assert found["loss"] == pytest.approx(rows["one"][-1]["loss"], rel=2e-5)
    # A mistake has its exit code in each process.
    done = launch(2, "corpusmill.train", file, "--set", "optimizer.lr=0.5")
    assert done.codes == [2, 2] and "optimizer.lr: 0.003 -> 0.5" in done.stderr, done.stderr


def unlike(file: str) -> None:
    """A process of a run on machines of which only the second one computes in bfloat16; prints what its products are in."""
    trainer.automatic = lambda device: "bf16" if os.environ["RANK"] == "1" else "fp32"
    step = trainer.train_step

    def shown(state: Any, *rest: Any, **more: Any) -> Any:
        print(state.config.precision, flush=True)
        return step(state, *rest, **more)

    trainer.train_step = shown
    train(load(TrainConfig, Path(file)))


def test_an_automatic_precision_is_one_in_all_processes(write_config: Callable[..., Path]) -> None:
    done = launch(
        2,
        f"{__name__}:unlike",
        write_config(precision="auto", **{"schedule.steps": 6, "data.micro_batch": 2}),
    )
    assert done.returncode == 0, done.stderr
    assert [output.split() for output in done.outputs] == [["fp32"] * 6] * 2
