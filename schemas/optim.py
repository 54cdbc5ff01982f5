"""How a training config updates weights: the optimizer, and the learning rate over time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from schemas.manifest import Strict


class OptimizerConfig(Strict):
    """AdamW (Loshchilov & Hutter 2019). Weight decay is for matrices: not norms, not embeddings."""

    lr: float = Field(default=1e-3, gt=0, description="the highest learning rate")
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    grad_clip: float | None = Field(
        default=1.0, gt=0, description="norm of the gradient at most; null: no clipping"
    )

    @model_validator(mode="after")
    def moments(self) -> OptimizerConfig:
        for name, beta in zip(("first", "second"), self.betas, strict=True):
            if not 0 <= beta < 1:
                raise ValueError(f"betas: the {name} must be at least 0 and below 1, is {beta}")
        return self


class ScheduleConfig(Strict):
    """The learning rate as a function of the step alone: warm-up, then `kind`, down to `floor` x lr."""

    steps: int = Field(default=1000, ge=1)
    warmup_steps: int = Field(default=100, ge=0)
    kind: Literal["cosine", "linear", "constant", "wsd"] = "cosine"
    floor: float = Field(default=0.1, ge=0, le=1, description="share of lr at the end (not for `constant`)")
    decay_share: float = Field(default=0.2, gt=0, le=1, description="`wsd`: share of the steps that decay")

    @model_validator(mode="after")
    def lengths(self) -> ScheduleConfig:
        if self.warmup_steps >= self.steps and self.steps > 1:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} leaves nothing of steps {self.steps}: set warmup_steps to"
                f" {max(1, self.steps // 10)} or raise steps"
            )
        decay = round(self.decay_share * self.steps)
        if self.kind == "wsd" and self.warmup_steps + decay > self.steps:
            share = (self.steps - self.warmup_steps) / self.steps
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and a decay of {decay} steps exceed steps {self.steps}:"
                f" set decay_share to {share:.3g} or less"
            )
        return self
