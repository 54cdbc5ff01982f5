"""The model of a training config: the shape of a decoder."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.latent import MLAConfig
from corpusmill.schemas.manifest import Strict

# What a preset sets where the config says nothing.
PRESETS: dict[str, dict[str, Any]] = {
    "llama": {"norm": "rmsnorm", "positions": "rope", "activation": "swiglu", "bias": False},
    "gpt2": {"norm": "layernorm", "positions": "learned", "activation": "gelu", "bias": True},
}


def _none(value: Any) -> bool:
    """Options that are not used leave no trace in a config as it is kept."""
    return value is None


class RopeScaling(Strict):
    """RoPE beyond the length that a model was trained on: its frequencies changed."""

    kind: Literal["linear", "ntk", "yarn", "llama3"]
    factor: float = Field(gt=1, description="new length / original length")
    original_length: int = Field(default=8192, ge=1, description="yarn, llama3: length of the first training")
    low_freq_factor: float = Field(default=1.0, gt=0, description="llama3")
    high_freq_factor: float = Field(default=4.0, gt=0, description="llama3")
    beta_fast: float = Field(
        default=32.0, gt=0, description="yarn: rotations above which frequencies are kept"
    )
    beta_slow: float = Field(
        default=1.0, gt=0, description="yarn: rotations below which frequencies are fully scaled"
    )

    @model_validator(mode="after")
    def orders(self) -> RopeScaling:
        for high, low in (("high_freq_factor", "low_freq_factor"), ("beta_fast", "beta_slow")):
            if getattr(self, high) <= getattr(self, low):
                raise ValueError(
                    f"{high} {getattr(self, high):g} must be above {low} {getattr(self, low):g}: raise it"
                )
        return self


class MoEConfig(Strict):
    """Mixture of experts in place of a layer's feed-forward: each token goes to `top_k` of them, none is dropped."""

    experts: int = Field(ge=2)
    top_k: int = Field(default=2, ge=1)
    ffn_dim: int | None = Field(
        default=None, ge=1, description="width of an expert; null: the model's ffn_dim"
    )
    shared_experts: int = Field(
        default=0, ge=0, description="experts that every token passes, as one layer of their width together"
    )
    scores: Literal["softmax", "sigmoid"] = Field(
        default="sigmoid",
        description="weights are the scores of the selected experts, normalised to sum to 1",
    )
    balance: Literal["bias", "loss", "none"] = Field(
        default="bias",
        description="bias: a bias per expert, moved each step (DeepSeek-V3); loss: Switch's, per sequence",
    )
    bias_rate: float = Field(default=1e-3, gt=0, description="`balance: bias`: the bias moves by this a step")
    balance_loss: float = Field(default=1e-2, gt=0, description="`balance: loss`: its weight")
    router_z_loss: float = Field(default=0.0, ge=0, description="weight (ST-MoE: 1e-3)")
    first: int = Field(default=0, ge=0, description="layers before this one (counted from 0) stay dense")
    every: int = Field(default=1, ge=1, description="from there on, every n-th layer has experts")

    @model_validator(mode="after")
    def chosen(self) -> MoEConfig:
        if self.top_k > self.experts:
            raise ValueError(
                f"top_k {self.top_k} exceeds experts {self.experts}: set top_k to {self.experts}"
            )
        return self


