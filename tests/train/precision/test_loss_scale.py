"""The loss scale of fp16: Megatron's rule, steps that overflow leave everything as it was, and nothing waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from corpusmill.schemas.parallel import LossScaleConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.optim.make import state_tensors
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.precision.loss_scale import LossScale
from corpusmill.train.step import TrainState, train_step


class Megatron:
    """`DynamicGradScaler.update` of Megatron-LM (core/optimizer/grad_scaler.py), in its words."""

    def __init__(self, config: LossScaleConfig) -> None:
        self.config, self.scale = config, config.initial
        self.growth_tracker, self.hysteresis_tracker = 0, config.hysteresis

    def update(self, found_inf: bool) -> None:
        config = self.config
        if found_inf:
            self.growth_tracker = 0
            self.hysteresis_tracker -= 1
            if self.hysteresis_tracker <= 0:
                self.scale = max(self.scale * config.backoff_factor, config.floor)
        else:
            self.growth_tracker += 1
            if self.growth_tracker == config.growth_interval:
                self.growth_tracker = 0
                self.hysteresis_tracker = config.hysteresis
                self.scale = self.scale * config.growth_factor


@pytest.mark.parametrize("hysteresis", [1, 2, 3])
def test_the_scale_is_megatrons_and_goes_on_from_a_checkpoint(hysteresis: int) -> None:
    config = LossScaleConfig(initial=64.0, growth_interval=3, hysteresis=hysteresis, floor=4.0)
    ours, theirs = LossScale(config), Megatron(config)
    generator, seen = torch.Generator().manual_seed(hysteresis), set()
    for step in range(300):
        finite = torch.rand((), generator=generator) < (0.85 if step // 50 % 2 else 0.4)
        ours.update(finite)
        theirs.update(not finite)
        assert float(ours.scale) == theirs.scale, step
        seen.add(theirs.scale)
        saved, ours = ours.state_dict(), LossScale(config)
        ours.load_state_dict(saved)
    assert len(seen) > 3 and min(seen) == 4.0


def test_at_the_floor_it_stays_and_raises_nothing() -> None:
    scaler = LossScale(LossScaleConfig(initial=2.0, hysteresis=1, floor=1.0))
    for _ in range(5):
        scaler.update(torch.tensor(False))
    assert float(scaler.scale) == 1.0
    for _ in range(100):  # of gradients that are 0 for ever
        scaler.config = LossScaleConfig(growth_interval=1)
        scaler.update(torch.tensor(True))
    assert float(scaler.scale) == 2.0**32


OPTIMIZERS = ["adamw", "muon", "lion", "adafactor", "lamb", "sgd"]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_that_overflows_changes_no_weight_and_no_state(kind: str, config: Callable[..., Any]) -> None:
    moe = {"experts": 4, "ffn_dim": 32, "bias_rate": 0.25, "first": 1}
    settings = config(
        **{"precision": "fp16", "optimizer.kind": kind, "model.moe": moe, "loss_scale.initial": 256.0}
    )
    del settings["optimizer"]["lr"]
    state = state_of(settings)
    batch = batch_of(8, 24)
    for step, overflow in enumerate([False, True, True, False], 1):
        before = everything(state)
        assert state.loss_scale is not None
        scale = 2.0**31 if overflow else 256.0  # the first is beyond what fp16 holds
        state.loss_scale.scale.fill_(scale)
        metrics = train_step(state, batch, 8 * 24.0)
        assert bool(metrics.grad_norm.isfinite()) is not overflow
        assert metrics.loss_scale is not None and float(metrics.loss_scale) == scale
        same = [
            torch.equal(tensor, before[name]) for name, tensor in everything(state).items() if name in before
        ]
        assert all(same) if overflow else not all(same), step


def test_gradients_do_not_depend_on_the_scale(config: Callable[..., Any]) -> None:
    """Powers of 2 are exact; without a scale small gradients are lost: a loss that is divided by many tokens has such."""
    tokens, found = 8 * 24 * 2.0**10, {}
    for scale in (1.0, 2.0**12, 2.0**15):
        state = state_of(
            config(
                **{
                    "precision": "fp16",
                    "loss_scale.initial": scale,
                    "optimizer.grad_clip": None,
                    "guard.enabled": False,
                }
            )
        )
        found[scale] = train_step(state, batch_of(8, 24), tokens).grad_norm
    exact = train_step(state_of(config()), batch_of(8, 24), tokens).grad_norm
    torch.testing.assert_close(found[2.0**12], found[2.0**15], rtol=1e-5, atol=0)
    torch.testing.assert_close(found[2.0**12], exact, rtol=2e-3, atol=0)
    assert abs(found[1.0] - exact) > 5 * abs(found[2.0**12] - exact)


def state_of(settings: dict[str, Any]) -> TrainState:
    config = TrainConfig.model_validate(settings)
    model = ParallelModel([Decoder(config.model, 96, config.seed)])
    optimizer = make_optimizer(model, config.optimizer)
    state = TrainState(config, model, optimizer, torch.zeros(3, 2, dtype=torch.float64))
    if config.precision == "fp16":
        state.loss_scale = LossScale(config.loss_scale)
    return state


def batch_of(rows: int, length: int) -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, 96, (rows, length + 1), generator=torch.Generator().manual_seed(5))
    documents = (torch.arange(length) > length // 3).long().expand(rows, -1)
    return {
        "tokens": tokens[:, :-1], "labels": tokens[:, 1:], "documents": documents,
        "positions": torch.arange(length).expand(rows, -1), "source_id": torch.zeros(rows, dtype=torch.int64),
        "n": torch.arange(rows),
    }  # fmt: skip


def everything(state: TrainState) -> dict[str, torch.Tensor]:
    """Copies of parameters, then buffers and the optimizer's states."""
    tensors = state.model.state_dict()
    tensors.update(state_tensors(state.model, state.optimizer))
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def test_a_first_scale_that_the_guard_takes_for_too_low_is_refused(config: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"loss_scale.initial 1 .* set it above guard.loss_scale_floor 1"):
        TrainConfig.model_validate(config(**{"precision": "fp16", "loss_scale.initial": 1.0}))
    TrainConfig.model_validate(
        config(**{"precision": "fp16", "loss_scale.initial": 1.0, "guard.loss_scale_floor": 0.5})
    )
