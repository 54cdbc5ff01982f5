"""Value residual (Zhou et al. 2024): the values of each layer mixed with those of the first one, which pass between the stages of a
pipeline behind the features of the residual stream.

Shapes: K key-value heads of D in all, of which one of n processes of tensor parallelism has K / n; values are [B, K / n, T, D].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig


def learned_share(config: ModelConfig, layer: int) -> nn.Parameter | None:
    """Of a layer's own values, [1]; None if it mixes none."""
    return (
        nn.Parameter(torch.full((1,), 0.5)) if config.value_residual and 0 < layer < config.layers else None
    )


def mixed(values: Tensor, first: Tensor | None, share: Tensor | None) -> Tensor:
    """share x values + (1 - share) x first; the values as they are if there is no share."""
    if first is None or share is None:
        return values
    share = share.to(values.dtype)
    return share * values + (1 - share) * first.to(values.dtype)


def together(x: Tensor, first: Tensor | None) -> Tensor:
    """What a stage sends: the residual stream [B, T / n, C], with the first layer's values [B, T / n, C + K D]."""
    if first is None:
        return x
    return torch.cat((x, first.transpose(1, 2).reshape(*x.shape[:2], -1)), dim=-1)


def apart(sent: Tensor, config: ModelConfig, processes: int) -> tuple[Tensor, Tensor | None]:
    """Of what the stage before has sent, the residual stream and the first layer's values; None in a model that does not mix them."""
    if not config.value_residual:
        return sent, None
    x, values = torch.split(sent, [config.dim, sent.shape[-1] - config.dim], dim=-1)
    heads = config.key_value_heads // processes
    return x, values.reshape(len(x), -1, heads, config.head_size).transpose(1, 2)
