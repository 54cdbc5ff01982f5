"""Multi-head latent attention in a model's config."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict


class MLAConfig(Strict):
    """Multi-head latent attention (DeepSeek-V2 2024): keys and values of all heads are made of one short vector of their position, and
    of one rotated key, which are all that generation keeps. The defaults are DeepSeek-V3's."""

    kv_rank: int = Field(default=512, ge=1, description="size of the vector that keys and values are made of")
    q_rank: int | None = Field(
        default=None,
        ge=1,
        description="size of such a vector for queries (DeepSeek-V3: 1536); null: they are made of the residual stream",
    )
    nope_head_dim: int = Field(
        default=128, ge=1, description="of queries and keys, dimensions without rotation"
    )
    rope_head_dim: int = Field(
        default=64, ge=2, description="rotated dimensions; of keys the same for all heads"
    )
    value_head_dim: int = Field(default=128, ge=1, description="of values")

    @model_validator(mode="after")
    def sizes(self) -> MLAConfig:
        if self.rope_head_dim % 2:
            raise ValueError(
                f"rope_head_dim {self.rope_head_dim} is odd, and RoPE rotates pairs: set it to {self.rope_head_dim + 1}"
            )
        if self.value_head_dim > self.head_size:
            raise ValueError(
                f"value_head_dim {self.value_head_dim} exceeds nope_head_dim + rope_head_dim = {self.head_size}, as which kernels compute"
                f" values: set it to {self.head_size} or less"
            )
        return self

    @property
    def head_size(self) -> int:
        """Dimensions of a head's queries and keys."""
        return self.nope_head_dim + self.rope_head_dim

    @property
    def kept(self) -> int:
        """Numbers that generation keeps of a position in a layer."""
        return self.kv_rank + self.rope_head_dim

    def check(self, model: Strict) -> None:
        """Raises `ValueError`, with the key to change, for what a model cannot have beside it."""
        apart: tuple[tuple[str, Any, str], ...] = (
            ("head_dim", None, "has sizes of its own (mla.nope_head_dim, rope_head_dim, value_head_dim)"),
            ("kv_heads", None, "gives each head keys and values of its own, and keeps none of them"),
            ("positions", "rope", "rotates a part of each key"),
            ("bias", False, "has no biases"),
            ("qk_norm", False, "norms the vectors that queries and keys are made of"),
            ("value_embeddings", "none", "keeps no values, to which vectors of tokens would be added"),
            ("value_residual", False, "keeps no values, with which those of other layers would be mixed"),
            ("mup_base_width", None, "has ranks that need not grow with dim, as muP's rule takes it"),
        )
        given = model.model_dump()
        for key, wanted, why in apart:
            found = given.get(key, wanted)
            if found != wanted and not (key == "kv_heads" and found == given["heads"]):
                raise ValueError(
                    f"{key} {str(found).lower()}: mla {why}: set {key} to {'null' if wanted is None else str(wanted).lower()}, or leave"
                    " mla out"
                )
