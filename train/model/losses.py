"""From the last hidden states to the loss of each token, with the logits of all tokens in memory or of a few at a time."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from corpusmill.train.model.split import WHOLE, Split

IGNORED = -100  # label of a position that is not scored


def token_losses(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    z_loss: float = 0.0,
    chunk: int | None = None,
    split: Split = WHOLE,
) -> tuple[Tensor, Tensor]:
    """Cross entropy in nats and z-loss of each token, float32 [B, T], both 0 where the label is `IGNORED`.

    hidden [B, T, C], weight [V, C], labels int64 [B, T]. The z-loss is `z_loss` x log(Z)^2, Z the softmax's
    denominator (PaLM, Chowdhery et al. 2022). `chunk`: tokens whose logits exist at once, computed again in the backward
    pass; the losses and gradients are the same. `split`: weight is [V / n, C], and all have the losses, each the
    gradients of its rows, and its summand of those of `hidden`. (`F.linear_cross_entropy` of PyTorch 2.13 is not used: its losses of
    single tokens come rounded to the input's type, in bfloat16 0.03 nats off, and it has no z-loss.)
    """
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden = hidden.to(dtype)
    flat = hidden.flatten(0, 1)
    if split.size > 1 or (chunk is not None and chunk < len(flat)):
        chunk = chunk or len(flat)
        loss, z = _Chunked.apply(flat, weight, labels.flatten(), z_loss, chunk, split)  # type: ignore[no-untyped-call]
    else:
        logits = F.linear(flat, weight.to(flat.dtype)).float()
        loss = F.cross_entropy(logits, labels.flatten(), reduction="none", ignore_index=IGNORED)
        z = torch.zeros_like(loss)
        if z_loss:
            z = z_loss * logits.logsumexp(-1).square() * (labels.flatten() != IGNORED)
    # Not a view: `fully_shard` registers hooks on what a module returns.
    return loss.view(labels.shape).clone(), z.view(labels.shape)


class _Chunked(torch.autograd.Function):
    """`token_losses` over chunks of the tokens and parts of the vocabulary. Keeps the hidden states, no logits."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float, chunk: int, split: Split
    ) -> tuple[Tensor, Tensor]:
        ctx.z_loss, ctx.chunk, ctx.first = z_loss, chunk, split.rank * len(weight)
        losses, logs = [], []
        small = weight.to(hidden.dtype)
        for h, label in zip(torch.split(hidden, chunk), torch.split(labels, chunk), strict=True):
            logits = _product(h, small.T).float()
            log_z = logits.logsumexp(-1)
            row, here = _rows(label, ctx.first, len(weight))
            right = logits.gather(1, row[:, None]).squeeze(1) * here
            if split.size > 1:
                highest = split.max(log_z)
                log_z = highest + split.sum((log_z - highest).exp()).log()
                right = split.sum(right)
            losses.append((log_z - right) * (label != IGNORED))
            logs.append(log_z)
        log_z = torch.cat(logs)
        ctx.save_for_backward(hidden, weight, labels, log_z)
        return torch.cat(losses), z_loss * log_z.square() * (labels != IGNORED)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, labels, logs = ctx.saved_tensors
        small = weight.to(hidden.dtype)
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight)  # in the weight's type: chunks' sums are not rounded to bfloat16
        parts = [x.split(ctx.chunk) for x in (to_hidden, hidden, labels, logs, *grads)]
        for into, h, label, log_z, by_loss, by_z in zip(*parts, strict=True):
            logits = _product(h, small.T).float()
            scored = label != IGNORED
            # d loss / d logits = p - [label], d z / d logits = 2 z_loss log(Z) p
            by_loss, by_z = by_loss * scored, by_z * scored
            factor = by_loss + by_z * (2 * ctx.z_loss) * log_z
            grad_logits = (logits - log_z[:, None]).exp_() * factor[:, None]
            row, here = _rows(label, ctx.first, len(weight))
            grad_logits.scatter_add_(1, row[:, None], -(by_loss * here)[:, None])
            grad_logits = grad_logits.to(h.dtype)
            into.copy_(_product(grad_logits, small))
            to_weight += _product(grad_logits.T, h)
        return to_hidden, to_weight, None, None, None, None


def _rows(labels: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Each label's row among the `count` from `first` on (0 if it is elsewhere), and whether it is there."""
    row = labels - first
    here = (row >= 0) & (row < count)
    return row.masked_fill(~here, 0), here


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A matrix product in the types of its arguments, with autocast or without."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b
