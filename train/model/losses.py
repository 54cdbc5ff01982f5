"""From the last hidden states to the loss of each token, with the logits of all tokens in memory or of a few at a time."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100  # label of a position that is not scored


def token_losses(
    hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float = 0.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Cross entropy in nats and z-loss of each token, float32 [B, T], both 0 where the label is `IGNORED`.

    hidden [B, T, C], weight [V, C], labels int64 [B, T]. The z-loss is `z_loss` x log(Z)^2, Z the softmax's
    denominator (PaLM, Chowdhery et al. 2022). `chunk`: tokens whose logits exist at once, made anew in the backward
    pass; the losses and gradients are the same. (`F.linear_cross_entropy` of PyTorch 2.13 is not used: its losses of
    single tokens come rounded to the input's type, in bfloat16 0.03 nats off, and it has no z-loss.)
    """
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden = hidden.to(dtype)
    flat = hidden.flatten(0, 1)
    if chunk is not None and chunk < len(flat):
        loss, z = _Chunked.apply(flat, weight, labels.flatten(), z_loss, chunk)
    else:
        logits = F.linear(flat, weight.to(flat.dtype)).float()
        loss = F.cross_entropy(logits, labels.flatten(), reduction="none", ignore_index=IGNORED)
        z = torch.zeros_like(loss)
        if z_loss:
            z = z_loss * logits.logsumexp(-1).square() * (labels.flatten() != IGNORED)
    return loss.view(labels.shape), z.view(labels.shape)


class _Chunked(torch.autograd.Function):
    """`token_losses` over chunks of the tokens. Keeps the hidden states, no logits."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, labels)
        ctx.z_loss, ctx.chunk = z_loss, chunk
        losses, logs = [], []
        small = weight.to(hidden.dtype)
        for h, label in zip(hidden.split(chunk), labels.split(chunk), strict=True):
            logits = _product(h, small.T).float()
            log_z = logits.logsumexp(-1)
            right = logits.gather(1, label.clamp(min=0)[:, None]).squeeze(1)
            scored = label != IGNORED
            losses.append((log_z - right) * scored)
            logs.append(z_loss * log_z.square() * scored)
        return torch.cat(losses), torch.cat(logs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, labels = ctx.saved_tensors
        small = weight.to(hidden.dtype)
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight)  # in the weight's type: chunks' sums are not rounded to bfloat16
        parts = [x.split(ctx.chunk) for x in (to_hidden, hidden, labels, *grads)]
        for into, h, label, by_loss, by_z in zip(*parts, strict=True):
            logits = _product(h, small.T).float()
            log_z = logits.logsumexp(-1, keepdim=True)
            scored = (label != IGNORED)[:, None]
            # d loss / d logits = p - [label], d z / d logits = 2 z_loss log(Z) p
            by_loss, by_z = by_loss[:, None] * scored, by_z[:, None] * scored
            slope = (logits - log_z).exp_() * (by_loss + by_z * (2 * ctx.z_loss) * log_z)
            slope.scatter_add_(1, label.clamp(min=0)[:, None], -by_loss)
            slope = slope.to(h.dtype)
            into.copy_(_product(slope, small))
            to_weight += _product(slope.T, h)
        return to_hidden, to_weight, None, None, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A matrix product in the types it is given, whatever autocast is about."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b
