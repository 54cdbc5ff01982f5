"""The decision on the device: numbers of all processes, compared with limits, and a step taken or not, without waiting."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from train.distributed import all_sum


def observed(
    loss: Tensor, norm: Tensor, square: Tensor | None, tokens: float, dim: int, world: int,
    limits: tuple[float, float, float],
) -> Tensor:  # fmt: skip
    """[loss, gradient norm, activation norm, whether the step is taken], float64 [4], the same in every process.

    `loss`: this process's sum over its scored tokens (`tokens` of all processes); `norm`: of the whole gradient, NaN or
    infinite if the gradient is; `square`: this process's sum of squares of what the last norm gets, over tokens and
    `dim` (None: not known, and told as 0). A norm that is not finite in one process is NaN in all.
    """
    bad = ~norm.isfinite()
    mine = [loss, norm.where(~bad, 0.0), torch.zeros_like(loss) if square is None else square, bad]
    total = all_sum(torch.stack([value.double() for value in mine]))
    values = torch.stack(
        (
            total[0] / tokens,
            (total[1] / world).where(total[3] == 0, math.nan),
            (total[2] / (tokens * dim)).sqrt(),
        )
    )
    # Comparing with each as a number of its own sends nothing to the device but kernel arguments.
    within = [value <= limit for value, limit in zip(values, limits, strict=True)]
    taken = values[:2].isfinite().all() & within[0] & within[1] & within[2]
    return torch.cat((values, taken.double()[None]))


def step_if(optimizer: torch.optim.Optimizer, taken: Tensor) -> None:
    """The optimizer's step if `taken` is 1; else parameters, moments and counts stay as they are, to the bit.

    Nothing is multiplied by 0 (0 x NaN is NaN). PyTorch's fused kernels look at a flag on the device; for other optimizers,
    as in `torch.amp.GradScaler`, the host reads it.
    """
    if taken.device.type == "cpu" or not getattr(optimizer, "_step_supports_amp_scaling", False):
        if bool(taken):
            optimizer.step()
        return
    optimizer.found_inf = 1.0 - taken.float()  # type: ignore[attr-defined]
    optimizer.step()
    del optimizer.found_inf  # type: ignore[attr-defined]
