"""Ring attention (Liu, Zaharia and Abbeel 2023): keys and values of each process travel once around all that share a sequence, and meet
its queries one part at a time; parts are put together by the logarithms of their sums of weights, as blocks of flash attention are. The
backward pass sends them around again, and their gradients with them. So no process ever has the keys of all.

A part is computed by products of matrices (`corpusmill.train.model.blockwise`), on every device: PyTorch has no fused kernel with
masks whose backward pass takes the sums of all parts. One operator, so that compilers need not look inside.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.model.blockwise import Scores, attended, finite, gradients, row_means
from corpusmill.train.parallel.context import Context
from corpusmill.train.parallel.passing import Passing, last, parts_of, sources

CONTEXTS: dict[str, Context] = {}  # by the name of their group: operators take no objects


class RingContext(Context):
    """This process's part of sequences, whose keys and values pass by."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self.ring, self.name = self, group.group_name
        CONTEXTS[self.name] = self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, scores: Scores, documents: Tensor | None, window: int | None, causal: bool
    ) -> Tensor:  # fmt: skip
        """Attention of q [B, H, T / n, D] on k and v [B, K, T / n, D] of all processes, within `documents` [B, T]."""
        given = q.to(v.dtype), k.to(v.dtype), v, scores.sinks, documents
        found: Tensor = ring(*given, window or 0, scores.softcap or 0.0, causal, self.name)[0]
        return found


@torch.library.custom_op("corpusmill::ring", mutates_args=())
def ring(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, documents: Tensor | None, window: int, softcap: float, causal: bool,
    name: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention in the context `name`, [B, H, T / n, D], and the logarithms of sums of weights, float32 [B, H, T / n]. 0 for `window` or
    `softcap`: none."""
    context = CONTEXTS[name]
    total = q.new_zeros(q.shape, dtype=torch.float32)
    logs = q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)
    held = torch.stack((k, v))
    for source in sources(context):
        arriving = None if source == last(context) else Passing(held, context)
        for queries, keys, mask in parts_of(context, source, q, documents, window, causal):
            found = attended(
                q[:, :, queries], held[0, :, :, keys], held[1, :, :, keys], mask, softcap or None
            )
            _add(total[:, :, queries], logs[:, :, queries], *found)
        held = held if arriving is None else arriving.wait()
    if sinks is not None:
        with_sinks = torch.logaddexp(logs, sinks.float()[:, None])
        total *= (logs - with_sinks).exp()[..., None]
        logs = with_sinks
    return _laid_out(total.to(v.dtype)), logs


def _add(total: Tensor, logs: Tensor, out: Tensor, more: Tensor) -> None:
    """To the output `total` [B, H, T, D] and the `logs` [B, H, T] of its sums of weights those of further keys, in place."""
    both = torch.logaddexp(logs, more)
    shares = [(one - finite(both)).exp()[..., None] for one in (logs, more)]
    total.mul_(shares[0]).add_(out * shares[1])
    logs.copy_(both)


@ring.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _laid_out(torch.empty_like(q, dtype=v.dtype)), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("corpusmill::ring_backward", mutates_args=())
def ring_backward(
    grad: Tensor, out: Tensor, logs: Tensor, q: Tensor, k: Tensor, v: Tensor, documents: Tensor | None, window: int, softcap: float,
    causal: bool, name: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v. Those of keys and values are summed in float32, in the order in which the processes follow each other."""
    context = CONTEXTS[name]
    means, to_q = row_means(grad, out), q.new_zeros(q.shape, dtype=torch.float32)
    held = torch.stack((k, v))
    back: Passing | None = None  # what those before have summed up, on its way
    for source in sources(context):
        arriving = None if source == last(context) else Passing(held, context)
        sums = torch.zeros_like(held, dtype=torch.float32)
        for queries, keys, mask in parts_of(context, source, q, documents, window, causal):
            of_queries = grad[:, :, queries], means[:, :, queries], logs[:, :, queries], q[:, :, queries]
            found = gradients(*of_queries, held[0, :, :, keys], held[1, :, :, keys], mask, softcap or None)
            to_q[:, :, queries] += found[0]
            sums[0, :, :, keys] += found[1]
            sums[1, :, :, keys] += found[2]
        back = Passing(sums if back is None else sums.add_(back.wait()), context)
        held = held if arriving is None else arriving.wait()
    assert back is not None
    to_k, to_v = back.wait()
    return to_q.to(q.dtype), to_k.to(k.dtype, copy=True), to_v.to(v.dtype, copy=True)


@ring_backward.register_fake
def _(
    _grad: Tensor, _out: Tensor, _logs: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, sinks, documents, *ctx.options = inputs
    ctx.save_for_backward(*output, q, k, v, documents, sinks)


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *saved, sinks = ctx.saved_tensors
    found, to_sinks = ring_backward(grad, *saved, *ctx.options), None
    if sinks is not None:
        out, logs = saved[:2]
        to_sinks = -((sinks.float()[:, None] - logs).exp() * row_means(grad, out)).sum((0, 2)).to(sinks.dtype)
    return *found, to_sinks, None, None, None, None, None


ring.register_autograd(_backward, setup_context=_keep)


def _laid_out(x: Tensor) -> Tensor:
    """[B, H, T, D] as the fused kernels lay it out in memory, [B, T, H, D], so that the product behind it needs no copy."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)
