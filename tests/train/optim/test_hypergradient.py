"""A learning rate tuned by its hypergradient: its rule written out, its bounds, layouts, restarts, and that it finds a better rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.optim import make_optimizer, rate_at
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import build
from corpusmill.train.step import TrainState, train_step
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.parallel.layouts import SOURCES, VOCAB, batch_of, config_of

Make = Callable[..., dict[str, Any]]


def state_of(settings: dict[str, Any], **optimizer: Any) -> TrainState:
    given = {"lr": 0.05, "grad_clip": None, **optimizer, "hypergradient": settings}
    config = config_of({}, {"optimizer": given})
    model = build(config, VOCAB, World())
    window = torch.zeros(SOURCES, 2, dtype=torch.float64)
    return TrainState(config, model, make_optimizer(model, config.optimizer), window)


def step(state: TrainState, number: int) -> tuple[float, torch.Tensor, torch.Tensor]:
    """(rate, gradient, weights afterwards), all parameters as one vector."""
    batch, grads = batch_of(number), list[torch.Tensor]()
    taken = state.optimizer.step

    def watched(*args: Any, **more: Any) -> Any:
        grads.append(torch.cat([p.grad.flatten() for p in state.model.parameters()]))  # type: ignore[union-attr]
        return taken(*args, **more)

    state.optimizer.step = watched  # type: ignore[method-assign]
    metrics = train_step(state, batch, float((batch["labels"] >= 0).sum()))
    state.optimizer.step = taken  # type: ignore[method-assign]
    weights = torch.cat([p.detach().flatten() for p in state.model.parameters()])
    return metrics.rate, grads[0].double(), weights.double().clone()


@pytest.mark.parametrize("kind", ["sgd", "adamw", "muon"])
@pytest.mark.parametrize("every", [1, 3])
def test_it_is_the_rule_written_out(kind: str, every: int) -> None:
    state = state_of({"rate": 0.9, "every": every, "after": 2}, kind=kind)
    before = [torch.cat([p.detach().flatten() for p in state.model.parameters()]).double().clone()]
    factor = 1.0
    for number in range(1, 11):
        rate, gradient, after = step(state, number)
        if number > 2 and number % every == 0:
            change = before[-1] - before[-2]
            factor *= math.exp(-0.9 * float(gradient @ change / gradient.norm() / change.norm()))
        assert rate == pytest.approx(rate_at(state.config, number) * factor, rel=1e-5)
        before.append(after)
    assert abs(factor - 1) > 0.003


def test_it_stays_within_its_bounds() -> None:
    state = state_of({"rate": 0.9, "lowest": 0.998, "highest": 1.002}, kind="sgd")
    rates = [step(state, number)[0] / rate_at(state.config, number) for number in range(1, 9)]
    assert min(rates) >= 0.998 - 1e-9 and max(rates) <= 1.002 + 1e-9
    assert any(rate == pytest.approx(bound, abs=1e-9) for rate in rates for bound in (0.998, 1.002))


def test_a_step_that_is_not_taken_changes_nothing_at_the_next() -> None:
    state = state_of({"rate": 0.3}, kind="sgd")
    for number in range(1, 4):
        step(state, number)
    state.limits = (0.0, 0.0)  # no step is below these
    batch = batch_of(4)
    train_step(state, batch, float((batch["labels"] >= 0).sum()))
    tuned, state.limits = state.tuned, None
    step(state, 5)  # after a change of 0
    assert state.tuned == tuned
    step(state, 6)
    assert state.tuned != tuned


@pytest.mark.parametrize(("lr", "above"), [(1e-5, True), (0.5, False)])
def test_a_rate_that_is_far_off_moves_towards_a_better_one(
    config: Make, tmp_path: Path, lr: float, above: bool
) -> None:
    more = {"optimizer.lr": lr, "schedule.steps": 60, "schedule.kind": "constant", "schedule.warmup_steps": 1}
    more |= {"optimizer.grad_clip": None, "validation.every": 60, "guard.enabled": False}
    plain = train(TrainConfig.model_validate(config(**more, output=str(tmp_path / "plain"))))
    more["optimizer.hypergradient"] = {"rate": 0.9, "lowest": 0.001, "highest": 1000.0}
    tuned = train(TrainConfig.model_validate(config(**more)))
    last = read_metrics(Folder(tmp_path / "run"))[-1]["lr"]
    assert last > 2 * lr if above else last < 0.6 * lr
    assert sum(tuned["validation"].values()) < sum(plain["validation"].values())


def outcome(run: Path, steps: int) -> tuple[str, list[float]]:
    found = checkpoint.open_step(Folder(run), steps)
    return found.weights_xxh3, [row["lr"] for row in read_metrics(Folder(run))]


def test_a_run_that_is_cut_at_any_step_ends_the_same(config: Make, write_config: Any, tmp_path: Path) -> None:
    more = {"optimizer.hypergradient": {"rate": 0.3, "every": 2}, "schedule.steps": 6, "checkpoint.every": 1}
    more["schedule.warmup_steps"] = 1
    train(TrainConfig.model_validate(config(**more, output=str(tmp_path / "whole"))))
    for last in range(1, 6):
        file = write_config(**more, output=str(tmp_path / f"cut-{last}"))
        train(load(TrainConfig, file, [f"stop_after={last}"]))
        train(load(TrainConfig, file))
        assert outcome(tmp_path / f"cut-{last}", 6) == outcome(tmp_path / "whole", 6)


def test_processes_tune_the_rate_of_one(config: Make, write_config: Any, tmp_path: Path) -> None:
    more = {"optimizer.hypergradient": {"rate": 0.3}, "data.micro_batch": 2, "schedule.steps": 8}
    train(TrainConfig.model_validate(config(**more)))
    _, alone = outcome(tmp_path / "run", 8)
    assert max(alone) != pytest.approx(3e-3, rel=1e-3)
    for name, parallel in (("zero", {"zero": 3}), ("tensor", {"tensor": 2}), ("pipeline", {"pipeline": 2})):
        file = write_config(**more, parallel=parallel, output=str(tmp_path / name))
        done = launch(2, "corpusmill.train", file)
        assert done.returncode == 0, done.stderr
        assert outcome(tmp_path / name, 8)[1] == pytest.approx(alone, rel=2e-3)
