"""Taking an optimizer's step: only if it is to be taken, which the device may decide, and in portions where the size of the
change is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from corpusmill.train.parallel.sharded_parameter import local, norms

PORTION = 2**26  # elements of parameters that are copied at once, or those of one larger parameter


def step_where(
    optimizer: torch.optim.Optimizer, taken: Tensor | None, measured: Sequence[Tensor] | None = None
) -> list[list[Tensor]]:
    """The optimizer's step if `taken` (bool, no dimensions; None: always); else weights and states stay as they are.

    Optimizers that read the flag on the device are given it as PyTorch's fused kernels are, by `found_inf`; for others, and for
    parameters on the CPU, the host reads it. `measured`: parameters whose changes' norms, as of `norms`, are returned in their
    order.
    """
    if taken is not None and not on_device(optimizer, taken):
        if not bool(taken):
            return [[local(p).new_zeros(())] for p in measured or []]
        taken = None
    if taken is not None:
        optimizer.found_inf = (~taken).float()  # type: ignore[attr-defined]
    try:
        if measured is None:
            optimizer.step()
            return []
        return _measured_step(optimizer, measured)
    finally:
        if taken is not None:
            del optimizer.found_inf  # type: ignore[attr-defined]


def on_device(optimizer: torch.optim.Optimizer, taken: Tensor) -> bool:
    """Whether the optimizer's kernels can read the flag where they run."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        return False
    return taken.device.type != "cpu" and optimizer.param_groups[0]["params"][0].device == taken.device


def _measured_step(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """A step in portions, so that a copy of all parameters never exists; gradients are gone afterwards."""
    grads: dict[Tensor, Any] = {p: p.grad for p in parameters}
    for p in parameters:
        p.grad = None
    found: dict[Tensor, list[Tensor]] = {}
    for portion in portions(optimizer, parameters):
        before = [local(p.detach()).clone() for p in portion]
        for p in portion:
            p.grad = grads.pop(p, None)
        optimizer.step()
        for p in portion:
            p.grad = None
        torch._foreach_sub_(before, [local(p.detach()) for p in portion])
        found |= zip(portion, norms(before), strict=True)
    return [found[p] for p in parameters]


def portions(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """All parameters in portions of about `PORTION` elements; what an optimizer works on together stays together."""
    together: list[list[Tensor]] = getattr(optimizer, "stacks", list)()
    known = {p for stack in together for p in stack}
    found: list[list[Tensor]] = [[]]
    for stack in (*together, *([p] for p in parameters if p not in known)):
        if found[-1] and sum(local(p).numel() for p in (*found[-1], *stack)) > PORTION:
            found.append([])
        found[-1] += stack
    return found
