"""Lion (Chen et al. 2023): the sign of an interpolated momentum. One moment instead of AdamW's two."""

from __future__ import annotations

from typing import Any

import torch


class Lion(torch.optim.Optimizer):
    """p <- (1 - lr wd) p - lr sign(b1 m + (1 - b1) g); then m <- b2 m + (1 - b2) g.

    The sign moves every element by lr, so that lr is to be 3 to 10 times lower than AdamW's, and weight_decay as much
    higher (section 5 of the paper).
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(m.lerp(p.grad, 1 - beta1).sign_(), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - beta2)
