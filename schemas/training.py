"""The training config (one YAML file).

Every impossible combination is refused here, with the number to change; what depends on the number of
processes or on the shard set is refused at start-up by `corpusmill.train.parallel.mesh` and `corpusmill.train.data.plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.adapter import AdapterConfig
from corpusmill.schemas.continual import BranchConfig, StartConfig
from corpusmill.schemas.data import DataConfig
from corpusmill.schemas.distillation import DistillationConfig
from corpusmill.schemas.guard import GuardConfig
from corpusmill.schemas.log import LogConfig
from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.masking import check_sides
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig, ScheduleConfig
from corpusmill.schemas.outer import OuterConfig
from corpusmill.schemas.parallel import LossScaleConfig, MemoryConfig, ParallelConfig, Precision
from corpusmill.schemas.preference import PreferenceConfig
from corpusmill.schemas.regularization import RegularizationConfig
from corpusmill.schemas.reinforcement import ReinforcementConfig
from corpusmill.schemas.validation import EvaluationConfig, ValidationConfig

SOURCE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"


class CheckpointConfig(Strict):
    """When the state is saved; the last step always is."""

    every: int = Field(default=200, ge=1, description="steps")
    keep_last: int = Field(default=2, ge=1, description="valid checkpoints kept; an invalid one never counts")
    keep_every: int | None = Field(
        default=None,
        ge=1,
        description="steps, a multiple of every: checkpoints at these steps are kept permanently",
    )
    asynchronous: bool = Field(default=True, description="training continues while the files are written")

    @model_validator(mode="after")
    def kept(self) -> CheckpointConfig:
        if self.keep_every and self.keep_every % self.every:
            raise ValueError(f"keep_every {self.keep_every} is not a multiple of every {self.every}")
        return self


class WatchConfig(Strict):
    """How the processes of a run watch each other."""

    timeout: float = Field(
        default=600.0,
        gt=0,
        description="seconds that a process waits for another one before all of them end, to be started again",
    )
    straggler: float | None = Field(
        default=1.5,
        gt=1,
        description="a process that computes this many times longer than the median is named; null: none is",
    )


# Keys that a run may be continued with another value of if it says so (`may_change`): the next step reads them again.
OnRequest = Literal[
    "optimizer.lr", "optimizer.muon_lr", "optimizer.weight_decay", "optimizer.betas", "optimizer.eps",
    "optimizer.grad_clip", "optimizer.grad_clip_value", "optimizer.momentum", "schedule.floor", "model.dropout", "model.z_loss", "model.mtp_weight",
]  # fmt: skip


class TrainConfig(Strict):
    """`corpusmill train CONFIG.yaml`: everything a run depends on."""

    name: str = Field(pattern=SOURCE_NAME, description="also the run's folder under runs/")
    output: str | None = Field(default=None, description="folder or URL of the run; default runs/<name>")
    seed: int = Field(default=0, ge=0, lt=2**63)
    data: DataConfig
    model: ModelConfig = ModelConfig()
    init_from: str | StartConfig | None = Field(
        default=None,
        description="folder or URL of a run, or of a model in the Hugging Face layout, to start from; or with keys",
    )
    branch: BranchConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="continue another run's checkpoint with another schedule, or other data.stages; null: a run of its own",
    )
    objective: PreferenceConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="a loss of preferences, whose lines have chosen and rejected answers, or a label; null: the next token",
    )
    distillation: DistillationConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="learn from a teacher's distribution; null: not",
    )
    reinforcement: ReinforcementConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="learn from rewards of the model's own answers; null: not",
    )
    regularization: RegularizationConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="label smoothing, noise on embeddings, adversarial embeddings; null: none",
    )
    adapter: AdapterConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="train LoRA, rsLoRA or DoRA on the weights of init_from, which stay as they are",
    )
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    precision: Precision = Field(
        default="bf16",
        description="of matrix products and attention; auto: bf16 where the GPU or CPU computes in it, else fp32, and after a"
        " restart what the run began with",
    )
    tf32: bool = Field(
        default=True,
        description="on CUDA, products of float32 matrices round their factors to 10 bits of mantissa (TF32), up to 8 times"
        " as fast; false: full float32",
    )
    loss_scale: LossScaleConfig = LossScaleConfig()
    memory: MemoryConfig = MemoryConfig()
    compile: bool | None = Field(default=None, description="torch.compile each layer; null: on CUDA")
    parallel: ParallelConfig = ParallelConfig()
    outer: OuterConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="low-communication training: each process trains by itself, and exchanges weights every so many steps; null: not",
    )
    guard: GuardConfig = GuardConfig()
    watch: WatchConfig = WatchConfig()
    stop_after: int | None = Field(
        default=None,
        ge=1,
        description="step after which this process saves and stops; the schedule does not change",
    )
    may_change: list[OnRequest] = Field(
        default=[], description="keys that this start changes in a run that has begun, such as optimizer.lr"
    )
    checkpoint: CheckpointConfig = CheckpointConfig()
    validation: ValidationConfig = ValidationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    log: LogConfig = LogConfig()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(
        default=None, ge=1, description="threads of one process; null: PyTorch's own choice"
    )

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
    def branched(self) -> TrainConfig:
        if self.branch is not None and self.branch.step >= self.schedule.steps:
            raise ValueError(
                f"branch.step {self.branch.step} leaves no step of schedule.steps {self.schedule.steps}"
            )
        return self

    @model_validator(mode="after")
    def positions(self) -> TrainConfig:
        length, most = self.data.sequence_length, self.model.max_positions
        if self.model.positions == "learned" and length > most:
            raise ValueError(
                f"data.sequence_length {length} exceeds model.max_positions {most}: set model.max_positions to {length}"
            )
        return self

    @model_validator(mode="after")
    def sides(self) -> TrainConfig:
        others = [name for name in ("objective", "distillation", "reinforcement") if getattr(self, name)]
        others += ["adapter.kind"] if self.adapter is not None and self.adapter.virtual else []
        check_sides(self.model.causal, self.data.masking, others)
        return self

    @model_validator(mode="after")
    def one_loss(self) -> TrainConfig:
        sections = ("objective", "distillation", "regularization", "reinforcement")
        given = [name for name in sections if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{given[1]} and {given[0]} exclude each other: leave one of them out")
        return self

    @model_validator(mode="after")
    def preferences(self) -> TrainConfig:
        if self.objective is None:
            if self.model.reward_head:
                raise ValueError("model.reward_head: set objective.loss to reward, or leave it out")
            return self
        if self.data.conversations is None or self.init_from is None:
            missing = "data.conversations" if self.data.conversations is None else "init_from"
            raise ValueError(
                f"objective: preferences are lines of answers to a model that was tuned: set {missing}"
            )
        if self.model.reward_head != (self.objective.loss == "reward"):
            raise ValueError(
                "model.reward_head: goes with objective.loss reward alone: set it to"
                f" {str(self.objective.loss == 'reward').lower()}"
            )
        if self.model.reward_head and (self.adapter is not None or self.evaluation.tasks):
            key = "adapter" if self.adapter is not None else "evaluation.tasks"
            raise ValueError(f"{key}: a reward model has none: leave it out")
        if self.model.auxiliary:
            key = f"model.{self.model.auxiliary}"
            raise ValueError(
                f"objective: {self.objective.loss} differentiates no sum of the losses of tokens, to which {key} adds: leave {key} out"
            )
        return self

    @model_validator(mode="after")
    def taught(self) -> TrainConfig:
        if self.model.logit_softcap and (
            self.distillation or (self.regularization and self.regularization.label_smoothing)
        ):
            key = "distillation" if self.distillation else "regularization.label_smoothing"
            raise ValueError(
                f"{key}: computes with logits as they are, not capped: leave it or model.logit_softcap out"
            )
        if self.distillation is None:
            return self
        self.distillation.check(self.model)
        return self

    @model_validator(mode="after")
    def reinforced(self) -> TrainConfig:
        if self.reinforcement is not None:
            started = self.data.conversations is not None and self.init_from is not None
            self.reinforcement.check(self.model, self.parallel, self.guard, started)
        return self

    @model_validator(mode="after")
    def regularized(self) -> TrainConfig:
        if self.regularization is None:
            return self
        try:
            self.regularization.check(self.model, self.parallel)
        except ValueError as error:
            raise ValueError(f"regularization.{error}") from None
        return self

    @model_validator(mode="after")
    def adapters(self) -> TrainConfig:
        if self.adapter is not None:
            try:
                self.adapter.check(self.model, self.precision, self.start, self.parallel.tensor)
            except ValueError as error:
                raise ValueError(f"adapter: {error}") from None
            if self.adapter.virtual:
                others = (self.objective, self.distillation, self.reinforcement)
                self.adapter.check_virtual(self.data, self.parallel.pipeline, any(others))
        return self

    @model_validator(mode="after")
    def transferred(self) -> TrainConfig:
        if self.model.mup_base_width and self.optimizer.kind not in ("adamw", "lion", "muon"):
            raise ValueError(
                f"model.mup_base_width: its rates are those of adamw, lion and muon, and optimizer.kind is {self.optimizer.kind}: set that"
                " to one of them, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def warmup(self) -> TrainConfig:
        first = self.schedule.warmup_from
        if first is not None and first > self.optimizer.lr:
            raise ValueError(
                f"schedule.warmup_from {first:g} exceeds optimizer.lr {self.optimizer.lr:g}, up to which the rate rises: lower it"
            )
        return self

    @model_validator(mode="after")
    def layout(self) -> TrainConfig:
        try:
            sections = ("objective", "distillation", "regularization", "reinforcement")
            self.parallel.check(self.model, self.data, [key for key in sections if getattr(self, key)])
        except ValueError as error:
            raise ValueError(f"parallel: {error}") from None
        return self

    @model_validator(mode="after")
    def workers(self) -> TrainConfig:
        if self.outer is not None:
            self.outer.check(self)
        return self

    @model_validator(mode="after")
    def precisions(self) -> TrainConfig:
        if self.precision != "fp16" and self.loss_scale != LossScaleConfig():
            raise ValueError(
                f"loss_scale: has no effect with precision {self.precision}: leave it out, or set precision to fp16"
            )
        lowest = self.guard.loss_scale_floor
        if self.precision == "fp16" and self.guard.enabled and self.loss_scale.initial <= lowest:
            raise ValueError(
                f"loss_scale.initial {self.loss_scale.initial:g} is too low for the guard: set it above"
                f" guard.loss_scale_floor {lowest:g}, or lower that"
            )
        if self.memory.checkpointing == "budget" and self.compile is False:
            raise ValueError("memory.checkpointing: budget is kept by torch.compile: set compile to true")
        if self.memory.offload == "optimizer" and not self.parallel.zero:
            raise ValueError(
                "memory.offload: optimizer moves what ZeRO shards, and parallel.zero is 0: set it to 1, 2 or 3, or"
                " memory.offload to activations"
            )
        parallel = self.parallel
        if self.memory.auto_micro_batch and (parallel.zero or parallel.tensor > 1 or parallel.pipeline > 1):
            raise ValueError(
                "memory.auto_micro_batch: processes of this layout wait for each other within a micro-batch, and would"
                " for ever if one ran out of memory: set it to false and data.micro_batch to what `estimate` gives"
            )
        return self

    @property
    def random_rows(self) -> bool:
        """Whether training passes draw numbers by row: of dropout, or of noise on embeddings."""
        noise = self.regularization is not None and self.regularization.embedding_noise > 0
        return self.model.dropout > 0 or noise

    @property
    def start(self) -> StartConfig | None:
        """`init_from` in full."""
        return StartConfig(run=self.init_from) if isinstance(self.init_from, str) else self.init_from

    @property
    def output_url(self) -> str:
        return self.output or f"runs/{self.name}"

    @property
    def last_step(self) -> int:
        """The step that this process trains up to."""
        return min(self.schedule.steps, self.stop_after or self.schedule.steps)


# A run may be continued with another value of these: they say where, how fast and how often, not what.
# (`data.shards` may move: what is in it is checked by the plan; so is it that stages, ramps and skips change only what
# is still to come.)
MAY_CHANGE = (
    "name", "output", "branch.run", "data.shards", "data.replay.run", "data.token_cache", "data.prefetch", "data.fetch", "data.micro_batch",
    "checkpoint", "validation", "evaluation", "log", "device", "threads", "data.stages", "data.skip", "data.sequence_ramp",
    "data.batch_ramp", "model.loss_chunk", "parallel", "loss_scale", "memory", "compile", "tf32", "guard", "watch",
    "stop_after", "may_change",
)  # fmt: skip


def changed(
    before: dict[str, Any], after: dict[str, Any], prefix: str = "", allowed: Sequence[str] = ()
) -> list[str]:
    """Dotted keys that differ between two dumped configs, as `key: old -> new`; left out are those of MAY_CHANGE,
    `allowed`, and `may_change` of the second."""
    lines: list[str] = []
    allowed = (*allowed, *after.get("may_change", ()))
    for key in dict.fromkeys([*before, *after]):
        name = f"{prefix}{key}"
        old, new = before.get(key), after.get(key)
        if old == new or name in MAY_CHANGE or name in allowed:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            lines += changed(old, new, f"{name}.", allowed)
        else:
            lines.append(f"{name}: {old} -> {new}")
    return lines


class RunData(Strict):
    """`data.json` of a training run: its shard set, found again from any directory and after both were moved together, and
    what generation and export need of it."""

    kind: Literal["corpusmill-run-data-v1"] = "corpusmill-run-data-v1"
    shards: str = Field(
        description="the shard set: relative to the run's folder if both are local, else its URL"
    )
    vocab_size: int = Field(gt=0)
    eos_id: int = Field(ge=0)
    replay: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="the run of data.replay, in the same way as the shard set",
    )
