"""Keys and values of the tokens so far, so that a new token costs one position instead of all.

One block of memory a layer for all rows: [rows, K, capacity, D], in the type in which attention computes, before key-value heads are
repeated. Each row has a length of its own. New positions are written behind it; what a shorter row of the same call writes too
much is overwritten by its next token, and no position looks at it: a mask shows each position the row up to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.schemas.model import ModelConfig


class Cache:
    """Of the layers of one model. A call of the model reads and writes the rows from `first` on, as many as it has."""

    def __init__(
        self, config: ModelConfig, rows: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.layers, rows, config.key_value_heads, capacity, config.head_size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.capacity = capacity
        self.lengths = [0] * rows  # known to the host, which never has to ask the device
        self._first, self._starts, self._span = 0, [0], 0
        self._places: Tensor | None = None

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def begin(self, first: int, count: int, width: int) -> Tensor | None:
        """Prepare a call of `count` rows from `first` on with `width` new positions each; the mask of attention, bool
        [count, 1, width, S], or None if causal attention without one is right."""
        starts = self.lengths[first : first + count]
        if max(starts) + width > self.capacity:
            raise ValueError(
                f"{max(starts)} + {width} positions are more than the cache has ({self.capacity})"
            )
        self._first, self._starts = first, starts
        self._span = max(starts) + width
        equal = min(starts) == max(starts)
        device = self.keys.device
        begins = torch.tensor(starts, device=device)
        self._places = None if equal else begins[:, None] + torch.arange(width, device=device)
        if equal and (width == 1 or not starts[0]):
            return None
        at = begins[:, None] + torch.arange(width, device=device)
        return (torch.arange(self._span, device=device) <= at[:, :, None])[:, None]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new positions' k and v [B, K, width, D] of a layer; all of the rows' so far, [B, K, S, D]."""
        rows = slice(self._first, self._first + len(k))
        found = []
        for memory, new in ((self.keys[layer, rows], k), (self.values[layer, rows], v)):
            if self._places is None:
                memory[:, :, self._starts[0] : self._span] = new
            else:
                memory[torch.arange(len(k), device=k.device)[:, None], :, self._places] = new.transpose(
                    1, 2
                ).to(memory.dtype)
            found.append(memory[:, :, : self._span])
        return found[0], found[1]

    def advance(self, counts: Sequence[int]) -> None:
        """The rows of the last call are longer by so many positions, at most its width."""
        for number, count in enumerate(counts, self._first):
            self.lengths[number] += count

    def cut(self, row: int, length: int) -> None:
        """Forget a row's positions from `length` on."""
        self.lengths[row] = min(self.lengths[row], length)

    def swap(self, a: int, b: int) -> None:
        """Exchange two rows."""
        length = max(self.lengths[a], self.lengths[b])
        for memory in (self.keys, self.values):
            kept = memory[:, a, :, :length].clone()
            memory[:, a, :, :length] = memory[:, b, :, :length]
            memory[:, b, :, :length] = kept
        self.lengths[a], self.lengths[b] = self.lengths[b], self.lengths[a]

    def move(self, source: int, target: int) -> None:
        """Copy a row over another one."""
        length = self.lengths[target] = self.lengths[source]
        if source != target:
            for memory in (self.keys, self.values):
                memory[:, target, :, :length] = memory[:, source, :, :length]
