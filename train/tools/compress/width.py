"""Narrower decoders: feed-forward neurons, attention heads and channels of the residual stream left out by the size of their
activations, as Minitron does it (Muralidharan et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.decoder import Decoder

if TYPE_CHECKING:
    from corpusmill.schemas.compression import CompressionSettings
    from corpusmill.train.tools.compress.calibrate import Stream

# What each dimension of a parameter is counted in, by the end of its name.
AXES: dict[str, tuple[str | None, ...]] = {
    "embedding.weight": (None, "channels"), "head.weight": (None, "channels"),
    "attention.q.weight": ("heads", "channels"), "attention.q.bias": ("heads",),
    "attention.k.weight": ("groups", "channels"), "attention.k.bias": ("groups",),
    "attention.v.weight": ("groups", "channels"), "attention.v.bias": ("groups",),
    "attention.o.weight": ("channels", "heads"), "attention.o.bias": ("channels",),
    "attention.q_norm.weight": (None,), "attention.k_norm.weight": (None,),
    "ffn.gate.weight": ("neurons", "channels"), "ffn.gate.bias": ("neurons",),
    "ffn.up.weight": ("neurons", "channels"), "ffn.up.bias": ("neurons",),
    "ffn.down.weight": ("channels", "neurons"), "ffn.down.bias": ("channels",),
    "norm.weight": ("channels",), "norm.bias": ("channels",),
}  # fmt: skip


class Importance(NamedTuple):
    """Root mean squares over the calibration tokens, float64."""

    neurons: list[Tensor]  # of each layer, [ffn_dim]: what goes into `down`
    groups: list[Tensor]  # of each layer, [kv_heads]: what the heads that share a key give `o`
    channels: Tensor  # [dim]: what the norms of all layers give


def narrower(config: ModelConfig, settings: CompressionSettings) -> ModelConfig:
    """The model that is left. Raises `UserError` for a size that is no smaller, and for a number of heads that the heads sharing a key
    do not divide, and with `model.mla`, for which there is no rule here."""
    if config.mla is not None:
        raise UserError("model.mla: width is left out of heads with keys of their own alone: remove layers")
    each = config.heads // config.key_value_heads
    wanted = {"dim": settings.dim, "heads": settings.heads, "ffn_dim": settings.ffn_dim}
    has = {"dim": config.dim, "heads": config.heads, "ffn_dim": config.hidden}
    for name, size in wanted.items():
        if size is not None and size >= has[name]:
            raise UserError(f"--{name.replace('_', '-')} {size}: the model has {has[name]}: give fewer")
    if settings.heads is not None and settings.heads % each:
        raise UserError(
            f"--heads {settings.heads}: {each} heads share a key, and go together: give a multiple of {each}"
        )
    if settings.dim is not None and config.mup_base_width:
        raise UserError(
            f"--dim {settings.dim}: model.mup_base_width {config.mup_base_width} divides logits by dim / that: leave --dim out"
        )
    sizes = {name: size for name, size in wanted.items() if size is not None}
    if settings.dim:  # what follows from dim where the config says nothing
        sizes.setdefault("ffn_dim", config.hidden)
    if settings.dim or settings.heads:
        sizes["head_dim"] = config.head_size
    if settings.heads and config.kv_heads:
        sizes["kv_heads"] = settings.heads // each
    return validate(ModelConfig, {**config.model_dump(), **sizes}, "compress")


def importance(model: Decoder, stream: Stream) -> Importance:
    """Measured in one pass through the layers as they are."""
    config = model.config
    neurons, groups = [], []
    channels = torch.zeros(config.dim, dtype=torch.float64, device=model.embedding.weight.device)
    for layer in model.layers.values():
        found = stream.measure(layer, False)
        neurons.append(found["ffn.down.weight"].squares.sqrt())
        groups.append(found["attention.o.weight"].squares.view(config.key_value_heads, -1).mean(1).sqrt())
        channels += found["attention.q.weight"].squares.sqrt() + found["ffn.up.weight"].squares.sqrt()
        stream.advance(layer)
    return Importance(neurons, groups, channels)


@torch.no_grad()
def without_width(model: Decoder, config: ModelConfig, found: Importance) -> Decoder:
    """The decoder with the most important neurons and heads of each layer and channels of all, in their order; `config`: its
    sizes."""
    size, each = config.head_size, config.heads // config.key_value_heads
    channels = largest(found.channels, config.dim)
    kept: list[dict[str | None, Tensor]] = []
    for neurons, groups in zip(found.neurons, found.groups, strict=True):
        left = largest(groups, config.key_value_heads)
        kept.append(
            {
                "neurons": largest(neurons, config.hidden),
                "groups": spread(left, size),
                "heads": spread(left, each * size),
                "channels": channels,
            }
        )
    smaller = Decoder(config, model.vocab_size).to(model.embedding.weight.device)
    values = {}
    for name, value in model.state_dict().items():
        of_layer = kept[int(name.split(".")[1])] if name.startswith("layers.") else {"channels": channels}
        for dim, axis in enumerate(axes_of(name)):
            if axis is not None:
                value = value.index_select(dim, of_layer[axis])
        values[name] = value
    smaller.load_state_dict(values)
    return smaller.eval()


def axes_of(name: str) -> tuple[str | None, ...]:
    """What the dimensions of a parameter are counted in."""
    return AXES[max((end for end in AXES if name.endswith(end)), key=len)]


def largest(score: Tensor, count: int) -> Tensor:
    """The places of the `count` largest scores [n], in order. Of equal ones the first."""
    return score.argsort(descending=True, stable=True)[:count].sort().values


def spread(blocks: Tensor, size: int) -> Tensor:
    """The elements of blocks of `size`, by the blocks' numbers [n]: [n x size]."""
    return (blocks[:, None] * size + torch.arange(size, device=blocks.device)).flatten()
