"""Learning from a larger model's distribution of next tokens (`distillation`), and the distributions that were stored for it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.model import ModelConfig

STORED = "logits.json"


class DistillationConfig(Strict):
    """The loss of a token is share x T^2 KL(teacher || student) of the distributions at temperature T + (1 - share) x its cross entropy
    (Hinton et al. 2015). The teacher computes in each step, in the run's own layout, or has done so before (`stored`)."""

    teacher: str = Field(
        description="folder or URL of a run, or of a model in the Hugging Face layout, with the tokenizer of the data"
    )
    model: ModelConfig | None = Field(
        default=None, description="of a teacher in the Hugging Face layout; a run has its own"
    )
    stored: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="folder or URL of what `corpusmill teacher-logits` wrote for this data; null: the teacher computes in each step",
    )
    temperature: float = Field(default=1.0, gt=0)
    share: float = Field(
        default=1.0, gt=0, le=1, description="of the divergence; the rest is the cross entropy of the labels"
    )

    def check(self, model: ModelConfig) -> None:
        """Raises `ValueError`, with the key to change, for losses of the student that a distillation does not have."""
        if model.z_loss:
            raise ValueError("distillation: has no z-loss: set model.z_loss to 0")
        if model.mtp:
            raise ValueError("distillation: has no further tokens: set model.mtp to null")


class StoreSettings(Strict):
    """What is kept of a teacher's distribution of a label."""

    kept: Literal["top", "sampled"] = Field(
        description="top: the likeliest tokens, and the probability of all others as one; sampled: draws from it, whose mean is the"
        " divergence without bias (Anshumann et al. 2025)"
    )
    count: int = Field(ge=1, description="tokens of a label")


class StoredLogits(Strict):
    """`logits.json`; beside it are `00000-<xxh3>.safetensors` and so on, of `per_file` sequences each.

    A file has `offsets` int64 [sequences + 1] of labels, and of each label `ids` [labels, count] and `log_p` float16 [labels, count] in
    nats; with `top` also `rest` float16 [labels], the logarithm of the other tokens' probability.
    """

    kind: Literal["corpusmill-logits-v1"] = "corpusmill-logits-v1"
    teacher: str = Field(description="name of the run, or folder of the model")
    weights_xxh3: str | None = Field(description="of a run's checkpoint")
    plan: str = Field(description="sha256 of the plan of the data, without skips")
    rows: int = Field(description="of the teacher's head")
    temperature: float = Field(description="of the distributions")
    seed: int = Field(description="of the draws")
    settings: StoreSettings
    sequences: int
    per_file: int


class StoreSummary(Strict):
    """What one call of `corpusmill teacher-logits` did."""

    folder: str
    about: StoredLogits
    files: int = Field(description="that were written")
    bytes: int = Field(description="of these files")
    labels: int = Field(description="whose distributions they hold")
    seconds: float
    mass: float | None = Field(
        description="top: mean probability of the tokens that are kept, of these labels; null of draws, and if no file was written"
    )
