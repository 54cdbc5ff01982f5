"""The learning rate: a pure function of the tokens seen, so that a resumed run, and one whose batch or sequence
length grows, has the rate of its place in the data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from corpusmill.schemas.optim import ScheduleConfig
    from corpusmill.schemas.training import TrainConfig


def learning_rate(
    schedule: ScheduleConfig, peak: float, tokens: int, total_tokens: int, warmup_tokens: int
) -> float:
    """The rate of the step that ends at `tokens`; warm-up rises in a line, then `kind` falls to `floor` x peak.

    `cosine`: Loshchilov & Hutter 2017. `inverse_sqrt`: peak x sqrt(warm-up / tokens), not below the floor (Vaswani
    et al. 2017). `wsd`: warm-up, stable, then a linear decay over the last `decay_share` (Hu et al. 2024).
    `range_test`: floor x peak in the first step, peak in the last, the same factor between all (Smith 2017).
    """
    # Tokens counted in mean batches: where all batches are equal, this is the step, to the bit.
    at = tokens * schedule.steps / total_tokens
    warmup = warmup_tokens * schedule.steps / total_tokens
    if at <= warmup:
        return peak * at / warmup
    low = schedule.floor * peak
    if schedule.kind == "constant":
        return peak
    if schedule.kind == "inverse_sqrt":
        start = max(warmup, 1.0)
        return max(low, peak * math.sqrt(start / max(at, start)))
    if schedule.kind == "range_test":
        return float(peak * schedule.floor ** (1 - (at - 1) / max(schedule.steps - 1, 1)))
    start = warmup
    if schedule.kind == "wsd":
        start = schedule.steps - round(schedule.decay_share * schedule.steps)
    done = min(max((at - start) / max(schedule.steps - start, 1), 0.0), 1.0)
    if schedule.kind == "cosine":
        return low + (peak - low) * (1 + math.cos(math.pi * done)) / 2
    return low + (peak - low) * (1 - done)


def rate_at(config: TrainConfig, step: int) -> float:
    """The rate of an optimizer step of a run, counted from 1."""
    data, schedule = config.data, config.schedule
    warmup = schedule.warmup_tokens
    if warmup is None:
        warmup = data.tokens(schedule.warmup_steps)
    return learning_rate(
        schedule, config.optimizer.lr, data.tokens(step), data.tokens(schedule.steps), warmup
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group its rate: `rate`, times the group's own `lr_ratio` if it has one."""
    for group in optimizer.param_groups:
        value = rate * group.get("lr_ratio", 1.0)
        if isinstance(group["lr"], float):
            group["lr"] = value
        else:  # torchao keeps it in a tensor that its compiled step reads
            group["lr"].fill_(value)
