"""Learning from rewards of a model's own answers (`reinforcement`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

if TYPE_CHECKING:
    from corpusmill.schemas.guard import GuardConfig
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.parallel import ParallelConfig

KINDS = ("answer", "matches", "style")


class RewardRule(Strict):
    """A reward that a program can check, from 0 to 1; of exactly one kind."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    weight: float = Field(default=1.0, description="in the sum of all rules; negative: a penalty")
    answer: str | None = Field(
        default=None,
        description="regular expression (Python): 1 if its last match in the answer (its group, if it has one) is that in the"
        " reference answer of the line",
    )
    matches: str | None = Field(
        default=None, description="regular expression: 1 if the whole answer matches it"
    )
    style: str | None = Field(
        default=None, description="file or URL of a style guide: the share of its rules that the answer keeps"
    )

    @model_validator(mode="after")
    def one_kind(self) -> RewardRule:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"rule {self.name}: has {' and '.join(given) or 'no check'}: give one of {', '.join(KINDS)}"
            )
        pattern = self.answer or self.matches
        if pattern is not None:
            try:
                groups = re.compile(pattern).groups
            except re.error as error:
                raise ValueError(f"rule {self.name}: {given[0]}: is no regular expression: {error}") from None
            if self.answer is not None and groups > 1:
                raise ValueError(f"rule {self.name}: answer: has {groups} groups: leave one at most")
        return self


class ReinforcementConfig(Strict):
    """The policy gradient of rewards: for each prompt of a batch `group` answers are sampled from the present weights, and those above
    the group's mean become likelier; one step for each sample.

    `grpo` (Shao et al. 2024): the mean over an answer's tokens, then over answers. `dr_grpo` (Liu et al. 2025): the sum over an answer's
    tokens / `max_tokens`. `dapo` (Yu et al. 2025): the mean over the tokens of all answers. `rloo` (Ahmadian et al. 2024): the sum over an
    answer's tokens, each answer against the mean of the others.
    """

    loss: Literal["grpo", "dr_grpo", "dapo", "rloo"] = "grpo"
    rewards: list[RewardRule] = Field(min_length=1)
    group: int = Field(default=8, ge=2, description="answers to each prompt")
    max_tokens: int = Field(
        default=64, ge=1, description="of an answer; what is left of data.sequence_length, if that is less"
    )
    scale_rewards: bool = Field(
        default=True, description="divide by the standard deviation of the group's rewards; not of rloo"
    )
    beta: float = Field(
        default=0.0,
        ge=0,
        description="weight of the divergence from the model in init_from: of each token (Schulman's k3), for rloo taken from the reward;"
        " 0: without that model",
    )
    rows: int = Field(default=32, ge=1, description="answers that are generated at a time")

    @model_validator(mode="after")
    def names(self) -> ReinforcementConfig:
        named = [rule.name for rule in self.rewards]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ValueError(f"rewards: {twice[0]} is named twice: rename one")
        return self

    def check(
        self, model: ModelConfig, layout: ParallelConfig, guard: GuardConfig, started: bool,
    ) -> None:  # fmt: skip
        """Raises `ValueError`, with the key to change, for what it does not go with. `started`: whether the run reads conversations and starts
        from a model."""
        if not started:
            raise ValueError(
                "reinforcement: a model that was tuned answers prompts of conversations: set data.conversations and init_from"
            )
        if guard.enabled:
            raise ValueError(
                "guard.enabled: the guard takes a gradient for a spike that is far above the median, which is 0 where most groups of answers"
                " have equal rewards: set it to false"
            )
        if model.auxiliary:
            raise ValueError(f"reinforcement: has no auxiliary losses: leave model.{model.auxiliary} out")
        if layout.zero or layout.tensor > 1 or layout.pipeline > 1:
            raise ValueError(
                "reinforcement: each process generates with the whole model: set parallel.zero to 0, parallel.tensor and"
                " parallel.pipeline to 1"
            )
