"""The layers of a decoder in as few operations as they can be written in: at one token a row, a small model takes most of its time
to begin operations, not to compute.

Queries, keys and values are one product, so are both halves of the gated feed-forward; cosine and sine are looked up; queries
that share a key-value head are read as positions of it. Values are those of `corpusmill.train.model.layer`, up to rounding.
"""

from __future__ import annotations

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
        self._norm = _weight(model.norm)
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
                    _weight(attention.q_norm).expand(config.heads, -1),
                    _weight(attention.k_norm).expand(config.key_value_heads, -1),
                )
            ).to(self._dtype)
        return _Layer(
            _weight(layer.attention_norm), _together(attention.q, attention.k, attention.v), norms,
            _weight(attention.o).T, _weight(layer.ffn_norm),
            _together(ffn.gate, ffn.up) if ffn.gate is not None else _weight(ffn.up), _weight(ffn.down).T,
        )  # fmt: skip

    def __call__(self, tokens: Tensor, mask: Tensor | None, cache: Cache) -> Tensor:
        """The hidden states before the head, [B, T, C], of token ids [B, T] at the cache's positions, in its rows."""
        config = self._config
        B, T = tokens.shape
        H, K, D, C = config.heads, config.key_value_heads, config.head_size, config.dim
        x = F.embedding(tokens, self._embedding).float().view(B * T, C)
        cosine, sine = self._rotation[cache.positions][:, :, None].chunk(2, dim=-1)
        grouped = H != K and T == 1
        for number, layer in enumerate(self._layers):
            h = self._to_product(F.rms_norm(x, (C,), layer.attention_norm, config.norm_eps))
            qkv = F.linear(h, layer.qkv).view(B, T, H + 2 * K, D)
            qk = qkv[:, :, : H + K]
            if layer.qk_norm is not None:
                turned = F.rms_norm(qk, (D,), None, config.norm_eps) * layer.qk_norm
            else:
                turned = qk
            qk.copy_(turned * cosine + turned.roll(D // 2, -1) * sine)
            k, v = cache.write(number, qkv[:, :, H:])
            q = qkv[:, :, :H]
            q = q.view(B, K, H // K, D) if grouped else q.transpose(1, 2)
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None and T > 1, enable_gqa=H != K and not grouped
            )
            y = (y if grouped else y.transpose(1, 2)).reshape(B * T, H * D)
            x = self._added(x, y, layer.out)
            h = self._to_product(F.rms_norm(x, (C,), layer.ffn_norm, config.norm_eps))
            x = self._added(x, self._activated(F.linear(h, layer.up)), layer.down)
        return F.rms_norm(x, (C,), self._norm, config.norm_eps).view(B, T, C)

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
