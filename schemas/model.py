"""The model of a training config: the shape of a decoder."""

from __future__ import annotations

from pydantic import Field, model_validator

from schemas.manifest import Strict


class ModelConfig(Strict):
    """A Llama-style decoder. The vocabulary comes from the shard set."""

    dim: int = Field(default=256, ge=8)
    layers: int = Field(default=4, ge=1)
    heads: int = Field(default=4, ge=1)
    kv_heads: int | None = Field(
        default=None, ge=1, description="key and value heads (GQA); null: as many as heads"
    )
    ffn_dim: int | None = Field(default=None, ge=1, description="null: 8/3 of dim, up to a multiple of 64")
    rope_theta: float = Field(default=10_000.0, gt=1)
    norm_eps: float = Field(default=1e-5, gt=0)
    tie_embeddings: bool = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    vocab_multiple: int = Field(
        default=64, ge=1, description="the vocabulary is padded up to a multiple of this"
    )

    @model_validator(mode="after")
    def shapes(self) -> ModelConfig:
        if self.dim % self.heads:
            raise ValueError(
                f"dim {self.dim} is not a multiple of heads {self.heads}: set dim to"
                f" {-(-self.dim // self.heads) * self.heads}"
            )
        if (self.dim // self.heads) % 2:
            raise ValueError(
                f"dim / heads = {self.dim // self.heads} is odd, and RoPE rotates pairs: set dim to"
                f" {self.heads * (self.dim // self.heads + 1)}"
            )
        if self.heads % self.key_value_heads:
            fit = next(n for n in range(min(self.key_value_heads, self.heads), 0, -1) if self.heads % n == 0)
            raise ValueError(
                f"heads {self.heads} is not a multiple of kv_heads {self.key_value_heads}: set kv_heads to {fit}"
            )
        return self

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def hidden(self) -> int:
        """Width of the feed-forward layer."""
        return self.ffn_dim or -(-8 * self.dim // (3 * 64)) * 64
