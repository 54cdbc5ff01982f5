"""Muon, on whole parameters and on shards (DTensor) alike, without waiting for the device."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from corpusmill.train.optim.optimizers import Watched, unless
from corpusmill.train.parallel.deal import Level, dealt, levels_of
from corpusmill.train.parallel.sharded_parameter import cuts_of, local, part_of, size

# Jordan's quintic, 5 times: singular values end between about 0.7 and 1.2, which is as good as 1 for training.
COEFFICIENTS, ITERATIONS, EPS = (3.4445, -4.7750, 2.0315), 5, 1e-7
TOGETHER = (
    2**26
)  # elements orthogonalised at once by a process: bounds the memory of the intermediate results


class Muon(Watched):
    """Muon (Jordan et al. 2024): momentum made orthogonal for the matrices, AdamW for everything else.

    `torch.optim.Muon` takes 2-D parameters alone and one after the other. This one also takes stacks of matrices (experts),
    works on equal shapes together, keeps AdamW for the other parameters in the same optimizer, and makes whole matrices
    orthogonal (a shard of an orthogonal matrix is not the orthogonal matrix of a shard). Those are dealt out among the processes that
    hold them or parts of them (`corpusmill.train.parallel.deal`).

    Groups with `muon` True hold matrices [..., m, n]; the others get AdamW's update.
    m <- mu m + (1 - mu) g; with Nesterov u = mu m + (1 - mu) g, else u = m; p <- (1 - lr wd) p - lr scale NS(u).
    `scale` is 0.2 sqrt(max(m, n)) for `match_rms_adamw`: updates then have the RMS of AdamW's, and lr and weight_decay
    tuned for AdamW hold (Liu et al. 2025, Moonlight); sqrt(max(1, m / n)) for `original`.
    """

    alone = False  # each process orthogonalises all of its matrices, and sends nothing: for a rehearsal

    def __init__(
        self, params: Any, lr: float, betas: tuple[float, float], eps: float, momentum: float = 0.95,
        nesterov: bool = True, scale: str = "match_rms_adamw",
    ) -> None:  # fmt: skip
        self.momentum, self.nesterov, self.scale = momentum, nesterov, scale
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "muon": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        found_inf = getattr(self, "found_inf", None)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not group["muon"]:
                self._adamw(group, params, found_inf)
                continue
            for stack in self._stacks(params):
                self._orthogonal(group, stack, found_inf)

    def one_by_one(self) -> list[Tensor]:
        return [p for group in self.param_groups if group["muon"] for p in group["params"]]

    def _moment(self, p: Tensor) -> Tensor:
        state = self.state[p]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(p)
        found: Tensor = state["momentum_buffer"]
        return found

    def _orthogonal(self, group: dict[str, Any], stack: list[Tensor], found_inf: Tensor | None) -> None:
        updates = []
        for p in stack:
            grad, m = local(p.grad), local(self._moment(p))
            with unless(found_inf, [m]):
                m.lerp_(grad, 1 - self.momentum)
                update = grad.lerp(m, self.momentum) if self.nesterov else m
                updates.append(update.to(working_type(update)))
        made = dealt(
            updates, self._levels(stack[0]), lambda whole: list(orthogonalise(torch.stack(whole)).unbind())
        )
        factor = self._factor(*part_of(stack[0], cuts_of(stack[0])).shape[-2:])
        for p, update in zip(stack, made, strict=True):
            here = local(p)
            with self.watched(p), unless(found_inf, [p]):
                here.mul_(1 - group["lr"] * group["weight_decay"])
                here.add_(update.to(p.dtype), alpha=-group["lr"] * factor)

    def _levels(self, p: Tensor) -> tuple[Level, ...]:
        return () if self.alone else levels_of(p)

    def _stacks(self, params: list[Tensor]) -> list[list[Tensor]]:
        """Matrices of one shape that are spread alike over processes, as many as are orthogonalised at once."""
        alike: dict[tuple[Any, ...], list[Tensor]] = {}
        for p in params:
            dims = tuple((cut.dim, cut.count) for cut in cuts_of(p))
            alike.setdefault((tuple(p.shape), dims), []).append(p)
        found = []
        for same in alike.values():
            processes = math.prod(level.count for level in self._levels(same[0]))
            count = max(1, TOGETHER // size(same[0])) * processes
            found += [same[start : start + count] for start in range(0, len(same), count)]
        return found

    def _factor(self, rows: int, columns: int) -> float:
        if self.scale == "original":
            return math.sqrt(max(1.0, rows / columns))
        return 0.2 * math.sqrt(max(rows, columns))

    def _adamw(self, group: dict[str, Any], params: list[Tensor], found_inf: Tensor | None) -> None:
        if not params:
            return
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
            found_inf=found_inf,
        )  # fmt: skip


def working_type(x: Tensor) -> torch.dtype:
    """bfloat16 on an accelerator, as Jordan; float32 on a CPU, where layouts are compared."""
    return torch.float32 if x.device.type == "cpu" else torch.bfloat16


def orthogonalise(stack: Tensor) -> Tensor:
    """[..., m, n] -> the same, each matrix with its singular values near 1 (Newton-Schulz), in `working_type`."""
    if not stack.numel():
        return stack
    x = stack.to(working_type(stack)).flatten(0, -3)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=EPS)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).reshape(stack.shape)
