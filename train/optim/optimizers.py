"""Lion, LAMB, Adafactor and Muon, on whole parameters and on shards (DTensor) alike, without waiting for the device."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from corpusmill.train.parallel.sharded_parameter import cuts_of, gathered, mean, norm, scattered, size

EPS1, EPS2, CLIP, DECAY = 1e-30, 1e-3, 1.0, 0.8  # of Adafactor, as in the paper


class PerParameter(torch.optim.Optimizer):
    """An optimizer whose step is one `_update` of each parameter that has a gradient."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, self.state[p], group)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        raise NotImplementedError


class Lion(PerParameter):
    """Lion (Chen et al. 2023): the sign of an interpolated momentum; one moment instead of AdamW's two.

    p <- (1 - lr wd) p - lr sign(b1 m + (1 - b1) g); then m <- b2 m + (1 - b2) g. The sign moves every element by lr, so
    that lr is to be 3 to 10 times lower than AdamW's, and weight_decay as much higher (section 5 of the paper).
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        if not state:
            state["exp_avg"] = torch.zeros_like(p)
        m = state["exp_avg"]
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(m.lerp(grad, 1 - beta1).sign_(), alpha=-group["lr"])
        m.lerp_(grad, 1 - beta2)


class Lamb(PerParameter):
    """LAMB (You et al. 2020): Adam's direction, each tensor's step scaled to the tensor's own norm, for large batches.

    r = m / (sqrt(v) + eps) + wd p, both moments bias-corrected; p <- p - lr (|p| / |r|) r (algorithm 2). Where |p| or |r|
    is 0, the ratio is 1.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float = 1e-6) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        if not state:
            state["step"] = torch.zeros(())  # on the CPU, so that reading it does not wait for the device
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        m, v = state["exp_avg"], state["exp_avg_sq"]
        state["step"] += 1
        step = float(state["step"])
        m.lerp_(grad, 1 - beta1)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        update = (m / (1 - beta1**step)).div_((v / (1 - beta2**step)).sqrt_().add_(group["eps"]))
        update.add_(p, alpha=group["weight_decay"])
        weight, length = norm(p, p), norm(update, p)
        ratio = torch.where((weight > 0) & (length > 0), weight / length, 1.0)
        p.sub_(update.mul_(ratio), alpha=group["lr"])


class Adafactor(PerParameter):
    """Adafactor (Shazeer & Stern 2018): a matrix's second moment as the product of a row's and a column's, no first.
    Ours, since `torch.optim.Adafactor` works neither on shards nor without waiting for the device.

    Algorithms 4 and 5 of the paper, with decoupled weight decay: u = g / sqrt(r c / mean(r)), clipped to an RMS of 1;
    p <- (1 - lr wd) p - max(1e-3, RMS(p)) min(lr, 1 / sqrt(t)) u. So lr is relative to the size of the parameter. Of a
    stack of matrices each has its own rows and columns; a vector keeps its whole second moment.
    """

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        square, lr = grad.square().add_(EPS1), group["lr"]
        means = {"variance": square}
        if p.ndim > 1:
            means = {"row_var": mean(square, -1, p), "col_var": mean(square, -2, p)}
        if not state:
            state["step"] = torch.zeros(())  # on the CPU, so that reading it does not wait for the device
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
        p.mul_(1 - lr * group["weight_decay"])
        p.sub_(update.mul_(factor))


def _rms(x: Tensor, parameter: Tensor) -> Tensor:
    found: Tensor = norm(x, parameter) / size(parameter) ** 0.5
    return found


# Of Muon: Jordan's quintic, 5 times: singular values end between about 0.7 and 1.2, which is as good as 1 for training.
COEFFICIENTS, ITERATIONS, EPS = (3.4445, -4.7750, 2.0315), 5, 1e-7
TOGETHER = 2**26  # elements orthogonalised at once: bounds the memory of the intermediate results


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024): momentum made orthogonal for the matrices, AdamW for everything else.

    `torch.optim.Muon` takes 2-D parameters alone and one after the other. This one also takes stacks of matrices (experts),
    works on equal shapes together, keeps AdamW for the other parameters in the same optimizer, and gathers a sharded matrix
    before it is made orthogonal (a shard of an orthogonal matrix is not the orthogonal matrix of a shard).

    Groups with `muon` True hold matrices [..., m, n]; the others get AdamW's update.
    m <- mu m + (1 - mu) g; with Nesterov u = mu m + (1 - mu) g, else u = m; p <- (1 - lr wd) p - lr scale NS(u).
    `scale` is 0.2 sqrt(max(m, n)) for `match_rms_adamw`: updates then have the RMS of AdamW's, and lr and weight_decay
    tuned for AdamW hold (Liu et al. 2025, Moonlight); sqrt(max(1, m / n)) for `original`.
    """

    def __init__(
        self, params: Any, lr: float, betas: tuple[float, float], eps: float, momentum: float = 0.95,
        nesterov: bool = True, scale: str = "match_rms_adamw",
    ) -> None:  # fmt: skip
        self.momentum, self.nesterov, self.scale = momentum, nesterov, scale
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "muon": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            (self._orthogonal if group["muon"] else self._adamw)(group, params)

    def _orthogonal(self, group: dict[str, Any], params: list[Tensor]) -> None:
        updates: dict[tuple[Any, ...], list[tuple[Tensor, Tensor]]] = {}
        for p in params:
            state = self.state[p]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(p)
            grad: Tensor = p.grad  # type: ignore[assignment]
            m = state["momentum_buffer"].lerp_(grad, 1 - self.momentum)
            update = grad.lerp(m, self.momentum) if self.nesterov else m
            dims = tuple((cut.dim, cut.count) for cut in cuts_of(p))
            updates.setdefault((tuple(p.shape), dims), []).append((p, update))
        for pairs in updates.values():
            count = max(1, TOGETHER // size(pairs[0][0]))
            for start in range(0, len(pairs), count):
                part = pairs[start : start + count]
                made = orthogonalise(torch.stack([gathered(update, p) for p, update in part]))
                for (p, _), update in zip(part, made.unbind(), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(
                        scattered(update.to(p.dtype), p), alpha=-group["lr"] * self._factor(*made.shape[-2:])
                    )

    def _factor(self, rows: int, columns: int) -> float:
        if self.scale == "original":
            return math.sqrt(max(1.0, rows / columns))
        return 0.2 * math.sqrt(max(rows, columns))

    def _adamw(self, group: dict[str, Any], params: list[Tensor]) -> None:
        for p in params:
            if not self.state[p]:
                self.state[p].update(
                    step=torch.zeros((), device=p.device), exp_avg=torch.zeros_like(p),
                    exp_avg_sq=torch.zeros_like(p),
                )  # fmt: skip
        states = [self.state[p] for p in params]
        first, second, steps = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step"))
        adamw(
            params, [p.grad for p in params if p.grad is not None], first, second, [], steps, fused=True, amsgrad=False, beta1=group["betas"][0],
            beta2=group["betas"][1], lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
        )  # fmt: skip


def orthogonalise(stack: Tensor) -> Tensor:
    """[..., m, n] -> the same, each matrix with its singular values near 1 (Newton-Schulz).

    In bfloat16 on an accelerator, as Jordan; in float32 on a CPU, where layouts are compared.
    """
    x = stack.to(torch.float32 if stack.device.type == "cpu" else torch.bfloat16).flatten(0, -3)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=EPS)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).reshape(stack.shape)
