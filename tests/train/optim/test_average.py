"""The moving average of the weights: its closed form, steps that are not taken, and a swap that leaves every bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.optim.average import averaged, pairs, update
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.models import model_of
from tests.train.test_commands import command


def test_it_is_the_closed_form() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer, seen = torch.optim.SGD([weight], lr=1.0), []
    pairs(optimizer)  # of the first values, as a state that is made before the first step has it: forgotten
    for step in range(1, 41):
        weight.data = torch.randn(3, generator=torch.Generator().manual_seed(step))
        update(optimizer, 0.9, step)
        seen.append(weight.detach().double())
        if step == 1:
            assert torch.equal(pairs(optimizer)[0][0], weight)
    decays = [min(0.9, (1 + t) / (10 + t)) for t in range(2, 41)]
    wanted = seen[0]
    for decay, value in zip(decays, seen[1:], strict=True):
        wanted = decay * wanted + (1 - decay) * value
    assert decays[0] < 0.3 and decays[-1] == pytest.approx(0.82)
    torch.testing.assert_close(pairs(optimizer)[0][0].double(), wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("taken", [True, False])
def test_a_step_that_is_not_taken_leaves_it(taken: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    update(optimizer, 0.5, 1)
    weight.data += 1
    update(optimizer, 0.5, 100, torch.tensor(taken))
    assert pairs(optimizer)[0][0].tolist() == [1.5 if taken else 1.0] * 3


def test_within_the_model_is_the_average_and_afterwards_itself() -> None:
    model = model_of({})
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    update(optimizer, 0.5, 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    after = {name: value.clone() for name, value in model.state_dict().items()}
    with averaged(ParallelModel([model]), optimizer):
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, after[name]) for name, value in model.state_dict().items())
    assert torch.equal(pairs(optimizer)[0][0], next(iter(before.values())))


def weights(run: Path, step: int) -> dict[str, dict[str, torch.Tensor]]:
    found = checkpoint.load_step(Folder(run), step)
    kept = checkpoint.read_tensors(found, checkpoint.OPTIMIZER, "average")
    own = checkpoint.read_tensors(found)
    return {"weights": own, "average": {name.partition("/")[2]: value for name, value in kept.items()}}


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_run_keeps_it_through_a_resume_and_validates_it(
    config: Any, write_config: Any, tmp_path: Path, kind: str
) -> None:
    settings = {
        "optimizer.ema": 0.8, "optimizer.kind": kind, "schedule.steps": 12, "checkpoint.every": 6, "validation.every": 6,
        "checkpoint.keep_last": 9,
    }  # fmt: skip
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(TrainConfig.model_validate(config(**settings, output=str(whole))))
    file = write_config(**settings, output=str(cut))
    train(load(TrainConfig, file))
    Folder(cut / "checkpoints/step-000012").delete()
    result = train(load(TrainConfig, file))
    found, again = weights(whole, 12), weights(cut, 12)
    for part in found:
        assert found[part].keys() == again[part].keys()
        assert all(torch.equal(value, again[part][name]) for name, value in found[part].items())
    assert set(found["average"]) == set(found["weights"])
    row = read_metrics(Folder(whole))[-1]
    assert row["validation_ema"].keys() == row["validation"].keys()
    assert result["validation_ema"] == row["validation_ema"] != row["validation"]
    # As a model of its own it has those losses.
    printed = command("average", str(file), "--ema", "--out", str(tmp_path / "ema"), "--json")
    out = checkpoint.read_tensors(checkpoint.load_step(Folder(tmp_path / "ema"), 12))
    assert all(torch.equal(value, out[name]) for name, value in found["average"].items())
    assert '"members"' in printed


def test_processes_that_share_the_states_have_the_average_of_one(
    config: Any, write_config: Any, tmp_path: Path
) -> None:
    settings = {"optimizer.ema": 0.8, "data.micro_batch": 2, "schedule.steps": 8, "validation.every": 4}
    file = write_config(**settings, **{"parallel.zero": 2}, output=str(tmp_path / "two"))
    done = launch(2, "corpusmill.train", file)
    assert done.returncode == 0, done.stderr
    train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / "one"))))
    one, two = weights(tmp_path / "one", 8), weights(tmp_path / "two", 8)
    for part, tensors in one.items():
        for name, value in tensors.items():
            torch.testing.assert_close(two[part][name], value, atol=2e-5, rtol=1e-3, msg=f"{part} {name}")
    rows = [read_metrics(Folder(tmp_path / name)) for name in ("one", "two")]
    for a, b in zip(*rows, strict=True):  # gathered averages are not trained with
        assert b["loss"] == pytest.approx(a["loss"], rel=2e-5), a["step"]
        if "validation_ema" in a:
            assert b["validation_ema"] == pytest.approx(a["validation_ema"], rel=2e-5)


def test_a_first_step_that_overflows_leaves_a_state_that_the_second_begins_with(config: Any) -> None:
    settings = {
        "precision": "fp16",
        "optimizer.ema": 0.8,
        "schedule.steps": 8,
        "loss_scale": {"initial": 2.0**127},
    }
    rows = []
    train(TrainConfig.model_validate(config(**settings)), on_row=rows.append)
    scales = [row["loss_scale"] for row in rows]
    assert scales[0] == scales[1] > scales[-1] and len(rows) == 8  # two overflows lower it
