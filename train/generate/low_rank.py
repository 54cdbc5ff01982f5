"""Several adapters beside one model: what each changes in the products of `corpusmill.train.generate.fused`, for rows of which each may
have another one (as S-LoRA and Punica do, Sheng et al. and Chen et al. 2023).

The product with W of a row x becomes (x W^T + x A^T B^T) * gain, of the A, B and gain of its adapter: for LoRA B has the scale and the
gain is 1, for DoRA it is each output's magnitude over the norm of its row. Adapter 0 is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from corpusmill.train.generate.fused import interleaved, weight_of
from corpusmill.train.model.layer import Attention, FeedForward, Layer
from corpusmill.train.model.lora import TINY, LoRALinear, changed_weight, row_norms

if TYPE_CHECKING:
    from corpusmill.train.model.decoder import Decoder

PARTS = ("qkv", "out", "up", "down")  # the products of a fused layer


class Change(NamedTuple):
    """Of one product, of all adapters: `a` [n, R, I], `b` [n, O, R], and `gain` [n, O] if one of them has other factors than 1."""

    a: Tensor
    b: Tensor
    gain: Tensor | None


class LowRank:
    """`models`: whole decoders with the base's weights and an adapter each, in the order of their numbers from 1 on; `dtype`: of the
    products; `folded`: whether the weights of norms are in those of the products behind them. Nothing of the models is kept."""

    def __init__(self, models: Sequence[Decoder], dtype: torch.dtype, folded: bool) -> None:
        self.count = len(models)
        layers = [list(model.layers.values()) for model in models]
        self._changes: list[dict[str, Change]] = [
            {part: _stacked([_of(layer, part, folded) for layer in same], dtype) for part in PARTS}
            for same in zip(*layers, strict=True)
        ]

    def apply(self, layer: int, part: str, x: Tensor, y: Tensor, which: Tensor) -> Tensor:
        """What a product gives for rows with these adapters: x [B * T, I] its input and y [B * T, O] its output without any; `which`
        int64 [B]."""
        change, rows = self._changes[layer][part], len(which)
        a, b = change.a[which], change.b[which]
        low = torch.bmm(x.view(rows, -1, x.shape[-1]), a.transpose(1, 2))
        found = y.view(rows, -1, y.shape[-1]) + torch.bmm(low, b.transpose(1, 2))
        if change.gain is not None:
            found = found * change.gain[which][:, None]
        return found.view(y.shape)


class _Part(NamedTuple):
    """One linear layer's A [r, I], B [O, r] with the scale, and gain [O], all float32."""

    a: Tensor
    b: Tensor
    gain: Tensor


def _of(layer: nn.Module, part: str, folded: bool) -> list[_Part]:
    """Of the linear layers that a fused product is made of, with rows and columns in its order."""
    assert isinstance(layer, Layer)
    attention, ffn = layer.attention, layer.ffn
    assert isinstance(attention, Attention) and isinstance(ffn, FeedForward)
    size, factors = attention.head_dim, None
    linears: Sequence[nn.Module] = {
        "qkv": [attention.q, attention.k, attention.v], "out": [attention.o],
        "up": [*([ffn.gate] if ffn.gate is not None else []), ffn.up], "down": [ffn.down],
    }[part]  # fmt: skip
    if folded and part in ("qkv", "up"):  # whose weight has that of the norm before it
        norm = layer.attention_norm if part == "qkv" else layer.ffn_norm
        weight = weight_of(norm).float()
        factors = weight * len(weight) ** 0.5
    found = []
    for number, linear in enumerate(linears):
        one = _part(linear)
        if factors is not None:
            one = one._replace(a=one.a * factors)
        if part == "qkv" and number < 2:
            gain = interleaved(one.gain[:, None], size)[:, 0]
            b = interleaved(one.b, size) if one.b.shape[1] else one.b
            one = one._replace(b=b, gain=gain)
        found.append(one)
    return found


@torch.no_grad()
def _part(linear: nn.Module) -> _Part:
    weight = weight_of(linear)
    ones = torch.ones(len(weight), device=weight.device)
    if not isinstance(linear, LoRALinear):
        return _Part(weight.new_zeros(0, weight.shape[1]), weight.new_zeros(len(weight), 0), ones)
    a, b = linear.lora_a.detach().float(), linear.lora_b.detach().float() * linear.scale
    if linear.magnitude is not None:
        norms = row_norms(changed_weight(weight, linear.lora_a, linear.lora_b, linear.scale))
        ones = linear.magnitude.detach().float() / norms.clamp(min=TINY)
    return _Part(a, b, ones)


def _stacked(adapters: Sequence[list[_Part]], dtype: torch.dtype) -> Change:
    """All adapters of a product, padded to the largest rank; number 0 changes nothing."""
    rank = max(sum(len(part.a) for part in parts) for parts in adapters)
    inputs, outputs = adapters[0][0].a.shape[1], sum(len(part.b) for part in adapters[0])
    device = adapters[0][0].a.device
    a = torch.zeros(len(adapters) + 1, rank, inputs, device=device)
    b = torch.zeros(len(adapters) + 1, outputs, rank, device=device)
    gain = torch.ones(len(adapters) + 1, outputs, device=device)
    for number, parts in enumerate(adapters, 1):
        first = row = 0
        for part in parts:
            r, o = len(part.a), len(part.b)
            a[number, first : first + r] = part.a
            b[number, row : row + o, first : first + r] = part.b
            gain[number, row : row + o] = part.gain
            first, row = first + r, row + o
    plain = bool((gain == 1).all())
    return Change(a.to(dtype), b.to(dtype), None if plain else gain.to(dtype))
