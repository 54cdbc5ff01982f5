"""Context parallelism: each of n processes has an n-th of every sequence, and gathers the keys and values of all (Llama 3, Dubey et
al. 2024), or has them pass by (`corpusmill.train.parallel.ring`). What stays is the memory of activations divided by n, and masks of
documents, of any kind.

A causal mask leaves little work to the first positions and much to the last. So a sequence is cut into 2 n chunks, and process r has
chunks r and 2 n - 1 - r: all have as much to do ("zigzag").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.model.split import Ring
from corpusmill.train.parallel import collectives

CUT = ("tokens", "labels", "positions")  # of a batch; documents stay whole, for the mask


class Context:
    """This process's part of sequences that the processes of `group` share."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self.ring: Ring | None = None

    def places(self, own: Tensor, count: int, rank: int | None = None) -> Tensor:
        """The places in the whole sequence of places `own` in the part of `count` that a process has, this one or `rank`."""
        rank, half = self.rank if rank is None else rank, count // 2
        first, second = rank * half, (2 * self.size - 1 - rank) * half
        return torch.where(own < half, own + first, own - half + second)

    def cut(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This process's part of the rows [B, T], with their `places`, int64 [B, T / n]."""
        rows, length = batch["tokens"].shape
        places = self.places(torch.arange(length // self.size), length // self.size)
        parts = {name: batch[name][:, places] for name in CUT if name in batch}
        return {**batch, **parts, "places": places.expand(rows, -1)}

    def whole(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Such as keys and values, [B, K, T / n, D] of this process's positions: those of all, [B, K, T, D], in the order of the text."""
        joined = torch.cat([part.to(parts[-1].dtype) for part in parts], dim=1)
        found: Tensor = _Gathered.apply(joined, self)  # type: ignore[no-untyped-call]
        return found.chunk(len(parts), dim=1)


class _Gathered(torch.autograd.Function):
    """[B, n, T / size, D] of each process: [B, n, T, D]; a gradient goes to the process whose positions it is of, and is summed there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, context: Context) -> Tensor:
        ctx.context = context
        found = collectives.functional().wait_tensor(collectives.gathering(x, context.group))
        halves = [part.chunk(2, dim=2) for part in found.chunk(context.size)]
        return torch.cat([first for first, _ in halves] + [last for _, last in reversed(halves)], dim=2)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor, None]:
        context = ctx.context
        chunks = grad_output[0].chunk(2 * context.size, dim=2)
        pairs = zip(chunks[: context.size], reversed(chunks[context.size :]), strict=True)
        parts = torch.cat([torch.cat(pair, dim=2) for pair in pairs])
        found: Tensor = collectives.functional().wait_tensor(collectives.scattering(parts, 0, context.group))
        return found, None
