"""One layer: attention and feed-forward, each after a norm and added to the residual stream.

Shapes: B rows, T positions, C = dim, H heads, K key-value heads, D = head_size. With tensor parallelism over n processes
(`corpusmill.train.model.split`), each has T / n outside of the products, and an n-th of H, K and the width within them.

The mask of dropout (Srivastava et al. 2014) is a pure function of (seed, step, sequence, place in the model, position,
feature): the same in every layout, micro-batch and recomputation, without a generator whose state would have to be saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.model.attend import Boundaries, attend
from corpusmill.train.model.blockwise import Scores
from corpusmill.train.model.initialise import mix
from corpusmill.train.model.lora import LoRALinear
from corpusmill.train.model.moe import Experts, Routed, squared_relu
from corpusmill.train.model.rope import Rotation, rotate
from corpusmill.train.model.split import WHOLE, Split
from corpusmill.train.model.value_residual import learned_share, mixed
from corpusmill.train.model.virtual import with_prefix

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig

LEVELS = 1 << 16  # to which the share that is dropped is rounded
# Parameters of column-parallel products that are cut by outputs, and of row-parallel ones by inputs; some are adapters'.
COLUMNS = ("weight", "bias", "lora_b", "magnitude", "codes", "scales", "factors")
ROWS = ("weight", "lora_a", "codes", "scales")


def keys_of_layer(keys: Tensor | None, number: int) -> Tensor | None:
    """The keys of a layer's dropout, int64 [B], from those of the rows; None: no dropout."""
    return None if keys is None else mix(keys + number + 1)


