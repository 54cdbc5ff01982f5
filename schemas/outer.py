"""Low-communication training: how often processes exchange their weights, and what is done with them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

ROUNDS = 20  # over which momentum of the outer optimizer begins to pay
ALONE = (
    "optimizer.ema", "optimizer.hypergradient", "objective", "distillation", "reinforcement", "adapter", "branch",
    "evaluation.tasks",
)  # fmt: skip


class OuterConfig(Strict):
    """DiLoCo (Douillard et al. 2023): each process, a worker, trains by itself, and now and then all take a step together by how far each has
    come, of an outer optimizer, SGD with momentum. With `fragments`: streaming DiLoCo (Douillard et al. 2025)."""

    every: int = Field(ge=1, description="steps between two exchanges of a weight (DiLoCo: 500)")
    lr: float = Field(
        default=0.7, gt=0, description="of the outer optimizer; 1 with momentum 0: plain averaging"
    )
    momentum: float = Field(default=0.9, ge=0, lt=1, description="of the outer optimizer")
    nesterov: bool = Field(default=True, description="of its momentum")
    fragments: int = Field(
        default=1, ge=1, description="streaming: parts that the layers are dealt to, exchanged in turn"
    )
    delay: int = Field(
        default=0, ge=0, description="steps that a worker trains on while a fragment is exchanged"
    )
    mix: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of a worker's own weights that an exchange leaves (streaming: 0.5)",
    )
    bits: Literal[8, 16, 32] = Field(
        default=32, description="of each number that is exchanged; 8: codes with a scale for each tensor"
    )

    @model_validator(mode="after")
    def turns(self) -> OuterConfig:
        if self.every % self.fragments:
            raise ValueError(
                f"fragments {self.fragments} does not divide every {self.every}: set every to"
                f" {-(-self.every // self.fragments) * self.fragments}"
            )
        if self.delay >= self.every // self.fragments:
            raise ValueError(
                f"delay {self.delay} is not below every / fragments, {self.every // self.fragments}, the steps from one exchange to the"
                " next: lower it"
            )
        return self

    def check(self, config: Any) -> None:
        """Raises `ValueError`, with the key to change, for what workers of a `TrainConfig` that train by themselves cannot do."""
        ones = {"parallel.zero": 0, "parallel.tensor": 1, "parallel.pipeline": 1, "parallel.context": 1}
        for key, wanted in ones.items():
            if attrgetter(key)(config) != wanted:
                raise ValueError(f"outer: a worker is one process with a whole model: set {key} to {wanted}")
        for key in ALONE:
            if attrgetter(key)(config):
                raise ValueError(
                    f"outer: workers train by themselves, on the next token or on masks: leave {key} out"
                )
        steps, precision, moe = config.schedule.steps, config.precision, config.model.moe
        if config.optimizer.state_bits != 32:
            raise ValueError(
                "outer: states of each worker are saved as numbers: set optimizer.state_bits to 32"
            )
        if precision == "fp16":
            raise ValueError("outer: workers have no loss scale in common: set precision to bf16 or fp32")
        if moe and moe.balance == "bias":
            raise ValueError(
                "outer: model.moe.balance: bias moves by the load of all workers: set it to loss or none"
            )
        rounds = steps // self.every
        if self.momentum and rounds < ROUNDS:
            raise ValueError(
                f"outer: every {self.every} leaves {rounds} exchanges, too few for momentum {self.momentum:g}: set every to"
                f" {max(1, steps // ROUNDS)} or less, or momentum to 0 and lr to 1"
            )
