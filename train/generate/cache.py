"""Keys and values of the tokens so far, so that a new token costs one position instead of all.

One block of memory for all rows: [layers, 2 (keys, values), rows, K, capacity, D], in the type in which attention computes, before
key-value heads are repeated; with `model.mla` [layers, 1, rows, 1, capacity, kv_rank + rope_head_dim], of which they are made. Each row has a length of its own. New positions are written behind it; what a shorter row of the same
call writes too much is overwritten by its next token, and no position looks at it: a mask shows each position the row up to
itself.
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
        parts, heads, size = config.kept
        shape = (config.layers, parts, rows, heads, capacity, size)
        self.memory = torch.zeros(shape, dtype=dtype, device=device)
        self.capacity = capacity
        self.lengths = [0] * rows  # known to the host, which never has to ask the device
        self.positions = torch.zeros(1, 1, dtype=torch.int64, device=device)  # of the last call, [B, T]
        self._first = 0
        # By layer: the parts that the last call reads, [B, K, S, D] each.
        self._kept: Sequence[tuple[Tensor, ...]] = ()
        # Where position 0 of each row and head, keys before values, is in the layer's flat memory.
        self._flat = self.memory.view(config.layers, -1, size)
        begins = (torch.arange(parts * rows * heads, device=device) * capacity).view(parts, rows, heads)
        self._begins = begins.transpose(0, 1).reshape(rows, 1, parts * heads)
        self._places = self._begins.flatten()
        self._order = torch.arange(capacity, device=device)

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def begin(self, first: int, count: int, width: int) -> Tensor | None:
        """Prepare a call of `count` rows from `first` on with `width` new positions each; the mask of attention, bool
        [count, 1, width, S], or None if causal attention without one is right."""
        starts = self.lengths[first : first + count]
        span = max(starts) + width
        if span > self.capacity:
            raise ValueError(
                f"{max(starts)} + {width} positions are more than the cache has ({self.capacity})"
            )
        self._first = first
        begins = torch.tensor(starts, device=self.memory.device)[:, None]
        self.positions = begins if width == 1 else begins + self._order[:width]
        self._places = (self._begins[first : first + count] + self.positions[:, :, None]).flatten()
        read = self.memory[:, :, first : first + count, :, :span]
        self._kept = [layer.unbind() for layer in read.unbind()]
        if min(starts) == max(starts) and (width == 1 or not starts[0]):
            return None
        return (self._order[:span] <= self.positions[:, :, None])[:, None]

    def near(self, mask: Tensor | None, window: int) -> Tensor | None:
        """`mask`, which `begin` returned for the last call, for layers whose positions attend to `window` ones, themselves among them."""
        span = self._kept[0][0].shape[2]
        if span <= window:
            return mask
        order, own = self._order[:span], self.positions[:, :, None]
        return ((order <= own) & (order > own - window))[:, None]

    def extend(self, layer: int, *new: Tensor) -> tuple[Tensor, ...]:
        """Write the new positions' parts of a layer, [B, K, T, D] each, such as k and v; all of the rows' so far, [B, K, S, D]."""
        joined = torch.cat([part.to(new[-1].dtype) for part in new], dim=1)
        return self.write(layer, joined.transpose(1, 2))

    def write(self, layer: int, new: Tensor) -> tuple[Tensor, ...]:
        """The same, of keys and values as they come from one product: [B, T, 2 K, D]."""
        self._flat[layer].index_copy_(0, self._places, new.reshape(-1, new.shape[-1]))
        return self._kept[layer]

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
        kept = self.memory[:, :, a, :, :length].clone()
        self.memory[:, :, a, :, :length] = self.memory[:, :, b, :, :length]
        self.memory[:, :, b, :, :length] = kept
        self.lengths[a], self.lengths[b] = self.lengths[b], self.lengths[a]

    def move(self, source: int, target: int) -> None:
        """Copy a row over another one."""
        length = self.lengths[target] = self.lengths[source]
        if source != target:
            self.memory[:, :, target, :, :length] = self.memory[:, :, source, :, :length]
