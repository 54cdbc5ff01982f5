"""How a training config deals the model and the batch to processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

if TYPE_CHECKING:
    from corpusmill.schemas.data import DataConfig
    from corpusmill.schemas.model import ModelConfig

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble"]


class ParallelConfig(Strict):
    """`pipeline` x `replicate` x shard x `tensor` processes: what the first, second and last leave is what shards (or
    replicates, with `zero: 0`). Every layout gives the run of one process, to rounding, and may change on resume."""

    zero: Literal[0, 1, 2, 3] = Field(
        default=0,
        description="what data-parallel processes share out: 0 nothing, 1 optimizer states, 2 gradients, 3 parameters too",
    )
    replicate: int = Field(
        default=1, ge=1, description="hybrid sharding: so many groups, each sharding within itself"
    )
    tensor: int = Field(
        default=1, ge=1, description="processes that share each matrix, the sequence and the vocabulary"
    )
    pipeline: int = Field(default=1, ge=1, description="stages of layers")
    expert: int = Field(
        default=1, ge=1, description="of the sharding processes, so many deal the experts among themselves"
    )
    schedule: Schedule = Field(default="1f1b", description="order of a pipeline's micro-batches")
    chunks: int = Field(
        default=2, ge=1, description="pieces of the model in a process under `interleaved` and `zero_bubble`"
    )

    @model_validator(mode="after")
    def products(self) -> ParallelConfig:
        if self.zero == 0 and self.replicate > 1:
            raise ValueError(
                f"replicate {self.replicate} shares nothing out within its groups: set zero to 1, 2 or 3, or"
                " replicate to 1"
            )
        if self.zero == 0 and self.expert > 1:
            raise ValueError(
                f"expert {self.expert} needs sharded states: set zero to 1, 2 or 3, or expert to 1"
            )
        return self

    @property
    def pieces(self) -> int:
        """Of the model, over all stages."""
        looped = self.pipeline > 1 and self.schedule in ("interleaved", "zero_bubble")
        return self.pipeline * (self.chunks if looped else 1)

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        """Raises `ValueError`, with the number to change, if a model or its sequences cannot be cut so."""
        lengths = [data.sequence_length, *data.sequence_ramp.values()]
        moe = model.moe
        parts: list[tuple[str, int, str, int]] = [
            ("model.heads", model.heads, "tensor", self.tensor),
            ("model.kv_heads", model.key_value_heads, "tensor", self.tensor),
            ("model.ffn_dim", model.hidden, "tensor", self.tensor),
            *(("data.sequence_length", length, "tensor", self.tensor) for length in lengths),
        ]
        if moe:
            parts.append(("model.moe.experts", moe.experts, "expert", self.expert))
            parts.append(("model.moe.ffn_dim", moe.ffn_dim or model.hidden, "tensor", self.tensor))
        for name, whole, key, count in parts:
            if whole % count:
                fit = next(n for n in range(count, 0, -1) if whole % n == 0)
                raise ValueError(f"{key} {count} does not divide {name} {whole}: set {key} to {fit}")
        if self.expert > 1 and not moe:
            raise ValueError(
                f"expert {self.expert}, and the model has no experts: set expert to 1 or give model.moe"
            )
        if self.pieces > model.layers:
            raise ValueError(
                f"{self.pieces} pieces (pipeline {self.pipeline} x chunks {self.pieces // self.pipeline}) are more than"
                f" model.layers {model.layers}: lower pipeline or chunks"
            )
