"""Offloaded activations: the same gradients, nothing of them on the device between the passes, and back before their use."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from corpusmill.train.precision import offload
from corpusmill.train.precision.offload import Offload
from tests.train.fake_cuda import FakeCuda


class Stream:
    """Keeps the order of copies and waits."""

    def __init__(self) -> None:
        self.order: list[tuple[str, Any]] = []

    def wait_stream(self, _other: Any) -> None:
        self.order.append(("out", None))

    def record_event(self) -> Any:
        number = sum(what == "back" for what, _ in self.order)
        self.order.append(("back", number))
        return type("Event", (), {"waited": lambda _self: self.order.append(("used", number))})()


def passes(cuda: FakeCuda, stream: Stream | None, layers: int = 12) -> list[Tensor]:
    """Gradients of a chain of products."""
    weights = [
        cuda.moved(torch.randn(64, 64, generator=torch.Generator().manual_seed(n)) / 8) for n in range(layers)
    ]
    x = cuda.moved(torch.ones(32, 64))
    leaves = [w.requires_grad_() for w in weights]
    with torch.enable_grad() if stream is None else Offload(stream):
        for w in leaves:
            x = (x @ w).sigmoid()
    x.sum().backward()
    return [w.grad.cpu() for w in leaves if w.grad is not None]


@pytest.mark.parametrize("small", [0, 1 << 40])
def test_gradients_are_the_same_and_tensors_come_back_ahead(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "SMALL", small)
    with FakeCuda() as cuda:
        wanted = passes(cuda, None)
        cuda.waits.clear()
        stream = Stream()
        found = passes(cuda, stream)
        assert [wait for wait in cuda.waits if "cpu" not in wait] == []
    assert len(found) == 12 and all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    kinds = Counter(what for what, _ in stream.order)
    if small:
        assert not kinds
        return
    assert kinds["out"] == kinds["back"] == kinds["used"] > 24  # each one once
    back, used = 0, 0
    for what, _ in stream.order[kinds["out"] :]:
        back, used = back + (what == "back"), used + (what == "used")
        assert used <= back <= used + offload.AHEAD + 4
    assert [what for what, _ in stream.order[kinds["out"] :]][: offload.AHEAD] == ["back"] * offload.AHEAD


def test_what_is_used_twice_comes_back_twice() -> None:
    with FakeCuda() as cuda:
        x = cuda.moved(torch.full((256, 256), 2.0)).requires_grad_()
        with Offload(Stream()):
            y = (x * x * 1.0).sum()
        first = torch.autograd.grad(y, x, retain_graph=True)[0].cpu()
        assert torch.equal(torch.autograd.grad(y, x)[0].cpu(), first) and float(first[0, 0]) == 4.0
