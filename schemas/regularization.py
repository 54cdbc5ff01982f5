"""What a run adds to its loss so that it generalises better (`regularization`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.parallel import ParallelConfig


class RegularizationConfig(Strict):
    """In training alone: validation and the loss that is reported are the cross entropy of unchanged inputs."""

    label_smoothing: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the target's probability that is spread evenly over the vocabulary (Szegedy et al. 2016)",
    )
    embedding_noise: float = Field(
        default=0.0,
        ge=0,
        description="alpha of NEFTune (Jain et al. 2023): uniform noise on the embeddings, up to alpha / sqrt(tokens of a row x dim); 5"
        " to 15 in the paper",
    )
    adversarial: float = Field(
        default=0.0,
        ge=0,
        description="norm of a perturbation of each row's embeddings along the gradient, under which half of the loss is computed (FGM,"
        " Miyato et al. 2017); twice the time",
    )

    @model_validator(mode="after")
    def something(self) -> RegularizationConfig:
        if not (self.label_smoothing or self.embedding_noise or self.adversarial):
            raise ValueError(
                "changes nothing: set label_smoothing, embedding_noise or adversarial, or leave regularization out"
            )
        return self

    def check(self, model: ModelConfig, parallel: ParallelConfig) -> None:
        """Raises `ValueError`, with the key to change, for what `label_smoothing` and the second pass of `adversarial` cannot be made with."""
        if self.label_smoothing and model.mtp:
            raise ValueError("label_smoothing: is of the next token alone: leave it or model.mtp out")
        if not self.adversarial:
            return
        if parallel.tensor > 1 or parallel.pipeline > 1:
            raise ValueError(
                "adversarial: needs whole rows in one process: set parallel.tensor and parallel.pipeline to 1"
            )
        if model.auxiliary:
            what = "model.mtp" if model.mtp else "model.z_loss and model.moe"
            raise ValueError(f"adversarial: would count {what} twice: leave it or them out")
