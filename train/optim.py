"""The optimizer, and the schedule as a pure function of the step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from schemas.optim import OptimizerConfig, ScheduleConfig


def learning_rate(schedule: ScheduleConfig, peak: float, step: int) -> float:
    """The rate of optimizer step `step`, counted from 1; the last step of the run has `floor` x `peak`.

    `wsd`: warm-up, stable, then a linear decay over the last `decay_share` of the steps (Hu et al. 2024).
    """
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    low = schedule.floor * peak
    if schedule.kind == "constant":
        return peak
    start = schedule.warmup_steps
    if schedule.kind == "wsd":
        start = schedule.steps - round(schedule.decay_share * schedule.steps)
    done = min(max((step - start) / max(schedule.steps - start, 1), 0.0), 1.0)
    if schedule.kind == "cosine":
        return low + (peak - low) * (1 + math.cos(math.pi * done)) / 2
    return low + (peak - low) * (1 - done)


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """Fused AdamW in two groups: matrices decay; norms and embeddings do not."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decay = [p for name, p in named if p.ndim >= 2 and "embedding" not in name]
    rest = [p for name, p in named if not (p.ndim >= 2 and "embedding" not in name)]
    groups = [{"params": decay, "weight_decay": config.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
