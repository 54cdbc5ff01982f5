"""Answers of a model that become training data: which are kept, and what became of each prompt."""

from __future__ import annotations

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict


class PseudoLabelSettings(Strict):
    """Which answers are kept. Of several to a prompt at most one is."""

    answers: int = Field(default=1, ge=1, le=256, description="that are sampled for each prompt")
    least: float | None = Field(
        default=None,
        le=0,
        description="mean log-probability of an answer's tokens, in nats, below which it is not kept",
    )
    agree: float | None = Field(
        default=None, gt=0, le=1, description="share of a prompt's answers that have to be the same text"
    )
    style: str | None = Field(
        default=None, description="a style guide (YAML), all of whose rules an answer keeps"
    )

    @model_validator(mode="after")
    def something(self) -> PseudoLabelSettings:
        if self.least is None and self.agree is None and self.style is None:
            raise ValueError(
                "every answer would be kept: give least, agree or style (least: -1000 keeps all that end by themselves)"
            )
        if self.agree is not None and self.answers < 2:
            raise ValueError("agree: compares several answers: set answers to 2 or more")
        return self


class PseudoLabels(Strict):
    """What became of the prompts. prompts = kept + removed."""

    model: str = Field(description="name of the run that answered")
    step: int
    settings: PseudoLabelSettings
    prompts: int = Field(ge=0)
    kept: int = Field(ge=0)
    removed: dict[str, int] = Field(
        description="prompts without an answer that is kept, by the reason of the likeliest one"
    )
    log_probability: float | None = Field(
        description="mean over kept answers of their tokens' mean log-probability, in nats"
    )
