"""An exchange of tensors among workers, under way while they train: the mean over all of them, sent in 32, 16 or 8 bits a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping


class Exchange:
    """Of named float32 tensors, the same names in all of `size` workers; collective. `sent`: this worker's; `due`: the step after which it is
    waited for; `nbytes`: of what this worker gives to be sent."""

    def __init__(self, sent: Mapping[str, Tensor], bits: int, size: int, due: int) -> None:
        self.sent, self.due, self._bits = dict(sent), due, bits
        messages = self._messages()
        self.nbytes = sum(one.nbytes for one in messages)
        self._parts: list[Tensor] = messages
        self._works: list[Any] = []
        self._size = size
        if bits == 32 and size > 1:
            self._works = [dist.all_reduce(messages[0], async_op=True)]
        elif bits != 32:  # sums of few bits would be rounded again
            self._parts = [one.expand(size, *one.shape).contiguous() for one in messages]
            for one, into in zip(messages, self._parts, strict=True) if size > 1 else ():
                self._works.append(dist.all_gather(list(into), one, async_op=True))

    def _messages(self) -> list[Tensor]:
        """[numbers], or of 8 bits [codes, a scale for each tensor]."""
        if self._bits != 8:
            flat = torch.cat([value.flatten() for value in self.sent.values()])
            return [flat if self._bits == 32 else flat.to(torch.bfloat16)]
        scales = torch.stack([value.abs().amax() / 127 for value in self.sent.values()])
        safe = scales.clamp(min=torch.finfo(torch.float32).tiny)
        pairs = zip(self.sent.values(), safe, strict=True)
        return [
            torch.cat([(value.flatten() / scale).round() for value, scale in pairs]).to(torch.int8),
            scales,
        ]

    def mean(self) -> dict[str, Tensor]:
        """Waits for what all workers have sent; its mean by name, float32."""
        for work in self._works:
            work.wait()
        sizes = [value.numel() for value in self.sent.values()]
        if self._bits == 32:
            flat = self._parts[0] / self._size
        elif self._bits == 16:
            flat = self._parts[0].float().mean(0)
        else:
            codes, scales = self._parts
            counts = torch.tensor(sizes, device=scales.device)
            flat = (codes.float() * scales.repeat_interleave(counts, dim=1)).mean(0)
        pieces = zip(self.sent.items(), torch.split(flat, sizes), strict=True)
        return {name: piece.view_as(value) for (name, value), piece in pieces}


def agreed(signals: Tensor) -> Tensor:
    """A step's signals (`corpusmill.train.step.step_signals`) of all workers: the highest, and whether all take the step. Collective."""
    if not dist.is_initialized():
        return signals
    found = torch.cat((signals[:3].nan_to_num(nan=torch.inf), -signals[3:])).cpu()
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return torch.cat((found[:3], -found[3:])).to(signals.device)
