"""The layers of a decoder in as few operations as they can be written in: at one token a row, a small model takes most of its time
to begin operations, not to compute.

Queries, keys and values are one product, so are both halves of the gated feed-forward; queries that share a key-value head are
read as positions of it; where products are fp32, a norm's weight is multiplied into that of the product behind it. The two halves
of a head are interleaved, so that the rotation of positions is a product of complex numbers: queries and keys are in the same
order, which their product does not depend on. Values are those of `corpusmill.train.model.layer`, up to rounding.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.generate.low_bits import Bits, LowBits
from corpusmill.train.generate.product import Product
from corpusmill.train.model.layer import Attention, FeedForward, Layer
from corpusmill.train.model.rope import rotation

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.generate.cache import Cache
    from corpusmill.train.model.decoder import Decoder


class Changes(Protocol):
    """What adapters change (`corpusmill.train.generate.low_rank`)."""

    def apply(self, layer: int, part: str, x: Tensor, y: Tensor, which: Tensor) -> Tensor: ...


class _Layer(NamedTuple):
    attention_norm: Tensor | None
    qkv: Product | LowBits
    qk_norm: Tensor | None  # of each head of queries and keys, [H + K, D]
    out: Product | LowBits
    ffn_norm: Tensor | None
    up: Product | LowBits  # with SwiGLU behind the gate
    down: Product | LowBits


class Fused:
    """The layers of `model` in `dtype`, with weights of their own, in few `bits` unless that is None. `length`: positions."""

    def __init__(self, model: Decoder, dtype: torch.dtype, length: int, bits: Bits | None = None) -> None:
        self._bits: Bits | None = bits
        config, device = model.config, model.embedding.weight.device
        self._config, self._dtype, self._embedding = config, dtype, model.embedding.weight
        sizes = (config.dim, config.head_size)
        self._root_eps = {
            size: torch.tensor(math.sqrt(size * config.norm_eps), device=device) for size in sizes
        }
        self._norm = _norm_weight(model.norm) / config.width_ratio
        cosine, sine = rotation(
            torch.arange(length, device=device)[None],
            config.head_size,
            config.rope_theta,
            config.rope_scaling,
        )
        half = config.head_size // 2
        self._rotation = torch.complex(cosine, sine)[
            0, 0, :, None, :half
        ].contiguous()  # [positions, 1, D / 2]
        self._layers = [self._layer(layer) for layer in model.layers.values()]

    @staticmethod
    def fits(config: ModelConfig) -> bool:
        """Whether this is written for such a model."""
        plain = config.norm == "rmsnorm" and config.positions == "rope" and not config.bias
        others = config.moe or config.mla or any(config.has_value_embedding(n) for n in range(config.layers))
        scores = config.window or config.nope_every or config.attention_softcap or config.attention_sinks
        return plain and not (others or scores or config.value_residual) and config.query_scale == 1

    @staticmethod
    def folds(dtype: torch.dtype, bits: Bits | None) -> bool:
        """Whether a norm's weight is multiplied into that of the product behind it: not with fewer digits than fp32."""
        return dtype == torch.float32 and bits is None

    def _layer(self, layer: nn.Module) -> _Layer:
        assert isinstance(layer, Layer)
        attention, ffn, config = layer.attention, layer.ffn, self._config
        assert isinstance(attention, Attention) and isinstance(ffn, FeedForward)
        D, norms = config.head_size, None
        if attention.q_norm is not None and attention.k_norm is not None:
            norms = torch.cat(
                (
                    _norm_weight(attention.q_norm).expand(config.heads, -1),
                    _norm_weight(attention.k_norm).expand(config.key_value_heads, -1),
                )
            )
            norms = interleaved(norms.flatten()[:, None], D).view(norms.shape)
        qkv = torch.cat(
            (
                interleaved(weight_of(attention.q), D),
                interleaved(weight_of(attention.k), D),
                weight_of(attention.v),
            )
        )
        up = weight_of(ffn.up)
        if ffn.gate is not None:
            up = torch.cat((weight_of(ffn.gate), up))
        attention_norm, qkv_product = self._behind(layer.attention_norm, qkv)
        ffn_norm, up_product = self._behind(layer.ffn_norm, up)
        out, down = (self._product(weight_of(module)) for module in (attention.o, ffn.down))
        return _Layer(attention_norm, qkv_product, norms, out, ffn_norm, up_product, down)

    def _product(self, weight: Tensor) -> Product | LowBits:
        return Product(weight.to(self._dtype)) if self._bits is None else LowBits(weight, self._bits)

    def _behind(self, norm: nn.Module, weight: Tensor) -> tuple[Tensor | None, Product | LowBits]:
        """What a norm multiplies with, and the product behind it, in one where it `folds`."""
        factors = _norm_weight(norm)
        if self.folds(self._dtype, self._bits):
            return None, Product(weight.float() * factors)
        return factors, self._product(weight)

    def __call__(
        self, tokens: Tensor, mask: Tensor | None, cache: Cache, adapters: Changes | None = None, which: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """The hidden states before the head, [B, T, C], of token ids [B, T] at the cache's positions, in its rows. `which`: int64 [B],
        the number of each row's adapter."""
        config = self._config
        B, T = tokens.shape
        H, K, D, C = config.heads, config.key_value_heads, config.head_size, config.dim
        x = F.embedding(tokens, self._embedding).float().view(B * T, C)
        rotation = self._rotation[cache.positions]
        bias = None
        if mask is not None and T == 1:  # of scores, for each row and key-value head
            hidden = torch.zeros(mask.shape, dtype=self._dtype, device=mask.device).masked_fill_(
                ~mask, float("-inf")
            )
            bias = hidden.expand(B, K, 1, -1).reshape(B * K, 1, -1)

        def changed(number: int, part: str, x: Tensor, y: Tensor) -> Tensor:
            return y if adapters is None or which is None else adapters.apply(number, part, x, y, which)

        def added(number: int, part: str, product: Product | LowBits, x: Tensor, y: Tensor) -> Tensor:
            if adapters is None or which is None:
                return product.added(x, y)
            return x + adapters.apply(number, part, y, product(y), which)

        for number, layer in enumerate(self._layers):
            normed = self._normed(x, layer.attention_norm)
            qkv = changed(number, "qkv", normed, layer.qkv(normed)).view(B, T, H + 2 * K, D)
            self._turn(qkv[:, :, : H + K], layer.qk_norm, rotation)
            k, v = cache.write(number, qkv[:, :, H:])
            q = qkv[:, :, :H]
            if T == 1:
                y = self._attend(q.reshape(B * K, H // K, D), k.flatten(0, 1), v.flatten(0, 1), bias)
            else:
                y = F.scaled_dot_product_attention(
                    q.transpose(1, 2), k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=H != K
                ).transpose(1, 2)
            x = added(number, "out", layer.out, x, y.reshape(B * T, H * D))
            normed = self._normed(x, layer.ffn_norm)
            up = changed(number, "up", normed, layer.up(normed))
            x = added(number, "down", layer.down, x, self._activated(up))
        return (self._scaled(x).mul_(self._norm)).view(B, T, C)

    def _scaled(self, x: Tensor) -> Tensor:
        """x float32 [..., n] over sqrt(sum(x^2) + n eps): RMSNorm over the last dimension but for the root of n, which the weights
        have. On a CPU, `F.rms_norm` is more operations than these."""
        least = self._root_eps[x.shape[-1]]
        root: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(least)
        return x / root

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Before a product, in its type."""
        x = self._scaled(x)
        return x if weight is None else x.mul_(weight).to(self._dtype)

    def _turn(self, qk: Tensor, norm: Tensor | None, rotation: Tensor) -> None:
        """Norm and rotate queries and keys [B, T, H + K, D] in place; `rotation` complex [B, T, 1, D / 2]."""
        pairs = (*qk.shape[:-1], qk.shape[-1] // 2, 2)
        turned = qk if norm is None else self._scaled(qk.float()).mul_(norm)
        source = torch.view_as_complex(turned.float().view(pairs))
        if self._dtype == torch.float32:
            torch.mul(source, rotation, out=torch.view_as_complex(qk.view(pairs)))
        else:
            qk.copy_(torch.view_as_real(source * rotation).flatten(-2))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Of one new position a row: q [N, G, D], G heads that share one of k and v [N, S, D]; [N, G, D]. The kernel for long texts
        takes longer than this to begin."""
        scale = q.shape[-1] ** -0.5
        if bias is None:
            scores = torch.baddbmm(q[:, :, :1], q, k.transpose(1, 2), beta=0, alpha=scale)
        else:
            scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
        return torch.bmm(scores.softmax(-1), v)

    def _activated(self, up: Tensor) -> Tensor:
        kind = self._config.activation
        if kind == "swiglu":
            gate, up = up.chunk(2, dim=-1)
            return F.silu(gate).mul_(up)
        return F.gelu(up, approximate="tanh") if kind == "gelu" else F.relu(up).square()


def _norm_weight(module: nn.Module) -> Tensor:
    """Times the root of its size: `_scaled` divides by the root of the sum, not of the mean."""
    weight = weight_of(module).float()
    return weight * math.sqrt(len(weight))


def weight_of(module: nn.Module) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def interleaved(rows: Tensor, size: int) -> Tensor:
    """Rows [n * size, ...] of heads of `size`, whose two halves take turns."""
    return rows.view(-1, 2, size // 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)
