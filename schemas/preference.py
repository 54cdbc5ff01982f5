"""What a run on preferences minimises (`objective`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

Loss = Literal["dpo", "ipo", "hinge", "orpo", "simpo", "kto", "reward"]
REFERENCE_FREE = ("orpo", "simpo", "reward")


class PreferenceConfig(Strict):
    """A loss of pairs of a chosen and a rejected answer, or (`kto`) of single answers that are wanted or not.

    `dpo` (Rafailov et al. 2023), `hinge` (SLiC, Zhao et al. 2023), `ipo` (Azar et al. 2023, of log-probabilities per token), `kto`
    (Ethayarajh et al. 2024): beside the model that training starts from, which stays in memory. `orpo` (Hong et al. 2024), `simpo` (Meng
    et al. 2024): without one. `reward`: a reward model (Bradley and Terry 1952; Ouyang et al. 2022), whose head is a single number.
    """

    loss: Loss = "dpo"
    beta: float = Field(
        default=0.1, gt=0, description="scale of log-probabilities; the larger, the nearer to the reference"
    )
    gamma: float = Field(default=0.5, ge=0, description="`simpo`: margin that a chosen answer should have")
    label_smoothing: float = Field(
        default=0.0,
        ge=0,
        lt=0.5,
        description="`dpo`: share of pairs that are thought to be the wrong way round",
    )
    desirable_weight: float = Field(default=1.0, gt=0, description="`kto`: of answers that are wanted")
    undesirable_weight: float = Field(default=1.0, gt=0, description="`kto`: of the others")
    centring: float = Field(
        default=0.0,
        ge=0,
        exclude_if=lambda value: value == 0,
        description="`reward`: weight of the square of the sum of a pair's rewards, which holds their mean near 0 (Eisenstein et al."
        " 2023: 0.01)",
    )

    @model_validator(mode="after")
    def used(self) -> PreferenceConfig:
        for name, losses in (
            ("gamma", ("simpo",)), ("label_smoothing", ("dpo",)), ("desirable_weight", ("kto",)),
            ("undesirable_weight", ("kto",)), ("centring", ("reward",)), ("beta", ("dpo", "ipo", "hinge", "orpo", "simpo", "kto")),
        ):  # fmt: skip
            if self.loss not in losses and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: has no effect on {self.loss}: leave it out")
        return self

    @property
    def needs_reference(self) -> bool:
        return self.loss not in REFERENCE_FREE
