"""What travels around the processes that share sequences, and which part of it each one's queries meet.

Of a causal sequence cut from both ends, a process needs of an earlier one the first half of its keys alone, and of a later one nothing
for the first half of its own queries: half of the products.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.parallel.context import Context


def sources(context: Context) -> Iterator[int]:
    """Whose keys a process has in the rounds: its own, then those of the processes before it."""
    return ((context.rank - back) % context.size for back in range(context.size))


def last(context: Context) -> int:
    """Whose keys come by in the last round."""
    return (context.rank + 1) % context.size


def parts_of(
    context: Context, source: int, q: Tensor, documents: Tensor | None, window: int, causal: bool
) -> Iterator[tuple[slice, slice, Tensor | None]]:
    """Queries of this process, keys of `source`, and the mask between them, bool [B or 1, 1, queries, keys] (None: all is visible)."""
    count = q.shape[2]
    every, half = slice(0, count), count // 2
    queries, keys = every, every
    if causal and source < context.rank:
        keys = slice(0, half)
    elif causal and source > context.rank:
        queries = slice(half, count)
    own = torch.arange(count, device=q.device)
    at, of = context.places(own, count)[queries], context.places(own, count, source)[keys]
    behind, mask = at[:, None] - of, None
    if causal and source == context.rank:
        mask = behind >= 0
    if window:
        near = behind.abs() < window
        mask = near if mask is None else mask & near
    if documents is not None:
        same = documents[:, at, None] == documents[:, None, of]
        mask = same if mask is None else mask & same
    if mask is not None:
        mask = mask.view(-1, 1, *mask.shape[-2:])
        if not mask.is_cuda and not mask.any():  # on CUDA, to know it would wait for the device
            return
    yield queries, keys, mask


class Passing:
    """A tensor on its way to the next process, and that of the one before on its way here."""

    def __init__(self, x: Tensor, context: Context) -> None:
        self.sent, self.found = x, torch.empty_like(x)  # what is sent may not be freed before it is
        ranks = dist.get_process_group_ranks(context.group)
        after, before = ranks[(context.rank + 1) % context.size], ranks[(context.rank - 1) % context.size]
        self.work = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, x, after, context.group),
                dist.P2POp(dist.irecv, self.found, before, context.group),
            ]
        )

    def wait(self) -> Tensor:
        for one in self.work:
            one.wait()
        return self.found
