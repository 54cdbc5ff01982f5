"""Dropout (Srivastava et al. 2014) whose mask is a pure function of (seed, step, sequence, place in the model, position,
feature): the same in every layout, micro-batch and recomputation, with no generator whose state would need saving."""

from __future__ import annotations

import torch
from torch import Tensor

from corpusmill.train.model.initialise import mix
from corpusmill.train.model.split import Split

LEVELS = 1 << 16  # the share that is dropped is rounded to one of these


def keys_of_layer(keys: Tensor | None, number: int) -> Tensor | None:
    """The keys of a layer's dropout, int64 [B], from those of the rows; None: no dropout."""
    return None if keys is None else mix(keys + number + 1)


def dropout(x: Tensor, share: float, keys: Tensor | None, place: int, split: Split) -> Tensor:
    """x [B, T, C] (this process's part of the sequence) with `share` of its elements 0 and the others scaled up.

    `keys`, int64 [B], tell sequences, steps and layers apart; `place` the calls within a layer. None: x as it is.
    """
    if keys is None or not share:
        return x
    B, T, C = x.shape
    words = -(-C // 4)  # one 64-bit number decides over four features
    first = split.rank * T * words
    index = torch.arange(first, first + T * words, device=x.device)
    key = mix(keys + place)[:, None]
    bits = mix(mix(index[None] + key) ^ key)
    level = bits.view(B, T, words).view(torch.int16)[:, :, :C]
    dropped = round(share * LEVELS)
    return torch.where(level >= dropped - LEVELS // 2, x * (LEVELS / (LEVELS - dropped)), 0.0)
