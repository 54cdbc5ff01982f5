"""How a training config uses its devices: the model and the batch over processes, the types that are computed in, and what is
done to need less memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.schemas.data import DataConfig
    from corpusmill.schemas.model import ModelConfig


Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble"]


class ParallelConfig(Strict):
    """`pipeline` x `replicate` x shard x `tensor` processes: what the first, second and last leave is what shards (or
    replicates, with `zero: 0`); of these, `context` neighbours share their sequences. Every layout gives the run of one process, to rounding, and may change on resume."""

    zero: Literal[0, 1, 2, 3] = Field(
        default=0,
        description="sharded over data-parallel processes: 0 nothing, 1 optimizer states, 2 gradients too, 3 parameters too",
    )
    replicate: int = Field(
        default=1, ge=1, description="hybrid sharding: this many groups, each sharding within itself"
    )
    tensor: int = Field(
        default=1,
        ge=1,
        description="processes over which each matrix, the sequence and the vocabulary are split",
    )
    context: int = Field(
        default=1,
        ge=1,
        exclude_if=lambda value: value == 1,
        description="processes that share each sequence, of whose keys and values all are gathered (long context)",
    )
    ring: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="with `context`: keys and values pass from process to process instead, which none then has all of",
    )
    pipeline: int = Field(default=1, ge=1, description="stages of layers")
    expert: int = Field(default=1, ge=1, description="sharding processes among which the experts are divided")
    schedule: Schedule = Field(default="1f1b", description="order of a pipeline's micro-batches")
    chunks: int = Field(
        default=2, ge=1, description="pieces of the model in a process under `interleaved` and `zero_bubble`"
    )
    elastic: bool = Field(
        default=False,
        description="data.micro_batch and replicate are lowered to what the number of processes allows",
    )

    @model_validator(mode="after")
    def products(self) -> ParallelConfig:
        if self.zero == 0 and self.replicate > 1:
            raise ValueError(
                f"replicate {self.replicate} has nothing to shard within its groups: set zero to 1, 2 or 3, or"
                " replicate to 1"
            )
        if self.ring and self.context == 1:
            raise ValueError(
                "ring: no processes share a sequence: set context to 2 or more, or leave ring out"
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

    def check(self, model: ModelConfig, data: DataConfig, whole_rows: Sequence[str] = ()) -> None:
        """Raises `ValueError`, with the number to change, if a model or its sequences cannot be cut so. `whole_rows`: sections of the config
        that need whole sequences."""
        lengths = [data.sequence_length, *data.sequence_ramp.values()]
        moe = model.moe
        parts: list[tuple[str, int, str, int]] = [
            ("model.heads", model.heads, "tensor", self.tensor),
            ("model.kv_heads", model.key_value_heads, "tensor", self.tensor),
            ("model.ffn_dim", model.hidden, "tensor", self.tensor),
            *(
                ("data.sequence_length", length, "tensor", self.tensor)
                for length in lengths
                if self.context == 1
            ),
        ]
        if moe:
            parts.append(("model.moe.experts", moe.experts, "expert", self.expert))
            parts.append(("model.moe.ffn_dim", moe.ffn_dim or model.hidden, "tensor", self.tensor))
        for name, whole, key, count in parts:
            if whole % count:
                fit = next(n for n in range(count, 0, -1) if whole % n == 0)
                raise ValueError(f"{key} {count} does not divide {name} {whole}: set {key} to {fit}")
        if model.mtp and (self.pipeline > 1 or self.context > 1):
            key = "pipeline" if self.pipeline > 1 else "context"
            raise ValueError(
                f"{key} {getattr(self, key)}: model.mtp needs embeddings and whole sequences where the last layer is: set {key} to 1,"
                " or model.mtp to null"
            )
        if self.context > 1:
            self._check_context(model, lengths, whole_rows)
        if self.expert > 1 and not moe:
            raise ValueError(
                f"expert {self.expert}, and the model has no experts: set expert to 1 or give model.moe"
            )
        if self.pieces > model.layers:
            raise ValueError(
                f"{self.pieces} pieces (pipeline {self.pipeline} x chunks {self.pieces // self.pipeline}) are more than"
                f" model.layers {model.layers}: lower pipeline or chunks"
            )

    def _check_context(self, model: ModelConfig, lengths: list[int], whole_rows: Sequence[str]) -> None:
        """Each process has two chunks of a sequence, which tensor parallelism cuts further."""
        unit = 2 * self.context * self.tensor
        for length in lengths:
            if length % unit:
                raise ValueError(
                    f"context {self.context} needs sequences of a multiple of {unit} tokens (2 x context x tensor): set"
                    f" data.sequence_length {length} to {-(-length // unit) * unit}"
                )
        if whole_rows:
            raise ValueError(
                f"context {self.context} cuts sequences, and {whole_rows[0]} needs them whole: set context to 1"
            )
        if model.moe and model.moe.balance == "loss":
            raise ValueError(
                f"context {self.context}: model.moe.balance: loss is of whole sequences: set it to bias, or context to 1"
            )


Precision = Literal["auto", "fp32", "bf16", "fp16", "fp8"]
Checkpointing = Literal["none", "full", "selective", "budget"]


class LossScaleConfig(Strict):
    """`precision: fp16`: the loss is multiplied by a scale that follows the gradients (Micikevicius et al. 2018).

    As Megatron-LM: `hysteresis` overflows, with no growth between them, before the scale backs off; from then on every
    overflow backs it off, until it grows again. At `floor` it stays: the guard decides what is to be done.
    """

    initial: float = Field(default=65536.0, gt=0, description="of the first step")
    growth_interval: int = Field(
        default=1000, ge=1, description="steps in a row without overflow after which it grows"
    )
    growth_factor: float = Field(default=2.0, gt=1)
    backoff_factor: float = Field(default=0.5, gt=0, lt=1)
    hysteresis: int = Field(default=2, ge=1, description="overflows after which it is reduced")
    floor: float = Field(default=1.0, gt=0, description="the scale never falls below")

    @model_validator(mode="after")
    def order(self) -> LossScaleConfig:
        if self.floor > self.initial:
            raise ValueError(
                f"floor {self.floor:g} exceeds initial {self.initial:g}: lower floor to {self.initial:g}"
            )
        return self


class MemoryConfig(Strict):
    """What is traded for memory. None of it changes the mathematics."""

    checkpointing: Checkpointing = Field(
        default="none",
        description="recomputed in the backward pass: `full` whole layers, `selective` all but matrix products and"
        " attention, `budget` what torch.compile finds cheapest",
    )
    budget: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="`checkpointing: budget`: share of a layer's activations that is kept",
    )
    offload: Literal["none", "activations", "optimizer"] = Field(
        default="none",
        description="to the host's memory: `activations` what the backward pass needs; `optimizer` parameters, gradients"
        " and optimizer states (with ZeRO)",
    )
    auto_micro_batch: bool = Field(
        default=False, description="halve data.micro_batch until a first pass fits into the device's memory"
    )
    collect_every: int | None = Field(
        default=50,
        ge=1,
        description="steps between two collections of Python's garbage, in all processes at once; null: when Python"
        " decides",
    )

    @model_validator(mode="after")
    def budgeted(self) -> MemoryConfig:
        if self.checkpointing == "budget" and self.budget is None:
            raise ValueError("checkpointing budget needs a budget: set budget to 0.5")
        if self.checkpointing != "budget" and self.budget is not None:
            raise ValueError(
                f"budget: has no effect with checkpointing {self.checkpointing}: leave it out, or set checkpointing to"
                " budget"
            )
        return self
