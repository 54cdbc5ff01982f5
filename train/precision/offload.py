"""Offloading of activations: what the backward pass needs waits in the host's memory, and comes back before it is used."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

SMALL = 1 << 16  # bytes; what is smaller stays, since a copy takes longer to start than to run
AHEAD = 8  # tensors that come back before they are used


class Waiting:
    """A saved tensor, in pinned memory of the host."""

    back: Tensor | None = None  # on the device, perhaps under way
    arrived: Any = None  # the event of its arrival
    used = False

    def __init__(self, number: int, device: torch.device, host: Tensor) -> None:
        self.number, self.device, self.host = number, device, host


class Offload(torch.autograd.graph.saved_tensors_hooks):
    """The context of a forward pass on CUDA, one for each. Copies run on a stream of their own, out while the forward pass goes
    on, back while the backward pass computes what was saved later: backward uses tensors in about the reverse order.
    `torch.autograd.graph.save_on_cpu` copies on the stream of the computation, which waits for each.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        # Owned by the graph, which frees each one after its use.
        self.saved: list[weakref.ref[Waiting]] = []
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> Tensor | Waiting:
        if not tensor.is_cuda or tensor.numel() * tensor.element_size() < SMALL:
            return tensor
        computing = torch.cuda.current_stream(tensor.device)
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self.stream.wait_stream(computing)
        with torch.cuda.stream(self.stream):
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self.stream)  # its memory is not used again before it is copied
        waiting = Waiting(len(self.saved), tensor.device, host)
        self.saved.append(weakref.ref(waiting))
        return waiting

    def _unpack(self, packed: Tensor | Waiting) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        soon = [
            self.saved[number]()
            for number in range(packed.number - 1, packed.number - AHEAD - 1, -1)
            if number >= 0
        ]
        for waiting in (packed, *(w for w in soon if w is not None and not w.used)):
            if waiting.back is None:
                self._fetch(waiting)
        computing, found = torch.cuda.current_stream(packed.device), packed.back
        assert found is not None
        computing.wait_event(packed.arrived)
        found.record_stream(computing)
        packed.back, packed.used = None, True
        return found

    def _fetch(self, waiting: Waiting) -> None:
        with torch.cuda.stream(self.stream):  # behind the copy out, on the same stream
            waiting.back = waiting.host.to(waiting.device, non_blocking=True)
            waiting.arrived = self.stream.record_event()
