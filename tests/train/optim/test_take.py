"""The norm of a step's change, measured in portions: the same step to the bit, and never a copy of all parameters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer, take
from corpusmill.train.optim.make import state_tensors
from corpusmill.train.optim.take import portions, step_where
from corpusmill.train.parallel.sharded_parameter import combined
from tests.train.guard.test_mask import KINDS


def model_of() -> Decoder:
    return Decoder(ModelConfig(dim=24, layers=3, heads=2, ffn_dim=40, vocab_multiple=8), 24, seed=3)


def gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)


class Copies(TorchDispatchMode):
    """The most elements that copies made by `clone` hold at once, were each portion's gone before the next one's."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten.clone.default:
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", KINDS)
def test_portions_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.train.optim.muon.TOGETHER", 2000)  # several stacks of equal matrices
    plain, measured = model_of(), model_of()
    optimizers = [make_optimizer(model, OptimizerConfig(kind=kind, lr=0.01)) for model in (plain, measured)]
    monkeypatch.setattr(take, "PORTION", 3000)
    for number in range(3):
        before = [p.detach().clone() for p in plain.parameters()]
        for model, optimizer in zip((plain, measured), optimizers, strict=True):
            gradients(model, number)
            parameters = list(model.parameters())
            found = step_where(optimizer, torch.tensor(True), parameters if model is measured else None)
        exact = torch.stack(
            [(p.detach() - old).double().norm() for p, old in zip(plain.parameters(), before, strict=True)]
        ).norm()
        assert float(combined(found, [1] * len(found), None)) == pytest.approx(float(exact), rel=1e-6)
    states = [
        {**m.state_dict(), **state_tensors(m, o)} for m, o in zip((plain, measured), optimizers, strict=True)
    ]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_portion_is_small_and_all_are_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    parameters: list[Tensor] = list(model.parameters())
    optimizer = make_optimizer(model, OptimizerConfig(kind="adamw"))
    assert portions(optimizer, parameters) == [(parameters, False)]  # small models: one step
    monkeypatch.setattr(take, "PORTION", 3000)
    found = [portion for portion, one_by_one in portions(optimizer, parameters) if not one_by_one]
    assert [p for portion in found for p in portion] == parameters and len(found) > 5
    assert max(sum(p.numel() for p in portion) for portion in found) <= 3000
    gradients(model, 1)
    with Copies() as copies:
        step_where(optimizer, None, parameters)
    assert sum(copies.sizes) == sum(p.numel() for p in parameters) and max(copies.sizes) < 3000


def test_what_is_not_taken_has_changed_by_nothing() -> None:
    model = model_of()
    optimizer = make_optimizer(model, OptimizerConfig(kind="adamw"))
    gradients(model, 1)
    found = step_where(optimizer, torch.tensor(False), list(model.parameters()))
    assert float(combined(found, [1] * len(found), None)) == 0.0 and not optimizer.state
