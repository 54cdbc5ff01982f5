"""How a decoder can be split: the operations that tensor and sequence parallelism insert, and the dimensions along which
parameters are divided. In one process (`WHOLE`) the operations do nothing.

A module declares the dimensions of its own parameters, by name within it: `tensor_split` (Shoeybi et al. 2019: 0 is
column-parallel, 1 row-parallel) and `expert_split` (Lepikhin et al. 2021).
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.model.blockwise import Scores

Splits = tuple[tuple[str, int], ...]  # of a parameter: ("expert" or "tensor", dimension)


class Context(Protocol):
    """Processes that share each sequence (`corpusmill.train.parallel.context`)."""

    size: int
    ring: Ring | None  # where keys and values pass by, and are not gathered

    def places(self, own: Tensor, count: int) -> Tensor: ...
    def whole(self, *parts: Tensor) -> tuple[Tensor, ...]: ...


class Ring(Protocol):
    """Attention on keys and values that pass by (`corpusmill.train.parallel.ring`)."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, scores: Scores, documents: Tensor | None, window: int | None, causal: bool
    ) -> Tensor: ...  # fmt: skip


class Split:
    """The communication between the n processes of a tensor-parallel group; here for a group of one
    (`corpusmill.train.parallel.tensor`: for several).

    Each process has an n-th of the heads, of the feed-forward's width and of the vocabulary, and outside of the products
    only its part of the sequence (Korthikanti et al. 2022).
    """

    rank, size = 0, 1
    context: Context | None = None

    def places(self, count: int, device: torch.device) -> Tensor:
        """int64 [count]: the places in the whole sequence of the positions that this process has outside of the products."""
        own = torch.arange(self.rank * count, (self.rank + 1) * count, device=device)
        return own if self.context is None else self.context.places(own, count * self.size)

    def gather(self, x: Tensor, exact: bool = False) -> Tensor:
        """[B, T / n, C] -> [B, T, C]; the gradient is summed and scattered. Several processes send both in the type of autocast,
        in which the products that follow compute, unless `exact`."""
        return x

    def products(self, x: Tensor, *linears: nn.Linear) -> list[Tensor]:
        """`gather`, and the column-parallel products of what it gives: of x [B, T / n, C] each linear's [B, T, F / n]. Several
        processes compute the gradients of weights while the others' are on their way."""
        return [linear(x) for linear in linears]

    def scatter(self, x: Tensor) -> Tensor:
        """[B, T, C], a summand in each process -> [B, T / n, C] of the sum."""
        return x

    def take(self, x: Tensor) -> Tensor:
        """[B, T, ...], the same in all processes -> this process's [B, T / n, ...]; no gradient is sent."""
        return x

    def embed(self, tokens: Tensor, weight: Tensor) -> Tensor:
        """Rows of `weight` [V / n, C] for tokens [B, T]: [B, T / n, C]."""
        return F.embedding(tokens, weight)

    def sum(self, x: Tensor) -> Tensor:
        """Over all processes; no gradient."""
        return x

    def max(self, x: Tensor) -> Tensor:
        return x


WHOLE = Split()


def declared_splits(model: nn.Module) -> dict[str, Splits]:
    """The axes and dimensions along which each parameter, or buffer in place of one, may be divided, by name, as its module
    declares them; without those that every process holds whole."""
    found: dict[str, list[tuple[str, int]]] = {}
    for path, module in model.named_modules():
        for axis in ("expert", "tensor"):
            for name, dim in getattr(module, f"{axis}_split", {}).items():
                found.setdefault(f"{path}.{name}" if path else name, []).append((axis, dim))
    held = [*dict(model.named_parameters()), *dict(model.named_buffers())]
    return {name: tuple(found[name]) for name in held if name in found}