class ModelConfig(Strict):
    """A decoder; `preset` fills in what is not given. The vocabulary comes from the shard set."""

    preset: Literal["llama", "gpt2"] = "llama"
    dim: int = Field(default=256, ge=8)
    layers: int = Field(default=4, ge=1)
    heads: int = Field(default=4, ge=1)
    kv_heads: int | None = Field(
        default=None, ge=1, description="key and value heads (GQA); null: as many as heads"
    )
    head_dim: int | None = Field(default=None, ge=1, description="null: dim / heads")
    ffn_dim: int | None = Field(
        default=None, ge=1, description="null: 8/3 of dim, up to a multiple of 64, for swiglu; else 4 x dim"
    )
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_eps: float = Field(default=1e-5, gt=0)
    positions: Literal["rope", "learned"] = "rope"
    max_positions: int = Field(default=1024, ge=1, description="`positions: learned`: number of positions")
    rope_theta: float = Field(default=10_000.0, gt=1)
    rope_scaling: RopeScaling | None = None
    activation: Literal["swiglu", "gelu", "relu2"] = Field(
        default="swiglu", description="gelu: GPT-2's (tanh); relu2: the square of relu"
    )
    bias: bool = Field(default=False, description="in every matrix product except the head, and in layernorm")
    mla: MLAConfig | None = Field(
        default=None,
        exclude_if=_none,
        description="multi-head latent attention (DeepSeek-V2): a cache of kv_rank + rope_head_dim numbers a position; null: none",
    )
    qk_norm: bool = Field(default=False, description="RMSNorm over each head's query and key, before RoPE")
    value_embeddings: Literal["none", "alternate", "all"] = Field(
        default="none",
        description="layers whose values get a learned vector of the token added; alternate: every other, the last too",
    )
    causal: bool = Field(
        default=True,
        exclude_if=lambda value: value is True,
        description="false: a position attends to those on both sides (BERT), with data.masking",
    )
    value_residual: bool = Field(
        default=False,
        exclude_if=lambda value: value is False,
        description="the values of each layer are mixed with those of the first, by a learned share (Zhou et al. 2024)",
    )
    window: int | None = Field(
        default=None,
        ge=1,
        exclude_if=_none,
        description="positions that a position of a local layer attends to, itself among them (512 to 4096); null: no layer is local",
    )
    global_every: int | None = Field(
        default=None,
        ge=2,
        exclude_if=_none,
        description="with `window`: every n-th layer attends to all earlier positions (Gemma 3: 6; OLMo 3: 4); null: all layers are local",
    )
    nope_every: int | None = Field(
        default=None,
        ge=1,
        exclude_if=_none,
        description="every n-th layer without rotary positions (NoPE; SmolLM3: 4); null: none",
    )
    attention_softcap: float | None = Field(
        default=None,
        gt=0,
        exclude_if=_none,
        description="scores of attention are capped at this, by c x tanh(score / c) (Gemma 2: 50)",
    )
    attention_sinks: bool = Field(
        default=False,
        exclude_if=lambda value: value is False,
        description="a learned score of each head that no value belongs to (gpt-oss)",
    )
    logit_softcap: float | None = Field(
        default=None,
        gt=0,
        exclude_if=_none,
        description="logits of tokens are capped at this, by c x tanh(logit / c) (Gemma 2: 30; nanochat: 15)",
    )
    mup_base_width: int | None = Field(
        default=None,
        ge=1,
        exclude_if=_none,
        description="muP: dim of the model that the learning rate was found on, to use it at this dim; null: standard parametrisation",
    )
    mup_base_head_dim: int | None = Field(
        default=None,
        ge=1,
        exclude_if=_none,
        description="with `mup_base_width`: that model's head_dim, where it was another one; null: the same, and width is heads",
    )
    mtp: int | None = Field(
        default=None,
        ge=1,
        le=8,
        exclude_if=_none,
        description="tokens after the next that training predicts as well, by a layer each (multi-token prediction; DeepSeek-V3: 1)",
    )
    mtp_weight: float = Field(
        default=0.3,
        gt=0,
        exclude_if=lambda value: value == 0.3,
        description="with `mtp`: weight of their mean loss beside the next token's (DeepSeek-V3: 0.3, later 0.1)",
    )
    tie_embeddings: bool = True
    reward_head: bool = Field(
        default=False,
        exclude_if=lambda value: value is False,
        description="in place of the head over the vocabulary one of a single number, for `objective: {loss: reward}`; embeddings are"
        " not tied to it",
    )
    dropout: float = Field(default=0.0, ge=0, lt=1)
    z_loss: float = Field(
        default=0.0, ge=0, description="weight of log(Z)^2 of each scored token (PaLM: 1e-4)"
    )
    moe: MoEConfig | None = None
    vocab_multiple: int = Field(
        default=64, ge=1, description="the vocabulary is padded up to a multiple of this"
    )
    loss_chunk: int | None = Field(
        default=None,
        ge=1,
        description="tokens whose logits are in memory at once (in a pipeline for a third more work in the head); null: all",
    )

    @model_validator(mode="before")
    @classmethod
    def fill(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        preset = given.get("preset", "llama")
        untied = {"tie_embeddings": False} if given.get("reward_head") is True else {}
        return {**PRESETS.get(preset if isinstance(preset, str) else "", {}), **given, **untied}

    @model_validator(mode="after")
    def shapes(self) -> ModelConfig:
        if self.mla:
            self.mla.check(self)
        elif self.head_dim is None and self.dim % self.heads:
            raise ValueError(
                f"dim {self.dim} is not a multiple of heads {self.heads}: set dim to"
                f" {-(-self.dim // self.heads) * self.heads}"
            )
        if self.positions == "rope" and self.rope_size % 2:
            if self.head_dim:
                raise ValueError(
                    f"head_dim {self.head_dim} is odd, and RoPE rotates pairs: set head_dim to {self.head_dim + 1}"
                )
            raise ValueError(
                f"dim / heads = {self.head_size} is odd, and RoPE rotates pairs: set dim to"
                f" {self.heads * (self.head_size + 1)}"
            )
        if self.heads % self.key_value_heads:
            fit = next(n for n in range(min(self.key_value_heads, self.heads), 0, -1) if self.heads % n == 0)
            raise ValueError(
                f"heads {self.heads} is not a multiple of kv_heads {self.key_value_heads}: set kv_heads to {fit}"
            )
        if self.rope_scaling and self.positions != "rope":
            raise ValueError(
                "rope_scaling changes RoPE, and positions is 'learned': set positions to rope or rope_scaling to null"
            )
        if self.global_every and self.window is None:
            raise ValueError(
                f"global_every {self.global_every} sets local layers apart, and window is null: set window, or global_every to null"
            )
        if self.logit_softcap and self.reward_head:
            raise ValueError(
                "logit_softcap caps the logits of tokens, and reward_head has none: leave one of them out"
            )
        if self.mtp and (self.reward_head or not self.causal):
            what = "reward_head predicts none" if self.reward_head else "causal is false"
            raise ValueError(f"mtp predicts tokens after the next, and {what}: set mtp to null")
        if self.nope_every and self.positions != "rope":
            raise ValueError(
                "nope_every leaves rotary positions out, and positions is 'learned': set positions to rope or nope_every to null"
            )
        if self.mup_base_head_dim and self.mup_base_width is None:
            raise ValueError(
                f"mup_base_head_dim {self.mup_base_head_dim} goes with mup_base_width, which is null: set that, or leave it out"
            )
        if self.rope_scaling and self.rope_scaling.kind == "ntk" and self.rope_size < 4:
            raise ValueError("rope_scaling.kind ntk needs heads of 4 or more dimensions: set kind to linear")
        if self.moe and self.moe.first >= self.layers:
            raise ValueError(
                f"moe.first {self.moe.first} leaves no layer of {self.layers} with experts: set moe.first to"
                f" {self.layers - 1} or less"
            )
        return self

    @property
    def auxiliary(self) -> str | None:
        """A key by which losses beside that of the next token are added to it token by token; None: there is none."""
        return next((key for key in ("z_loss", "mtp", "moe") if getattr(self, key)), None)

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def head_size(self) -> int:
        """Dimensions of a head, with `mla` of its queries and keys."""
        return self.mla.head_size if self.mla else self.head_dim or self.dim // self.heads

    @property
    def rope_size(self) -> int:
        """Dimensions of a head that rotary positions rotate."""
        return self.mla.rope_head_dim if self.mla else self.head_size

    @property
    def kept(self) -> tuple[int, int, int]:
        """What generation keeps of a position in a layer: how many times (keys and values) how many heads of how many numbers."""
        return (1, 1, self.mla.kept) if self.mla else (2, self.key_value_heads, self.head_size)

    @property
    def stage_width(self) -> int:
        """Features that a pipeline's stage sends on: the residual stream's, and the first layer's values where later ones need them."""
        return self.dim + self.value_residual * self.key_value_heads * self.head_size

    @property
    def width_ratio(self) -> float:
        """How many times wider than the base of muP; 1 without one."""
        return self.dim / (self.mup_base_width or self.dim)

    @property
    def query_scale(self) -> float:
        """Of queries, so that scores are q k / D as muP has them, and at the base's head size q k / sqrt(D)."""
        return math.sqrt((self.mup_base_head_dim or self.head_size) / self.head_size)

    @property
    def hidden(self) -> int:
        """Width of the feed-forward layer."""
        plain = -(-8 * self.dim // (3 * 64)) * 64 if self.activation == "swiglu" else 4 * self.dim
        return self.ffn_dim or plain

    def has_experts(self, layer: int) -> bool:
        """Whether layer `layer`, counted from 0, is a mixture of experts."""
        moe = self.moe
        return moe is not None and self.layers > layer >= moe.first and (layer - moe.first) % moe.every == 0

    def has_value_embedding(self, layer: int) -> bool:
        """Whether layer `layer`, counted from 0, adds an embedding of the token to its values."""
        every = {"none": 0, "alternate": 2, "all": 1}[self.value_embeddings]
        return bool(every) and layer < self.layers and (self.layers - 1 - layer) % every == 0

    def is_local(self, layer: int) -> bool:
        """Whether layer `layer`, counted from 0, attends within `window`."""
        within = layer < self.layers and self.window is not None  # those of `mtp` are not local
        return within and not (self.global_every and (layer + 1) % self.global_every == 0)

    @property
    def windows(self) -> dict[int, int]:
        """The window of each local layer, by number."""
        return {n: self.window for n in range(self.layers) if self.window is not None and self.is_local(n)}

    def is_rotated(self, layer: int) -> bool:
        """Whether layer `layer`, counted from 0, has rotary positions."""
        nope = self.nope_every and layer < self.layers and (layer + 1) % self.nope_every == 0
        return self.positions == "rope" and not nope

    def padded(self, vocab_size: int) -> int:
        """Rows of the embedding for a vocabulary."""
        return -(-vocab_size // self.vocab_multiple) * self.vocab_multiple
