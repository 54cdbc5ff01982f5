"""Prompt tuning (Lester et al. 2021) and prefix tuning (Li and Liang 2021): virtual tokens before each document, which alone are
trained.

Their places are ordinary positions, the first of each document, so that boundaries, positions, packing, the cache of generation and every
layout are those of other tokens; which ids stand there does not matter. With `prompt` their embeddings are parameters; with `prefix` the
keys and values of each layer, behind norms and rotation, so that what else is computed there reaches no other position.
"""

from __future__ import annotations

import torch
from torch import Tensor


def with_prompt(x: Tensor, prompt: Tensor, positions: Tensor) -> Tensor:
    """Embeddings x [B, T, C], those at the first positions [B or 1, T] of a document replaced by rows of `prompt` [N, C]."""
    rows = prompt[positions.clamp(max=len(prompt) - 1)].to(x.dtype)
    return torch.where((positions < len(prompt))[..., None], rows, x)


def with_prefix(prefix: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values [B, K, T, D], those at the first positions [B or 1, T] of a document replaced by `prefix` [2, K, N, D]."""
    count = prefix.shape[2]
    there = (positions < count)[:, None, :, None]
    rows = prefix[:, :, positions.clamp(max=count - 1)].transpose(1, 2)  # [2, B or 1, K, T, D]
    return torch.where(there, rows[0].to(k.dtype), k), torch.where(there, rows[1].to(v.dtype), v)
