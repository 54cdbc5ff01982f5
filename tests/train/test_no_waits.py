"""On a device a step that is not logged never makes the host wait, and the device's path gives the CPU's numbers.

`tests/train/fake_cuda.py` stands for the device; tests/gpu proves the same on a real one, and that a step which is not taken
changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import step as step_module
from corpusmill.train.batch import Batch
from corpusmill.train.data import StreamingTokens
from corpusmill.train.guard.guard import Guard
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.precision.loss_scale import LossScale
from corpusmill.train.step import Metrics, TrainState, train_step
from tests.gpu.steps import CASES, bits
from tests.train.fake_cuda import CUDA, FakeCuda

CPU = torch.device("cpu")
STEPS = 3


class Loop:
    """The steps of the trainer's loop that are not logged, on a device or the CPU."""

    def __init__(self, settings: dict[str, Any], folder: Folder, cuda: FakeCuda | None = None) -> None:
        from corpusmill.train.precision.adapt import apply_checkpointing

        self.config = config = TrainConfig.model_validate(settings)
        self.device = CUDA if cuda else CPU
        model = Decoder(config.model, 96, config.seed)
        model = cuda.moved(model) if cuda else model
        apply_checkpointing(model, config.memory)
        parallel = ParallelModel([model], World(device=self.device))
        window = torch.zeros(3, 2, dtype=torch.float64, device=self.device)
        self.state = TrainState(
            config, parallel, make_optimizer(parallel, config.optimizer), window, self.device
        )
        if config.precision == "fp16":
            self.state.loss_scale = LossScale(config.loss_scale, self.device)
        self.guard = Guard(config.guard, folder, World(device=self.device), lambda _: {}, print)

    def step(self, batch: Batch, logged: bool = False) -> Metrics:
        self.guard.arm(self.state, 1)
        valid = float((batch["labels"] >= 0).sum())
        metrics = train_step(self.state, batch, valid, logged)
        self.guard.judge(metrics, self.state.step, now=False)
        return metrics


def batches(config: dict[str, Any], shards: Folder) -> list[dict[str, Tensor]]:
    data = {key: value for key, value in config["data"].items() if key != "shards"}
    with StreamingTokens(shards.url, seed=1, **data) as stream:
        return [dict(next(stream)) for _ in range(STEPS)]


def settings_of(config: Callable[..., Any], case: str) -> dict[str, Any]:
    return dict(config(**CASES[case]))


@pytest.mark.parametrize("case", CASES)
def test_a_step_that_is_not_logged_does_not_wait(
    case: str, config: Callable[..., Any], shards: Folder, tmp_path: Any
) -> None:
    settings = settings_of(config, case)
    data = batches(settings, shards)
    plain = Loop(settings, Folder(tmp_path / "cpu"))
    for number, batch in enumerate(data):
        plain.step(batch, logged=number == 1)
    with FakeCuda() as cuda:
        loop = Loop(settings, Folder(tmp_path / "cuda"), cuda)
        loop.step(data[0])  # allocates
        cuda.waits.clear()
        metrics = loop.step(data[1], logged=True)
        loop.step(data[2])
        assert cuda.waits == []
        assert (
            metrics.update_norm is not None and metrics.update_norm.is_cuda and float(metrics.update_norm) > 0
        )
        # Muon orthogonalises in bfloat16 on a device.
        rounded = settings["precision"] != "fp32" or settings["optimizer"].get("kind") == "muon"
        close = {"atol": 2e-2, "rtol": 5e-2} if rounded else {"atol": 1e-4, "rtol": 1e-3}
        found = {name: p.detach().cpu() for name, p in loop.state.model.named_parameters()}
        total = loop.state.window.cpu()
    torch.testing.assert_close(total, plain.state.window, atol=0.0, rtol=2e-3)
    for name, p in plain.state.model.named_parameters():
        torch.testing.assert_close(found[name], p.detach(), msg=lambda m, name=name: f"{name}: {m}", **close)


@pytest.mark.parametrize("where", ["move_biases", "activation_rms", "set_rate"])
def test_a_planted_read_is_found(
    where: str, config: Callable[..., Any], shards: Folder, tmp_path: Any
) -> None:
    settings = settings_of(config, "experts")
    data = batches(settings, shards)
    with FakeCuda() as cuda:
        loop = Loop(settings, Folder(tmp_path / "cuda"), cuda)
        loop.step(data[0])
        cuda.waits.clear()
        found = getattr(step_module, where)

        def reads(*args: Any) -> Any:
            float(loop.state.window.sum())
            return found(*args)

        with patch.object(step_module, where, reads):
            loop.step(data[1])
        assert (
            len(cuda.waits) == 1
            and "test_no_waits.py" in cuda.waits[0]
            and "_local_scalar_dense" in cuda.waits[0]
        )


class Offloaded(ParallelModel):
    """As with `memory.offload: optimizer`: computes on the device with copies of the parameters; parameters and gradients, and so
    the optimizer's states and the gradients' norm, are on the host."""

    def __init__(self, decoder: Decoder, cuda: FakeCuda) -> None:
        self.host = {name: nn.Parameter(p.detach().clone()) for name, p in decoder.named_parameters()}
        super().__init__([cuda.moved(decoder)], World(device=CUDA))

    def named_parameters(self) -> Any:
        yield from self.host.items()

    def backward(self, *args: Any) -> list[Tensor]:
        copies = dict(self.parts[0].named_parameters())
        for name, parameter in self.host.items():
            copies[name].detach().copy_(parameter.detach())
        losses = super().backward(*args)
        for name, parameter in self.host.items():
            parameter.grad, copies[name].grad = copies[name].grad.cpu(), None  # type: ignore[union-attr]
        return losses


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_an_offloaded_optimizer_works_under_the_guard(
    precision: str, kind: str, config: Callable[..., Any], shards: Folder, tmp_path: Any
) -> None:
    """Loss on the device, norm on the host: they are compared in one place; and a flag on the device is not handed to kernels
    on the host, which would read it before it has arrived."""
    settings = {**settings_of(config, kind), "precision": precision}
    data = batches(settings, shards)
    plain = Loop(settings, Folder(tmp_path / "cpu"))
    with FakeCuda() as cuda:
        loop = Loop(settings, Folder(tmp_path / "cuda"), cuda)
        loop.state.model = Offloaded(Decoder(loop.config.model, 96, loop.config.seed), cuda)
        loop.state.optimizer = make_optimizer(loop.state.model, loop.config.optimizer)
        taken = []
        step = loop.state.optimizer.step

        def watched() -> None:
            assert not hasattr(loop.state.optimizer, "found_inf")
            taken.append(loop.state.step)
            step()

        loop.state.optimizer.step = watched  # type: ignore[method-assign]
        for number, batch in enumerate(data):
            for each in (plain, loop):
                each.guard.arm(each.state, 1)
                if number == 1:
                    each.state.limits = (-math.inf, -math.inf)
                train_step(each.state, batch, 192.0, collect_stats=number == 2)
        assert taken == [1, 3]
        assert all(p.device == CPU for p in loop.state.model.parameters())
        found = bits(loop.state)
    for name, p in bits(plain.state).items():
        torch.testing.assert_close(
            found[name], p, atol=2e-3 if precision == "fp16" else 1e-5, rtol=1e-2, msg=name
        )
