"""What a training run measures of its model beside the training: loss on held-out text, and tasks."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.manifest import Strict


class ValidationConfig(Strict):
    """Loss on a fixed list of sequences of each source's validation split."""

    every: int | None = Field(default=200, ge=1, description="steps; null: never")
    tokens: int = Field(default=16_384, ge=1, description="per source, at most")
    patience: int | None = Field(
        default=None,
        ge=1,
        exclude_if=lambda value: value is None,
        description="the run ends after so many validations in a row without a lower mean; the best one's checkpoint is kept; null: never",
    )
    min_delta: float = Field(
        default=0.0,
        ge=0,
        exclude_if=lambda value: value == 0,
        description="nats by which a mean must be lower to count",
    )


class EvaluationConfig(Strict):
    """Tasks that are scored during the run, as `corpusmill evaluate --tasks` scores them afterwards."""

    every: int | None = Field(default=1000, ge=1, description="steps; null: never")
    tasks: list[str] = Field(default=[], description="names of shipped tasks, or YAML files")
    data: dict[str, str | list[str]] = Field(default={}, description="files of a task's data, by its name")
    folder: str | None = Field(default=None, description="where files of the tasks' names are looked for")
    limit: int = Field(default=500, ge=20, description="items of a task, spread evenly over its data")
    budget: float = Field(
        default=0.02,
        gt=0,
        le=1,
        description="share of the training's time; the first time, so many items are left out as exceed it",
    )
