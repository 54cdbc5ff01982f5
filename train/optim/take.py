"""Taking an optimizer's step: only if it is to be taken, which the device may decide, and in portions where the size of the
change is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

    @contextmanager
    def watched(*portion: Tensor) -> Iterator[None]:
        before = [local(p.detach()).clone() for p in portion]
        yield
        torch._foreach_sub_(before, [local(p.detach()) for p in portion])
        found.update(zip(portion, norms(before), strict=True))

    for portion, one_by_one in portions(optimizer, parameters):
        for p in portion:
            p.grad = grads[p]
        if one_by_one:
            optimizer.watched = watched  # type: ignore[attr-defined]
            optimizer.step()
            del optimizer.watched  # type: ignore[attr-defined]
        else:
            with watched(*portion):
                optimizer.step()
        for p in portion:
            p.grad = None
    return [found[p] if p in found else [local(p).new_zeros(())] for p in parameters]


def portions(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]
) -> list[tuple[list[Tensor], bool]]:
    """All parameters in portions of about `PORTION` elements; those that the optimizer changes one by one, and lets itself be
    watched at it (`corpusmill.train.optim.optimizers.Watched`), in one portion, marked."""
    if sum(local(p).numel() for p in parameters) <= PORTION:
        return [(list(parameters), False)]
    singly: list[Tensor] = getattr(optimizer, "one_by_one", list)()
    known = set(singly)
    found = [(singly, True)] if singly else []
    rest: list[Tensor] = []
    for p in parameters:
        if p in known:
            continue
        if rest and sum(local(q).numel() for q in (*rest, p)) > PORTION:
            found.append((rest, False))
            rest = []
        rest.append(p)
    return [*found, (rest, False)] if rest else found
