"""LAMB (You et al. 2020): Adam's direction, each tensor's step scaled to the tensor's own norm, for large batches."""

from __future__ import annotations

from typing import Any

import torch

from corpusmill.train.parallel.sharded_parameter import norm


class Lamb(torch.optim.Optimizer):
    """r = m / (sqrt(v) + eps) + wd p, both moments bias-corrected; p <- p - lr (|p| / |r|) r (algorithm 2).

    Where |p| or |r| is 0, the ratio is 1.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float = 1e-6) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros(())  # on the CPU: reading it waits for nothing
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                m, v = state["exp_avg"], state["exp_avg_sq"]
                state["step"] += 1
                step = float(state["step"])
                m.lerp_(p.grad, 1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                update = (m / (1 - beta1**step)).div_((v / (1 - beta2**step)).sqrt_().add_(group["eps"]))
                update.add_(p, alpha=group["weight_decay"])
                weight, length = norm(p, p), norm(update, p)
                ratio = torch.where((weight > 0) & (length > 0), weight / length, 1.0)
                p.sub_(update.mul_(ratio), alpha=group["lr"])
