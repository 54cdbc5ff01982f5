"""Of a training config: the types that are computed in, and what is done to need less memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

Precision = Literal["fp32", "bf16", "fp16", "fp8"]
Checkpointing = Literal["none", "full", "selective", "budget"]


class LossScaleConfig(Strict):
    """`precision: fp16`: the loss is multiplied by a scale that follows the gradients (Micikevicius et al. 2018).

    As Megatron-LM: `hysteresis` overflows, with no growth between them, before the scale backs off; from then on every
    overflow backs it off, until it grows again. At `floor` it stays: the guard decides what is to be done.
    """

    initial: float = Field(default=65536.0, gt=0, description="of the first step")
    growth_interval: int = Field(
        default=1000, ge=1, description="steps in a row without overflow, then it grows"
    )
    growth_factor: float = Field(default=2.0, gt=1)
    backoff_factor: float = Field(default=0.5, gt=0, lt=1)
    hysteresis: int = Field(default=2, ge=1, description="overflows that it takes to back off")
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
        description="computed again in the backward pass: `full` whole layers, `selective` all but matrix products and"
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
