"""Learning from a larger model's distribution of next tokens (`distillation`)."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.model import ModelConfig


class DistillationConfig(Strict):
    """The loss of a token is share x T^2 KL(teacher || student) of the distributions at temperature T + (1 - share) x its cross entropy
    (Hinton et al. 2015). The teacher computes in each step, in the run's own layout."""

    teacher: str = Field(
        description="folder or URL of a run, or of a model in the Hugging Face layout, with the tokenizer of the data"
    )
    model: ModelConfig | None = Field(
        default=None, description="of a teacher in the Hugging Face layout; a run has its own"
    )
    temperature: float = Field(default=1.0, gt=0)
    share: float = Field(
        default=1.0, gt=0, le=1, description="of the divergence; the rest is the cross entropy of the labels"
    )
