"""The training config (one YAML file), and what a run publishes of itself: its checkpoints' manifests.

Every impossible combination is refused here, with the number to change; what depends on the number of
processes or on the shard set is refused at start-up by `train.distributed` and `train.data.plan`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from schemas.data import DataConfig
from schemas.manifest import PublishedFile, Strict

SOURCE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"


class ModelConfig(Strict):
    """A Llama-style decoder. The vocabulary comes from the shard set."""

    dim: int = Field(default=256, ge=8)
    layers: int = Field(default=4, ge=1)
    heads: int = Field(default=4, ge=1)
    kv_heads: int | None = Field(
        default=None, ge=1, description="key and value heads (GQA); null: as many as heads"
    )
    ffn_dim: int | None = Field(default=None, ge=1, description="null: 8/3 of dim, up to a multiple of 64")
    rope_theta: float = Field(default=10_000.0, gt=1)
    norm_eps: float = Field(default=1e-5, gt=0)
    tie_embeddings: bool = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    vocab_multiple: int = Field(
        default=64, ge=1, description="the vocabulary is padded up to a multiple of this"
    )

    @model_validator(mode="after")
    def shapes(self) -> ModelConfig:
        if self.dim % self.heads:
            raise ValueError(
                f"dim {self.dim} is not a multiple of heads {self.heads}: set dim to"
                f" {-(-self.dim // self.heads) * self.heads}"
            )
        if (self.dim // self.heads) % 2:
            raise ValueError(
                f"dim / heads = {self.dim // self.heads} is odd, and RoPE rotates pairs: set dim to"
                f" {self.heads * (self.dim // self.heads + 1)}"
            )
        if self.heads % self.key_value_heads:
            fit = next(n for n in range(min(self.key_value_heads, self.heads), 0, -1) if self.heads % n == 0)
            raise ValueError(
                f"heads {self.heads} is not a multiple of kv_heads {self.key_value_heads}: set kv_heads to {fit}"
            )
        return self

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def hidden(self) -> int:
        """Width of the feed-forward layer."""
        return self.ffn_dim or -(-8 * self.dim // (3 * 64)) * 64


class OptimizerConfig(Strict):
    """AdamW (Loshchilov & Hutter 2019). Weight decay is for matrices: not norms, not embeddings."""

    lr: float = Field(default=1e-3, gt=0, description="the highest learning rate")
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    grad_clip: float | None = Field(
        default=1.0, gt=0, description="norm of the gradient at most; null: no clipping"
    )

    @model_validator(mode="after")
    def moments(self) -> OptimizerConfig:
        for name, beta in zip(("first", "second"), self.betas, strict=True):
            if not 0 <= beta < 1:
                raise ValueError(f"betas: the {name} must be at least 0 and below 1, is {beta}")
        return self


class ScheduleConfig(Strict):
    """The learning rate as a function of the step alone: warm-up, then `kind`, down to `floor` x lr."""

    steps: int = Field(default=1000, ge=1)
    warmup_steps: int = Field(default=100, ge=0)
    kind: Literal["cosine", "linear", "constant", "wsd"] = "cosine"
    floor: float = Field(default=0.1, ge=0, le=1, description="share of lr at the end (not for `constant`)")
    decay_share: float = Field(default=0.2, gt=0, le=1, description="`wsd`: share of the steps that decay")

    @model_validator(mode="after")
    def lengths(self) -> ScheduleConfig:
        if self.warmup_steps >= self.steps and self.steps > 1:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} leaves nothing of steps {self.steps}: set warmup_steps to"
                f" {max(1, self.steps // 10)} or raise steps"
            )
        decay = round(self.decay_share * self.steps)
        if self.kind == "wsd" and self.warmup_steps + decay > self.steps:
            share = (self.steps - self.warmup_steps) / self.steps
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and a decay of {decay} steps exceed steps {self.steps}:"
                f" set decay_share to {share:.3g} or less"
            )
        return self


class CheckpointConfig(Strict):
    """When the state is saved; the last step always is."""

    every: int = Field(default=200, ge=1, description="steps")
    keep_last: int = Field(default=2, ge=1, description="valid checkpoints kept; an invalid one never counts")


class ValidationConfig(Strict):
    """Loss on a fixed list of sequences of each source's validation split."""

    every: int | None = Field(default=200, ge=1, description="steps; null: never")
    tokens: int = Field(default=16_384, ge=1, description="per source, at most")


class LogConfig(Strict):
    """metrics.jsonl always; TensorBoard if wanted."""

    every: int = Field(default=10, ge=1, description="steps between two lines")
    tensorboard: bool = True


class TrainConfig(Strict):
    """`corpusmill train CONFIG.yaml`: everything a run depends on."""

    name: str = Field(pattern=SOURCE_NAME, description="also the run's folder under runs/")
    output: str | None = Field(default=None, description="folder or URL of the run; default runs/<name>")
    seed: int = Field(default=0, ge=0, lt=2**63)
    data: DataConfig
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    precision: Literal["fp32", "bf16"] = "bf16"
    checkpoint: CheckpointConfig = CheckpointConfig()
    validation: ValidationConfig = ValidationConfig()
    log: LogConfig = LogConfig()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(default=None, ge=1, description="of one process; null: PyTorch's own choice")

    @property
    def output_url(self) -> str:
        return self.output or f"runs/{self.name}"


# A run may be continued with another value of these: they say where, how fast and how often, not what.
# (`data.shards` may move: what is in it is checked by the plan; so is it that stages, ramps and skips change only what
# is still to come.)
MAY_CHANGE = (
    "name", "output", "data.shards", "data.token_cache", "data.prefetch", "data.fetch", "data.micro_batch",
    "checkpoint", "validation", "log", "device", "threads", "data.stages", "data.skip", "data.sequence_ramp",
    "data.batch_ramp",
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
