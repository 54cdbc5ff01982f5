"""A learning rate that is tuned during the run by its hypergradient, the derivative of the loss by the rate (Baydin et al. 2018, "Online
learning rate adaptation with hypergradient descent", in its multiplicative form).

If a step's gradient points against the last change of the weights, a longer change would have lowered the loss further, and the rate grows;
if it points along it, the change was too long. The schedule's rate is multiplied by a factor that each time becomes exp(-`rate` x cosine)
times itself, the cosine that of the gradient and the last change. It costs a copy of the parameters, sharded and saved as the other states.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from corpusmill.train.parallel.sharded_parameter import local

if TYPE_CHECKING:
    from corpusmill.schemas.optim import HypergradientConfig
    from corpusmill.train.parallel.model import ParallelModel

KEY = "previous"  # in a parameter's state: the parameter before the last step


@torch.no_grad()
def keep(optimizer: torch.optim.Optimizer) -> None:
    """Keep the parameters as they are before a step."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p]
            if KEY in state:
                local(state[KEY]).copy_(local(p))
            else:
                state[KEY] = p.detach().clone()


def factor_of(
    model: ParallelModel,
    optimizer: torch.optim.Optimizer,
    settings: HypergradientConfig,
    step: int,
    factor: float,
) -> float:
    """The factor of the rate of step `step`, counted from 1, which is about to be taken and whose gradients are there; `factor`: that of
    the step before. Collective, the same in all processes: they have the same sums. Steps that were not taken, and gradients that are
    not finite, change nothing."""
    if step > settings.after and step % settings.every == 0:
        cosine = float(_cosine(model, optimizer))
        if math.isfinite(cosine):
            changed = factor * math.exp(-settings.rate * cosine)
            factor = min(max(changed, settings.lowest), settings.highest)
    if (step + 1) % settings.every == 0:
        keep(optimizer)
    return factor


@torch.no_grad()
def _cosine(model: ParallelModel, optimizer: torch.optim.Optimizer) -> Tensor:
    """Of the gradient and the last change of the trained parameters, over all processes; NaN if either is 0."""
    gradients, changes = list[Tensor](), list[Tensor]()
    for p in model.trained():
        now = local(p.detach())
        changes.append(now - local(optimizer.state[p][KEY]))
        gradients.append(torch.zeros_like(now) if p.grad is None else local(p.grad).to(now, copy=True))
    for tensors in (gradients, changes):
        torch._foreach_div_(tensors, model.norm(tensors).to(tensors[0]))
    torch._foreach_sub_(gradients, changes)
    # |a - b|^2 = 2 - 2 cos(a, b) of vectors of length 1
    return 1 - model.norm(gradients).double().square() / 2
