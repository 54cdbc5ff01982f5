"""Keys and values of the tokens so far, so that a new token costs one position instead of all.

One block of memory for all rows: [layers, 2 (keys, values), rows, K, capacity, D], in the type in which attention computes, before
key-value heads are repeated. Each row has a length of its own. New positions are written behind it; what a shorter row of the same
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
        heads = config.key_value_heads
        shape = (config.layers, 2, rows, heads, capacity, config.head_size)
        self.memory = torch.zeros(shape, dtype=dtype, device=device)
        self.capacity = capacity
        self.lengths = [0] * rows  # known to the host, which never has to ask the device
        self.positions = torch.zeros(1, 1, dtype=torch.int64, device=device)  # of the last call, [B, T]
        self._first = 0
        # By layer: the parts that the last call reads.
        self._keys: Sequence[Tensor] = ()
        self._values: Sequence[Tensor] = ()
        # Where position 0 of each row and head, keys before values, is in the layer's flat memory.
        self._flat = self.memory.view(config.layers, -1, config.head_size)
        begins = (torch.arange(2 * rows * heads, device=device) * capacity).view(2, rows, heads)
        self._begins = begins.transpose(0, 1).reshape(rows, 1, 2 * heads)
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
        self._keys, self._values = read[:, 0].unbind(), read[:, 1].unbind()
        if min(starts) == max(starts) and (width == 1 or not starts[0]):
            return None
        return (self._order[:span] <= self.positions[:, :, None])[:, None]

    def near(self, mask: Tensor | None, window: int) -> Tensor | None:
        """`mask`, which `begin` returned for the last call, for layers whose positions attend to `window` ones, themselves among them."""
        span = self._keys[0].shape[2]
        if span <= window:
            return mask
        order, own = self._order[:span], self.positions[:, :, None]
        return ((order <= own) & (order > own - window))[:, None]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new positions' k and v [B, K, T, D] of a layer; all of the rows' so far, [B, K, S, D]."""
        return self.write(layer, torch.cat((k.to(v.dtype), v), dim=1).transpose(1, 2))

    def write(self, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """The same, of keys and values as they come from one product: [B, T, 2 K, D]."""
        self._flat[layer].index_copy_(0, self._places, new.reshape(-1, new.shape[-1]))
        return self._keys[layer], self._values[layer]

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
