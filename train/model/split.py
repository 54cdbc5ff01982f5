"""What tensor and sequence parallelism change in the model's arithmetic: for one process, nothing (`WHOLE`).

Each of n processes has every n-th part of the heads, of the feed-forward's width and of the vocabulary, as plain local
tensors, and outside of the products only its part of the sequence (Shoeybi et al. 2019, Korthikanti et al. 2022).
Every gradient of what all of them hold (norms, biases behind a sum, routers) is then a part of a sum:
`corpusmill.train.parallel.gradients` adds them up.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


class Split:
    """Of one process: everything is here."""

    rank, size = 0, 1

    def gather(self, x: Tensor) -> Tensor:
        """[B, T / n, C] -> [B, T, C]; its gradient is summed and cut again."""
        return x

    def scatter(self, x: Tensor) -> Tensor:
        """[B, T, C], of which each process has a summand -> [B, T / n, C] of the sum."""
        return x

    def take(self, x: Tensor) -> Tensor:
        """[B, T, ...] that all have -> this process's [B, T / n, ...]; no gradient is sent."""
        return x

    def embed(self, tokens: Tensor, weight: Tensor) -> Tensor:
        """Rows of `weight` [V / n, C] for tokens [B, T]: [B, T / n, C]."""
        return F.embedding(tokens, weight)

    def sum(self, x: Tensor) -> Tensor:
        """Of all processes; no gradient."""
        return x

    def max(self, x: Tensor) -> Tensor:
        return x


class TensorSplit(Split):
    """Of process `rank` of the `size` in `group`."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)

    def gather(self, x: Tensor) -> Tensor:
        found: Tensor = _Gather.apply(x, self)
        return found

    def scatter(self, x: Tensor) -> Tensor:
        found: Tensor = _Scatter.apply(x, self)
        return found

    def take(self, x: Tensor) -> Tensor:
        return x.tensor_split(self.size, dim=1)[self.rank]

    def embed(self, tokens: Tensor, weight: Tensor) -> Tensor:
        row = tokens - self.rank * len(weight)
        elsewhere = (row < 0) | (row >= len(weight))
        found = F.embedding(row.masked_fill(elsewhere, 0), weight)
        return self.scatter(found.masked_fill(elsewhere[..., None], 0.0))

    def sum(self, x: Tensor) -> Tensor:
        return _reduced(x, "sum", self)

    def max(self, x: Tensor) -> Tensor:
        return _reduced(x, "max", self)


WHOLE = Split()


def _gathered(x: Tensor, split: TensorSplit) -> Tensor:
    # Waited for here: an AsyncCollectiveTensor that enters compiled code loses the gradient of what made it.
    functional = _functional()
    gather = (
        getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
    )  # before PyTorch 2.13
    return functional.wait_tensor(gather(x.contiguous(), 1, split.group))


def _scattered(x: Tensor, split: TensorSplit) -> Tensor:
    functional = _functional()
    scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor
    return functional.wait_tensor(scatter(x.contiguous(), "sum", 1, split.group))


def _reduced(x: Tensor, operation: str, split: TensorSplit) -> Tensor:
    return _functional().wait_tensor(_functional().all_reduce(x.contiguous(), operation, split.group))


def _functional() -> Any:
    """Collectives that compiled code can look into; imported by those who have more than one process."""
    import torch.distributed._functional_collectives as functional

    return functional


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, split: TensorSplit) -> Tensor:
        ctx.split = split
        return _gathered(x, split)

    @staticmethod
    def backward(ctx: Any, *slope: Tensor) -> tuple[Tensor, None]:
        return _scattered(slope[0], ctx.split), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, split: TensorSplit) -> Tensor:
        ctx.split = split
        return _scattered(x, split)

    @staticmethod
    def backward(ctx: Any, *slope: Tensor) -> tuple[Tensor, None]:
        return _gathered(slope[0], ctx.split), None
