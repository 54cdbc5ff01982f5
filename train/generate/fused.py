"""The layers of a decoder in as few operations as they can be written in: at one token a row, a small model takes most of its time
to begin operations, not to compute.

Queries, keys and values are one product, so are both halves of the gated feed-forward; cosine and sine are looked up; queries
that share a key-value head are read as positions of it. Values are those of `corpusmill.train.model.layer`, up to rounding.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.model.attend import rotation
from corpusmill.train.model.layer import FeedForward, Layer

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.generate.cache import Cache
    from corpusmill.train.model.decoder import Decoder


class _Layer(NamedTuple):
    attention_norm: Tensor
    qkv: Tensor
    qk_norm: Tensor | None  # of each head of queries and keys, [H + K, D]
    out: Tensor  # transposed
    ffn_norm: Tensor
    up: Tensor  # with SwiGLU behind the gate
    down: Tensor  # transposed


class Fused:
    """The layers of `model`, whose products' weights have been converted to `dtype`; they share its memory. `length`: positions."""

    def __init__(self, model: Decoder, dtype: torch.dtype, length: int) -> None:
        config, device = model.config, model.embedding.weight.device
        self._config, self._dtype, self._embedding = config, dtype, model.embedding.weight
        self._norm = _norm_weight(model.norm)
        cosine, sine = rotation(
            torch.arange(length, device=device)[None],
            config.head_size,
            config.rope_theta,
            config.rope_scaling,
        )
        half = config.head_size // 2
        # Of `x.roll(half)`: the second half comes first, and is subtracted.
        sine = torch.cat((-sine[..., :half], sine[..., half:]), dim=-1)
        self._rotation = torch.cat((cosine, sine), dim=-1)[0, 0]
        self._layers = [self._layer(layer) for layer in model.layers.values()]

    @staticmethod
    def fits(config: ModelConfig) -> bool:
        """Whether this is written for such a model."""
        plain = config.norm == "rmsnorm" and config.positions == "rope" and not config.bias
        others = config.moe or any(config.has_value_embedding(n) for n in range(config.layers))
        return plain and not others

    def _layer(self, layer: nn.Module) -> _Layer:
        assert isinstance(layer, Layer)
        attention, ffn, config = layer.attention, layer.ffn, self._config
        assert isinstance(ffn, FeedForward)
        norms = None
        if attention.q_norm is not None and attention.k_norm is not None:
            norms = torch.cat(
                (
                    _norm_weight(attention.q_norm).expand(config.heads, -1),
                    _norm_weight(attention.k_norm).expand(config.key_value_heads, -1),
                )
            )
        return _Layer(
            _norm_weight(layer.attention_norm), _together(attention.q, attention.k, attention.v), norms,
            _weight(attention.o).T, _norm_weight(layer.ffn_norm),
            _together(ffn.gate, ffn.up) if ffn.gate is not None else _weight(ffn.up), _weight(ffn.down).T,
        )  # fmt: skip

    def __call__(self, tokens: Tensor, mask: Tensor | None, cache: Cache) -> Tensor:
        """The hidden states before the head, [B, T, C], of token ids [B, T] at the cache's positions, in its rows."""
        config = self._config
        B, T = tokens.shape
        H, K, D, C = config.heads, config.key_value_heads, config.head_size, config.dim
        x = F.embedding(tokens, self._embedding).float().view(B * T, C)
        cosine, sine = self._rotation[cache.positions][:, :, None].chunk(2, dim=-1)
        bias = None
        if mask is not None and T == 1:  # of scores, for each row and key-value head
            hidden = torch.zeros(mask.shape, dtype=self._dtype, device=mask.device).masked_fill_(
                ~mask, float("-inf")
            )
            bias = hidden.expand(B, K, 1, -1).reshape(B * K, 1, -1)
        for number, layer in enumerate(self._layers):
            h = self._to_product(self._normed(x, layer.attention_norm))
            qkv = F.linear(h, layer.qkv).view(B, T, H + 2 * K, D)
            qk = qkv[:, :, : H + K]
            if layer.qk_norm is not None:
                turned = self._normed(qk, layer.qk_norm)
            else:
                turned = qk
            qk.copy_(turned * cosine + turned.roll(D // 2, -1) * sine)
            k, v = cache.write(number, qkv[:, :, H:])
            q = qkv[:, :, :H]
            if T == 1:
                y = self._attend(q.reshape(B * K, H // K, D), k.flatten(0, 1), v.flatten(0, 1), bias)
            else:
                y = F.scaled_dot_product_attention(
                    q.transpose(1, 2), k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=H != K
                ).transpose(1, 2)
            y = y.reshape(B * T, H * D)
            x = self._added(x, y, layer.out)
            h = self._to_product(self._normed(x, layer.ffn_norm))
            x = self._added(x, self._activated(F.linear(h, layer.up)), layer.down)
        return self._normed(x, self._norm).view(B, T, C)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm over the last dimension. On a CPU, `F.rms_norm` is more operations than these."""
        size = x.shape[-1]
        x = x.float()
        scale = x.square().sum(-1, keepdim=True).add_(self._config.norm_eps * size).rsqrt_()
        return (x * scale).mul_(weight)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Of one new position a row: q [N, G, D], G heads that share one of k and v [N, S, D]; [N, G, D]. The kernel for long texts
        takes longer than this to begin."""
        scale = q.shape[-1] ** -0.5
        if bias is None:
            scores = torch.bmm(q * scale, k.transpose(1, 2))
        else:
            scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
        return torch.bmm(scores.softmax(-1), v)

    def _to_product(self, x: Tensor) -> Tensor:
        return x if self._dtype == torch.float32 else x.to(self._dtype)

    def _added(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """x + y @ weight; x float32 [N, C]."""
        return torch.addmm(x, y, weight) if self._dtype == torch.float32 else x + y @ weight

    def _activated(self, up: Tensor) -> Tensor:
        kind = self._config.activation
        if kind == "swiglu":
            gate, up = up.chunk(2, dim=-1)
            return F.silu(gate).mul_(up)
        return F.gelu(up, approximate="tanh") if kind == "gelu" else F.relu(up).square()


def _norm_weight(module: nn.Module) -> Tensor:
    """Times the root of its size: `_normed` divides by the root of the sum, not of the mean."""
    weight = _weight(module).float()
    return weight * math.sqrt(len(weight))


def _weight(module: nn.Module) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def _together(*products: nn.Linear) -> Tensor:
    """The weights of several products as those of one, of which each is a view from now on."""
    whole = torch.cat([_weight(product) for product in products])
    begin = 0
    for product in products:
        end = begin + len(product.weight)
        product.weight = nn.Parameter(whole[begin:end], requires_grad=False)
        begin = end
    return whole
