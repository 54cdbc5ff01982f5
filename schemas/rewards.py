"""What `corpusmill reward` found."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.manifest import Strict


class RewardSummary(Strict):
    """Of one call. Lines = scored + those that were refused."""

    name: str = Field(description="of the run")
    step: int
    lines: int
    scored: int
    pairs: int = Field(description="lines with a chosen and a rejected answer")
    accuracy: float | None = Field(
        description="share of pairs whose chosen answer has the higher reward; null without pairs"
    )
    margin: float | None = Field(description="mean of the chosen answer's reward less the rejected one's")
