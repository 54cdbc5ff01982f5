"""Adafactor (Shazeer & Stern 2018): the second moment of a matrix as the product of a row's and a column's, no first.

Ours, since `torch.optim.Adafactor` works neither on shards (DTensor) nor without waiting for the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from corpusmill.train.parallel.sharded_parameter import mean, norm, size

EPS1, EPS2, CLIP, DECAY = 1e-30, 1e-3, 1.0, 0.8  # the paper's


class Adafactor(torch.optim.Optimizer):
    """Algorithms 4 and 5 of the paper, with decoupled weight decay: u = g / sqrt(r c / mean(r)), clipped to an RMS of 1;
    p <- (1 - lr wd) p - max(1e-3, RMS(p)) min(lr, 1 / sqrt(t)) u. So lr is relative to the size of the parameter.

    Of a stack of matrices each has its own rows and columns; a vector keeps its whole second moment.
    """

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, self.state[p], group["lr"], group["weight_decay"])

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], lr: float, decay: float) -> None:
        square = grad.square().add_(EPS1)
        means = (
            {"row_var": mean(square, -1, p), "col_var": mean(square, -2, p)}
            if p.ndim > 1
            else {"variance": square}
        )
        if not state:
            state["step"] = torch.zeros(())  # on the CPU: reading it waits for nothing
            state.update({name: torch.zeros_like(value) for name, value in means.items()})
        state["step"] += 1
        step = float(state["step"])
        for name, value in means.items():
            state[name].lerp_(value, step**-DECAY)
        if p.ndim > 1:
            row = state["row_var"]
            variance = (row / mean(row, -2, p)) * state["col_var"]
        else:
            variance = state["variance"]
        update = grad * variance.rsqrt()
        factor = _rms(p, p).clamp(min=EPS2) * min(lr, step**-0.5) / (_rms(update, p) / CLIP).clamp(min=1.0)
        p.mul_(1 - lr * decay)
        p.sub_(update.mul_(factor))


def _rms(x: Tensor, parameter: Tensor) -> Tensor:
    return norm(x, parameter) / size(parameter) ** 0.5
