"""An exponential moving average of the weights (EMA; Polyak & Juditsky 1992), kept as a state of the optimizer: sharded, saved and loaded
into other layouts as its moments are.

After step t the average is d x average + (1 - d) x weights, d the decay or (1 + t) / (10 + t) if that is less, so that the first weights
are soon forgotten. After the first step it is the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from corpusmill.train.parallel.sharded_parameter import local

if TYPE_CHECKING:
    from corpusmill.train.parallel.model import ParallelModel

KEY = "average"  # its key in a parameter's state


def pairs(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], list[Tensor]]:
    """(averages, parameters), of both what is in this process; an average that is not there begins as the parameter."""
    averages, weights = [], []
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p]
            if KEY not in state:
                state[KEY] = p.detach().clone()
            averages.append(local(state[KEY]))
            weights.append(local(p.detach()))
    return averages, weights


@torch.no_grad()
def update(optimizer: torch.optim.Optimizer, decay: float, step: int, taken: Tensor | None = None) -> None:
    """After step `step`, counted from 1. `taken`: bool, no dimensions: whether it was (None: it was); the host does not read it."""
    averages, weights = pairs(optimizer)
    share = 1.0 if step == 1 else 1 - min(decay, (1 + step) / (10 + step))
    if taken is None:
        torch._foreach_lerp_(averages, weights, share)
        return
    for average, weight in zip(averages, weights, strict=True):
        average.lerp_(weight, (taken * share).to(average))


@contextmanager
def averaged(model: ParallelModel, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Within, the model has the averages as its weights, and the optimizer the weights as its averages: one parameter more in memory."""
    _swap(model, optimizer)
    try:
        yield
    finally:
        _swap(model, optimizer)


@torch.no_grad()
def _swap(model: ParallelModel, optimizer: torch.optim.Optimizer) -> None:
    model.forget_gathered()
    for average, weight in zip(*pairs(optimizer), strict=True):
        kept = weight.clone()
        weight.copy_(average)
        average.copy_(kept)
