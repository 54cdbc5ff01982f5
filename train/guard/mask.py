"""The decision on the device: numbers of all processes, compared with limits, and a step taken or not, without waiting."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor


def observed(loss: Tensor, norm: Tensor, activation: Tensor | None, limits: tuple[float, float]) -> Tensor:
    """[loss, gradient norm, activation RMS, whether the step is taken], float64 [4], the same in every process.

    `loss`: this process's share of the step's (they are summed); `norm`: of the whole gradient, so that it should be the
    same in all; `activation`: RMS over all of them (None: not known, and told as 0). A norm that is not finite in one
    process is NaN in all.
    """
    bad = ~norm.isfinite()
    total = torch.stack(
        (loss.double(), norm.double().where(~bad, 0.0), bad.double(), torch.ones_like(loss).double())
    )
    if dist.is_initialized():
        dist.all_reduce(total)
    rms = torch.zeros_like(total[0]) if activation is None else activation.double()
    values = torch.stack((total[0], (total[1] / total[3]).where(total[2] == 0, math.nan), rms))
    # Comparing with each as a number of its own sends nothing to the device but kernel arguments.
    taken = values[:2].isfinite().all() & (values[0] <= limits[0]) & (values[1] <= limits[1])
    return torch.cat((values, taken.double()[None]))


def step_where(optimizer: torch.optim.Optimizer, taken: Tensor | None) -> None:
    """The optimizer's step if `taken` (bool, no dimensions; None: always); else weights and states stay as they are.

    Nothing is multiplied by 0 (0 x NaN is NaN). PyTorch's fused kernels look at a flag on the device; for other optimizers,
    as in `torch.amp.GradScaler`, the host reads it.
    """
    if taken is None:
        optimizer.step()
    elif taken.device.type != "cpu" and getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = (~taken).float()  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif bool(taken):
        optimizer.step()
