"""Attention in blocks of queries, in plain PyTorch: what no fused kernel of the CPU has, soft-capped logits (Gemma 2 2024) and
attention sinks (gpt-oss 2025; Xiao et al. 2023), in the memory of one that has them.

The weights of a block of queries exist at once, and again in the backward pass (Dao et al. 2022): kept are the inputs, the output, and
a float for each position and head.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

WEIGHTS = 1 << 22  # attention weights that exist at once


class Scores(NamedTuple):
    """What becomes of the scores q k / sqrt(D) before they are weights. `softcap`: c x tanh(score / c), for at most c (None: as they
    are). `sinks`: float [H], a score of each head that no value belongs to, so that a head may attend to nothing."""

    softcap: float | None = None
    sinks: Tensor | None = None

    @property
    def plain(self) -> bool:
        return self.softcap is None and self.sinks is None


def blockwise(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scores: Scores) -> Tensor:
    """Attention of q [B, H, T, D] on k and v [B, K, S, D], H a multiple of K; [B, H, T, D]. `mask`: bool [B or 1, 1, T, S]; None: the
    last T of S positions, each on those up to itself."""
    if mask is None:
        T, S = q.shape[2], k.shape[2]
        mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)[None, None]
    found: Tensor = _Blockwise.apply(q, k, v, mask, scores.softcap, scores.sinks)  # type: ignore[no-untyped-call]
    return found


def capped(scores: Tensor, softcap: float | None) -> Tensor:
    """c x tanh(scores / c)."""
    return scores if softcap is None else (scores / softcap).tanh() * softcap


def _scored(q: Tensor, k: Tensor, softcap: float | None) -> Tensor:
    """q k / sqrt(D), capped, float32 [B, H, T, S], in the memory of one such tensor."""
    found = _products(q, k)
    return found if softcap is None else found.div_(softcap).tanh_().mul_(softcap)


class _Blockwise(torch.autograd.Function):
    """Softmax with a running constant is not needed: a block of queries has all of its keys."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        ctx.softcap = softcap
        out, logs = attended(q, k, v, mask, softcap, sinks)
        ctx.save_for_backward(q, k, v, mask, sinks, out, logs)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, sinks, out, logs = ctx.saved_tensors
        means = row_means(grads[0], out)
        found = gradients(grads[0], means, logs, q, k, v, mask, ctx.softcap)
        if sinks is None:
            return *found, None, None, None
        to_sinks = -((sinks.float()[:, None] - logs).exp() * means).sum((0, 2))
        return *found, None, None, to_sinks.to(sinks.dtype)


def attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, softcap: float | None, sinks: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention of q on these keys, [B, H, T, D], and the logarithm of the sum of the weights that it was divided by, float32 [B, H, T]:
    -inf, and an output of 0, where the mask (None: everything is visible) shows no key. Without gradients."""
    B, H, T, D = q.shape
    # As the fused kernels lay it out, so that the product behind it needs no copy.
    out = v.new_empty(B, T, H, D).transpose(1, 2)
    logs = q.new_empty(B, H, T, dtype=torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        for here in _blocks(q, k):
            scores = _scored(q[:, :, here], k, softcap)
            if mask is not None:
                scores.masked_fill_(~mask[:, :, here], -math.inf)
            log_z = scores.logsumexp(-1)
            if sinks is not None:
                log_z = torch.logaddexp(log_z, sinks.float()[:, None])
            weights = scores.sub_(finite(log_z)[..., None]).exp_()
            out[:, :, here] = _weighted(weights.to(v.dtype), v)
            logs[:, :, here] = log_z
    return out, logs


def gradients(
    grad: Tensor, means: Tensor, logs: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Those of q, k and v from `grad`, that of the output: of attention on all keys, of which k and v may be a part, with the logarithms
    `logs` and the `row_means` of all, float32 [B, H, T]."""
    to_q, to_k, to_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    size = q.shape[-1] ** -0.5
    with torch.autocast(q.device.type, enabled=False):
        for here in _blocks(q, k):
            part = grad[:, :, here]
            scores = _scored(q[:, :, here], k, softcap)
            weights = (scores - logs[:, :, here, None]).exp_()
            if mask is not None:
                weights.masked_fill_(~mask[:, :, here], 0.0)
            to_v += _onto_keys(weights.to(v.dtype), part.to(v.dtype), v)
            by_scores = weights.mul_(_products(part, v, 1.0).sub_(means[:, :, here, None]))
            if softcap is not None:
                by_scores.mul_(scores.div_(softcap).square_().neg_().add_(1.0))
            by_scores = by_scores.mul_(size).to(q.dtype)
            to_q[:, :, here] = _weighted(by_scores, k.to(q.dtype))
            to_k += _onto_keys(by_scores, q[:, :, here], k)
    return to_q, to_k, to_v


def row_means(grad: Tensor, out: Tensor) -> Tensor:
    """Of what a position's weights are pulled by, their mean, float32 [B, H, T]: the softmax's gradient subtracts it."""
    return (grad.float() * out.float()).sum(-1)


def finite(logs: Tensor) -> Tensor:
    """0 in place of -inf, which may not be subtracted from itself."""
    return logs.masked_fill(logs == -math.inf, 0.0)


def _blocks(q: Tensor, k: Tensor) -> list[slice]:
    """Of the queries."""
    count = max(1, WEIGHTS // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
    return [slice(first, first + count) for first in range(0, q.shape[2], count)]


def _grouped(x: Tensor, heads: int) -> Tensor:
    """[B, H, T, n] -> [B, K, H / K x T, n]: heads that share one of k and v are further positions of it."""
    B, H, T, n = x.shape
    return x.reshape(B, heads, H // heads * T, n)


def _products(q: Tensor, k: Tensor, size: float | None = None) -> Tensor:
    """q k x `size` (None: 1 / sqrt(D)), float32 [B, H, T, S]."""
    found = _grouped(q, k.shape[1]) @ k.to(q.dtype).transpose(-2, -1)
    return found.float().mul_(q.shape[-1] ** -0.5 if size is None else size).view(*q.shape[:3], k.shape[2])


def _weighted(weights: Tensor, v: Tensor) -> Tensor:
    """[B, H, T, S] and [B, K, S, D]: [B, H, T, D]."""
    return (_grouped(weights, v.shape[1]) @ v).view(*weights.shape[:3], v.shape[3])


def _onto_keys(weights: Tensor, x: Tensor, like: Tensor) -> Tensor:
    """[B, H, T, S] and [B, H, T, D]: what arrives at each key, [B, K, S, D]."""
    K = like.shape[1]
    return (_grouped(weights, K).transpose(-2, -1) @ _grouped(x, K)).to(like.dtype)
