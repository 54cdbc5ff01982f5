"""The stand-in for a CUDA device: what would make the host wait is noted, what a device refuses is refused, and the rest is
computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.fake_cuda import CUDA, FakeCuda


def planted(x: Tensor) -> dict[str, Callable[[], Any]]:
    """What waits, by name; `x` is on the device."""
    host = torch.ones(4)
    return {
        "item": lambda: x.sum().item(), "float": lambda: float(x.sum()), "bool": lambda: bool(x.sum() > 0),
        "if": lambda: 1 if (x > 0).any() else 0, "tolist": x.tolist, "cpu": x.cpu, "numpy": x.numpy,
        "to": lambda: x.to("cpu"), "to a type": lambda: x.to("cpu", torch.float64), "to like": lambda: x.to(host),
        "not blocking": lambda: x.to("cpu", non_blocking=True), "nonzero": x.nonzero, "mask": lambda: x[x > 0],
        "masked_select": lambda: x.masked_select(x > 0), "set by mask": lambda: x.__setitem__(x > 2, 0.0),
        "unique": x.unique, "equal": lambda: torch.equal(x, x), "repeat": lambda: x.repeat_interleave(x.long()),
        "tensor": lambda: torch.tensor([1.0, 2.0], device=x.device), "from the host": lambda: host.to(CUDA),
        "not pinned": lambda: host.to(CUDA, non_blocking=True), "pinned, blocking": lambda: host.pin_memory().to(CUDA),
        "into the device": lambda: x.copy_(host), "into the host": lambda: host.copy_(x), "where": lambda: torch.where(torch.tensor(True), x, x),
    }  # fmt: skip


NAMES = list(planted(torch.ones(1)))


@pytest.mark.parametrize("name", NAMES)
def test_a_wait_is_noted_with_its_place(name: str) -> None:
    with FakeCuda() as cuda:
        x = cuda.moved(torch.arange(4.0))
        if name == "where":
            with pytest.raises(RuntimeError, match="one device"):
                planted(x)[name]()
            return
        planted(x)[name]()
        assert len(cuda.waits) == 1 and "test_fake_cuda.py" in cuda.waits[0], cuda.waits


def test_what_does_not_wait_is_not_noted_and_is_right() -> None:
    with FakeCuda() as cuda:
        x = torch.arange(12.0).view(3, 4).pin_memory().to(CUDA, non_blocking=True)
        w = cuda.moved(torch.nn.Linear(4, 2))
        assert x.is_cuda and w.weight.device == x.device == CUDA
        y = w(x).relu() * 0.5 + torch.tensor(2.0)  # a CPU tensor without dimensions is a kernel's argument
        y = torch.where(y > 2, y, 0.0).index_select(0, torch.arange(2, device=x.device))
        y.sum().backward()
        optimizer = torch.optim.AdamW(w.parameters(), lr=0.1, fused=True)
        optimizer.step()
        host = torch.empty(2, 2, pin_memory=True)
        host.copy_(y.detach(), non_blocking=True)
        x.repeat_interleave(torch.ones(3, dtype=torch.int64, device=CUDA), dim=0, output_size=3)
        assert cuda.waits == [] and optimizer.state[w.weight]["step"].is_cuda
        assert torch.equal(host, y.detach().cpu()) and w.weight.grad is not None


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x + torch.ones(4), lambda x: torch.stack((x.sum(), torch.zeros(()))), lambda x: torch.cat((x, torch.zeros(4))),
        lambda x: x @ torch.ones(4), lambda x: torch._foreach_mul_([x], torch.ones(())),
    ],
)  # fmt: skip
def test_tensors_of_both_sides_do_not_mix(mixed: Callable[[Tensor], Any]) -> None:
    with FakeCuda() as cuda, pytest.raises(RuntimeError, match="one device, found cuda:0 and cpu"):
        mixed(cuda.moved(torch.ones(4)))


def test_nothing_is_left_behind() -> None:
    before = torch.autocast, torch.cuda.Stream, torch.compile
    with FakeCuda():
        assert torch.autocast is not before[0]
    assert (torch.autocast, torch.cuda.Stream, torch.compile) == before
    with pytest.raises((AssertionError, RuntimeError), match="CUDA|cuda"):
        torch.zeros(3, device=CUDA)