def dropout(x: Tensor, share: float, keys: Tensor | None, place: int, split: Split) -> Tensor:
    """x [B, T, C] (this process's part of the sequence) with `share` of its elements 0 and the others scaled up.

    `keys`, int64 [B], distinguish sequences, steps and layers, `place` the calls within a layer. None: no dropout.
    """
    if keys is None or not share:
        return x
    B, T, C = x.shape
    words = -(-C // 4)  # one 64-bit number for four features
    places = split.places(T, x.device)
    index = (places[:, None] * words + torch.arange(words, device=x.device)).flatten()
    key = mix(keys + place)[:, None]
    bits = mix(mix(index[None] + key) ^ key)
    level = bits.view(B, T, words).view(torch.int16)[:, :, :C]
    dropped = round(share * LEVELS)
    return torch.where(level >= dropped - LEVELS // 2, x * (LEVELS / (LEVELS - dropped)), 0.0)


class RMSNorm(nn.RMSNorm):
    """RMSNorm (Zhang & Sennrich 2019) in the type of its input: the fused kernel needs weights of the same type."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def make_norm(config: ModelConfig) -> nn.Module:
    """RMSNorm, or LayerNorm (Ba et al. 2016) with or without a bias."""
    if config.norm == "rmsnorm":
        return RMSNorm(config.dim, eps=config.norm_eps)
    return nn.LayerNorm(config.dim, eps=config.norm_eps, bias=config.bias)


def row_parallel(product: nn.Linear, x: Tensor, split: Split) -> Tensor:
    """`product` of features of which each process has a part: their products summed, then the bias, added once."""
    if split.size == 1:
        whole: Tensor = product(x)
        return whole
    if product.bias is None:
        return split.scatter(product(x))
    made = product.unbiased(x) if isinstance(product, LoRALinear) else F.linear(x, product.weight)
    return split.scatter(made) + product.bias


class Attention(nn.Module):
    """Causal self-attention that stays within documents; H / K query heads share a key-value head (GQA).

    With value embeddings (Jordan et al., modded-nanogpt, 2024) each head's values get a learned vector of the token at
    their position added, times a learned factor: a look-up, which costs memory and next to no time.

    A local layer attends within a window; a layer without rotary positions (NoPE, Kazemnejad et al. 2023) knows the order of tokens from
    the mask alone. Scores may be capped, and have a sink (`corpusmill.train.model.blockwise`). Values may be mixed with those of the first
    layer (`corpusmill.train.model.value_residual`).
    """

    tensor_split: ClassVar[dict[str, int]] = {
        **{f"{name}.{part}": 0 for name in "qkv" for part in COLUMNS}, **{f"o.{part}": 1 for part in ROWS},
        "value_embedding.weight": 1, "value_scale": 0, "prefix_embedding": 1, "sinks": 0,
    }  # fmt: skip

    def __init__(self, config: ModelConfig, number: int, rows: int) -> None:
        super().__init__()
        self.split: Split = WHOLE
        self.number, self.local, self.rotated = number, config.is_local(number), config.is_rotated(number)
        self.softcap, self.query_scale = config.attention_softcap, config.query_scale
        self.sinks = nn.Parameter(torch.zeros(config.heads)) if config.attention_sinks else None
        heads, kv_heads, self.head_dim = config.heads, config.key_value_heads, config.head_size
        self.q = nn.Linear(config.dim, heads * self.head_dim, bias=config.bias)
        self.k = nn.Linear(config.dim, kv_heads * self.head_dim, bias=config.bias)
        self.v = nn.Linear(config.dim, kv_heads * self.head_dim, bias=config.bias)
        self.o = nn.Linear(heads * self.head_dim, config.dim, bias=config.bias)
        # One weight for all heads, as Qwen3 has it (Henry et al. 2020, Dehghani et al. 2023).
        self.q_norm = RMSNorm(self.head_dim, eps=config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(self.head_dim, eps=config.norm_eps) if config.qk_norm else None
        self.value_embedding: nn.Embedding | None = None
        if config.has_value_embedding(number):
            self.value_embedding = nn.Embedding(rows, kv_heads * self.head_dim)
            self.value_scale = nn.Parameter(torch.ones(kv_heads))
        self.value_mix = learned_share(config, number)
        self.prefix_embedding: nn.Parameter | None = None  # [2, K, N, D], of virtual tokens

    def forward(
        self, x: Tensor, rope: Rotation | None, within: Boundaries, ids: Tensor, first: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """[B, T, C], and the values [B, K, T, D]; `first`: those of the first layer, to be mixed with."""
        made = self.split.products(x, self.q, self.k, self.v)
        B, T, _ = made[0].shape
        q, k, v = (y.view(B, T, -1, self.head_dim).transpose(1, 2) for y in made)
        if self.value_embedding is not None:
            vectors = self.value_embedding(ids).view(B, T, -1, self.head_dim).transpose(1, 2)
            v = v + (self.value_scale[:, None, None] * vectors).to(v.dtype)
        values, v = v, mixed(v, first, self.value_mix)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if self.query_scale != 1:
            q = q * self.query_scale
        if rope is not None and self.rotated:
            q, k = rotate(q, rope), rotate(k, rope)
        if self.prefix_embedding is not None and within.positions is not None:
            k, v = with_prefix(self.prefix_embedding, k, v, within.positions)
        if within.cache is not None:
            k, v = within.cache.extend(self.number, k, v)
        found = attend(q, k, v, within.of(self.local), Scores(self.softcap, self.sinks))
        return row_parallel(self.o, found.transpose(1, 2).reshape(B, T, -1), self.split), values


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020), GELU (tanh, as GPT-2) or squared ReLU (So et al. 2021)."""

    tensor_split: ClassVar[dict[str, int]] = {
        **{f"{name}.{part}": 0 for name in ("gate", "up") for part in COLUMNS}, **{f"down.{part}": 1 for part in ROWS},
    }  # fmt: skip

    def __init__(self, config: ModelConfig, hidden: int) -> None:
        super().__init__()
        self.split: Split = WHOLE
        self.activation = config.activation
        gated = config.activation == "swiglu"
        self.gate = nn.Linear(config.dim, hidden, bias=config.bias) if gated else None
        self.up = nn.Linear(config.dim, hidden, bias=config.bias)
        self.down = nn.Linear(hidden, config.dim, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        up, *gate = self.split.products(x, self.up, *([self.gate] if self.gate is not None else []))
        if gate:
            hidden = F.silu(gate[0]) * up
        else:
            hidden = F.gelu(up, approximate="tanh") if self.activation == "gelu" else squared_relu(up)
        return row_parallel(self.down, hidden, self.split)


class Layer(nn.Module):
    """Residual stream [B, T, C] in and out, with the tokens' `ids` [B, T] and `rows` of vocabulary; also what the router of a layer with experts did, else None;
    and of layer 0 its values, if later layers mix theirs with these (`first`), else None.

    Dropout is applied to the output of each half, by the layer's `keys` (None: no dropout). `attention`: its kind.
    """

    def __init__(self, config: ModelConfig, number: int, rows: int, attention: type[nn.Module]) -> None:
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = attention(config, number, rows)
        self.ffn_norm = make_norm(config)
        experts = config.has_experts(number)
        self.ffn = Experts(config, FeedForward) if experts else FeedForward(config, config.hidden)
        self.dropout, self.gives = config.dropout, config.value_residual and number == 0

    def forward(
        self, x: Tensor, rope: Rotation | None, within: Boundaries, ids: Tensor, keys: Tensor | None = None,
        first: Tensor | None = None,
    ) -> tuple[Tensor, Routed | None, Tensor | None]:  # fmt: skip
        split = self.ffn.split
        y, values = self.attention(self.attention_norm(x), rope, within, ids, first)
        x = x + dropout(y, self.dropout, keys, 1, split)
        found = self.ffn(self.ffn_norm(x))
        y, routed = found if isinstance(self.ffn, Experts) else (found, None)
        return x + dropout(y, self.dropout, keys, 2, split), routed, values if self.gives else None
