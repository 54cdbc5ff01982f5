"""What the processes of a tensor-parallel group send each other, and in which type."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from corpusmill.train.parallel import tensor
from corpusmill.train.parallel.tensor import TensorSplit


@pytest.mark.parametrize(("exact", "dtype"), [(False, torch.bfloat16), (True, torch.float32)])
def test_sequences_travel_in_the_type_of_the_products(
    exact: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways; a router's in float32. Half the bytes, and what the products get is the same: they round as well."""
    sent: list[torch.dtype] = []

    def gathered(x: Tensor, _split: TensorSplit) -> Tensor:
        sent.append(x.dtype)
        return torch.cat((x, x), dim=1)

    def scattered(x: Tensor, _split: TensorSplit) -> Tensor:
        sent.append(x.dtype)
        return x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]

    monkeypatch.setattr(tensor, "_gathered", gathered)
    monkeypatch.setattr(tensor, "_scattered", scattered)
    split = object.__new__(TensorSplit)
    split.size = 2
    x = torch.randn(2, 3, 8, requires_grad=True)
    weight = torch.randn(5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = torch.nn.functional.linear(split.gather(x, exact), weight)
        assert torch.equal(y, torch.nn.functional.linear(torch.cat((x, x), dim=1), weight))
    y.float().sum().backward()
    assert sent == [dtype, dtype] and x.grad is not None and x.grad.dtype == torch.float32
    sent.clear()
    assert split.gather(x.detach()).dtype == torch.float32  # without autocast as it is
