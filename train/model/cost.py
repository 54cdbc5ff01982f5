"""What a model costs to compute, counted on its parameters (on the meta device they take no memory)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.train.model.decoder import Decoder


def active_weights(model: Decoder) -> float:
    """Weights of the matrix products that one token passes: the head (also where it is the embedding) but no look-up,
    no norm, no bias; of the experts top_k / experts."""
    moe = model.config.moe
    total = float(model.embedding.weight.numel()) if model.head is None else 0.0
    for name, parameter in model.named_parameters():
        if parameter.ndim == 3 and moe is not None:
            total += parameter.numel() * moe.top_k / moe.experts
        elif parameter.ndim == 2 and "embedding" not in name:
            total += parameter.numel()
    return total


def flops_per_token(model: Decoder, length: int) -> float:
    """Of forward and backward: 6 x `active_weights`, and 6 x layers x heads x head_size x T for causal attention over
    `length` = T positions (PaLM, appendix B, halved for causality; document boundaries are not taken off, nor is
    what activation checkpointing or `loss_chunk` computes twice added)."""
    config = model.config
    attention = config.layers * config.heads * config.head_size * length
    return 6.0 * active_weights(model) + 6.0 * attention
