"""An optimizer's state as tensors with names: `<key>/<parameter name>`, whatever the optimizer."""

from __future__ import annotations

import torch
from torch import Tensor

from corpusmill.train.optim.make import Named
from corpusmill.train.optim.schedule import set_rate


def prepare(optimizer: torch.optim.Optimizer) -> None:
    """Give a fresh optimizer its state, as a first step makes it, by a step of rate 0 with gradients of 0.

    Without this a fresh optimizer has no state, and nothing would notice that none was restored.
    """
    if any(optimizer.state.values()):
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    kept = [p.grad for p in parameters]
    first = optimizer.param_groups[0]
    rate = float(first["lr"]) / first.get("lr_ratio", 1.0)
    for p in parameters:
        p.grad = torch.zeros_like(p)
    set_rate(optimizer, 0.0)
    optimizer.step()
    set_rate(optimizer, rate)
    for p, grad in zip(parameters, kept, strict=True):
        p.grad = grad


def state_tensors(model: Named, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The live tensors of an optimizer's state, by name; names, not places, survive a change of code."""
    return {
        f"{key}/{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def quantised(tensor: Tensor) -> bool:
    """Whether it is one of torchao's, which passes for a tensor of float32 and holds codes and scales; or sharded, of such."""
    return hasattr(tensor.to_local() if hasattr(tensor, "to_local") else tensor, "codes")
