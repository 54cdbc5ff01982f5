"""The training config (one YAML file), and what a run publishes of itself: its checkpoints' manifests.

Every impossible combination is refused here, with the number to change; what depends on the number of
processes or on the shard set is refused at start-up by `train.distributed` and `train.data.plan`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from schemas.data import DataConfig
from schemas.manifest import PublishedFile, Strict
from schemas.model import ModelConfig
from schemas.optim import OptimizerConfig, ScheduleConfig

SOURCE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"


class CheckpointConfig(Strict):
    """When the state is saved; the last step always is."""

    every: int = Field(default=200, ge=1, description="steps")
    keep_last: int = Field(default=2, ge=1, description="valid checkpoints kept; an invalid one never counts")


class ValidationConfig(Strict):
    """Loss on a fixed list of sequences of each source's validation split."""

    every: int | None = Field(default=200, ge=1, description="steps; null: never")
    tokens: int = Field(default=16_384, ge=1, description="per source, at most")


class LogConfig(Strict):
    """metrics.jsonl always; the rest if wanted."""

    every: int = Field(default=10, ge=1, description="steps between two lines")
    tensorboard: bool = True
    wandb: bool = Field(
        default=False, description="Weights & Biases, if it is installed; offline without an API key"
    )
    dashboard: bool = Field(
        default=False, description="keep dashboard.html in the output up to date during the run"
    )


class TrainConfig(Strict):
    """`corpusmill train CONFIG.yaml`: everything a run depends on."""

    name: str = Field(pattern=SOURCE_NAME, description="also the run's folder under runs/")
    output: str | None = Field(default=None, description="folder or URL of the run; default runs/<name>")
    seed: int = Field(default=0, ge=0, lt=2**63)
    data: DataConfig
    model: ModelConfig = ModelConfig()
    init_from: str | None = Field(
        default=None, description="folder or URL of a model in the Hugging Face layout to start from"
    )
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    precision: Literal["fp32", "bf16"] = "bf16"
    checkpoint: CheckpointConfig = CheckpointConfig()
    validation: ValidationConfig = ValidationConfig()
    log: LogConfig = LogConfig()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(default=None, ge=1, description="of one process; null: PyTorch's own choice")

    @model_validator(mode="after")
    def lengths(self) -> TrainConfig:
        try:
            schedule = self.schedule.counted(self.data)
        except ValueError as error:
            raise ValueError(f"schedule: {error}") from None
        if schedule != self.schedule:  # frozen for everybody else
            object.__setattr__(self, "schedule", schedule)
        return self

    @model_validator(mode="after")
    def positions(self) -> TrainConfig:
        length, most = self.data.sequence_length, self.model.max_positions
        if self.model.positions == "learned" and length > most:
            raise ValueError(
                f"data.sequence_length {length} exceeds model.max_positions {most}: set model.max_positions to {length}"
            )
        return self

    @property
    def output_url(self) -> str:
        return self.output or f"runs/{self.name}"


# A run may be continued with another value of these: they say where, how fast and how often, not what.
# (`data.shards` may move: what is in it is checked by the plan; so is it that stages, ramps and skips change only what
# is still to come.)
MAY_CHANGE = (
    "name", "output", "data.shards", "data.token_cache", "data.prefetch", "data.fetch", "data.micro_batch",
    "checkpoint", "validation", "log", "device", "threads", "data.stages", "data.skip", "data.sequence_ramp",
    "data.batch_ramp", "model.loss_chunk",
)  # fmt: skip


def changed(before: dict[str, Any], after: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys that differ between two dumped configs, as `key: old -> new`; those of MAY_CHANGE left out."""
    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        name = f"{prefix}{key}"
        old, new = before.get(key), after.get(key)
        if old == new or name in MAY_CHANGE:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            lines += changed(old, new, f"{name}.")
        else:
            lines.append(f"{name}: {old} -> {new}")
    return lines


class CheckpointManifest(Strict):
    """`checkpoints/step-<n>/manifest.json`, written last: its presence, with the right hashes, means done."""

    kind: Literal["corpusmill-checkpoint-v1"] = "corpusmill-checkpoint-v1"
    step: int = Field(ge=0)
    files: list[PublishedFile]
    tensors: dict[str, int] = Field(description="file -> tensors in it; a reader that finds fewer refuses")
