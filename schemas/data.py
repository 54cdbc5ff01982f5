"""What a training run reads: sources and shares, stages, lengths and batches over time, and how blocks are fetched."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.continual import ReplayConfig
from corpusmill.schemas.conversations import ConversationConfig
from corpusmill.schemas.curriculum import CurriculumConfig
from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.masking import InfillConfig, MaskingConfig

Step = Annotated[int, Field(ge=1)]
Positive = Annotated[int, Field(ge=1)]


class Mixture(Strict):
    """Shares of the tokens, given in one of three ways; with none, sources count in proportion to their tokens."""

    weights: dict[str, float] | None = Field(
        default=None, description="source -> share of the tokens, normalised. A source left out is not read"
    )
    repeats: dict[str, float] | None = Field(
        default=None,
        description="source -> times that its tokens count, as in 'wiki 3 times, code 1.5 times': weight = tokens x"
        " repeats. A source left out is not read",
    )
    temperature: float | None = Field(
        default=None,
        ge=1,
        description="weight = tokens^(1/temperature): 1 is in proportion, larger ones favour small sources"
        " (Devlin 2018, Conneau & Lample 2019)",
    )

    @model_validator(mode="after")
    def one_way(self) -> Mixture:
        ways = {name: getattr(self, name) for name in ("weights", "repeats", "temperature")}
        given = [name for name, value in ways.items() if value]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: keep one")
        for name in ("weights", "repeats"):
            for source, weight in (ways[name] or {}).items():
                if not 0 <= weight < float("inf"):
                    raise ValueError(f"{name}.{source}: must be a number of 0 or more, is {weight}")
            if ways[name] and not sum(ways[name].values()) > 0:
                raise ValueError(f"{name}: all are 0; give at least one source a share")
        return self


class StageConfig(Mixture):
    """Another mixture from a step on. No token is lost or repeated by the change."""

    from_step: int = Field(ge=2, description="the first step (counted from 1) that takes this mixture")


class FetchConfig(Strict):
    """How blocks come from the store; none of it changes what a batch holds."""

    threads: int = Field(default=8, ge=1, le=256, description="requests under way at once, per process")
    memory_mb: float = Field(default=512.0, gt=0, description="blocks kept in memory by a process, MiB")
    deadline_s: float = Field(
        default=120.0, gt=0, description="seconds without a block after which the run stops"
    )
    attempt_s: float = Field(default=20.0, gt=0, description="seconds after which one request is given up")
    attempts: int = Field(
        default=6, ge=1, description="wrong answers for a block before it counts as damaged"
    )
    hedge: bool = Field(
        default=True, description="ask a second time for a block that takes longer than nearly all do (p99)"
    )
    cache: str | None = Field(
        default=None,
        description="local folder that keeps fetched blocks between runs; processes may share it",
    )
    cache_gb: float = Field(
        default=50.0, gt=0, description="of that folder, GiB; the least recently used go first"
    )
    bad_blocks: int = Field(
        default=4,
        ge=0,
        description="damaged blocks that a process replaces by others, each named in the log, before the run stops",
    )


class FoldConfig(Strict):
    """Documents of the train splits that a run holds out, by duplicate cluster: they are in its batches, but never trained on."""

    of: int = Field(ge=2, le=255, description="folds that the documents are dealt to")
    index: int = Field(ge=0, description="the fold that is held out, from 0")
    ledger: str | None = Field(
        default=None,
        description="ledger of the pipeline's run, which has the clusters; default: `ledger` beside the shards' folder",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="other seeds give other folds")

    @model_validator(mode="after")
    def inside(self) -> FoldConfig:
        if self.index >= self.of:
            raise ValueError(f"index {self.index}: must be below {self.of} (of)")
        return self

    def ledger_of(self, shards: str) -> str:
        """Where the ledger is, for a shard set at `shards`."""
        return self.ledger or f"{shards.rstrip('/').rpartition('/')[0]}/ledger"


class DataConfig(Mixture):
    """What is read, in which proportion, and how it is cut."""

    shards: str = Field(
        description="URL of a shard set: its folder, or the index.json in it; with conversations, their files"
    )
    conversations: ConversationConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="shards are lines of JSON to fine-tune on, .jsonl, made into rows of sequence_length",
    )
    tokenizer: str | None = Field(
        default=None,
        description="tokenizer.json for tars of text that no index describes, and for conversations",
    )
    token_cache: str | None = Field(
        default=None, description="where text shards are kept as tokens; default: <output>/tokens"
    )
    replay: ReplayConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="also read the data of an earlier run, at a share of the tokens",
    )
    stages: list[StageConfig] = Field(default=[], description="other mixtures, each from a given step")
    max_epochs: float | dict[str, float] | None = Field(
        default=None,
        description="how often any source (or: source -> times) may be read; else the plan is refused",
    )
    skip: dict[Step, Positive] = Field(
        default={}, description="step -> batches of data that are skipped before this step"
    )
    sequence_length: int = Field(default=256, ge=2, le=2**20, description="tokens in a sequence")
    sequence_ramp: dict[Step, Positive] = Field(
        default={}, description="last step -> sequence length up to it, for the steps before the full length"
    )
    global_batch: int = Field(default=64, ge=1, description="sequences in one step, over all processes")
    batch_ramp: dict[Step, Positive] = Field(
        default={}, description="last step -> global batch up to it, for the steps before the full batch"
    )
    micro_batch: int = Field(default=16, ge=1, description="sequences in one forward pass of one process")
    lanes: int | None = Field(
        default=None, ge=1,
        description="sequences over which the mixture is exact, a multiple of every batch; default: the fewest batches"
        " that make it so, within limits",
    )  # fmt: skip
    packing: Literal["windows", "best_fit"] = Field(
        default="windows",
        description="windows: consecutive tokens; best_fit: documents of a block packed so that few are cut",
    )
    fold: FoldConfig | None = Field(
        default=None, description="for cross-validation: documents that are not trained on; null: all are"
    )
    curriculum: CurriculumConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="in the first steps, easy sequences come first; null: all are shuffled",
    )
    masking: MaskingConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="hide some tokens, which are what is predicted (with model.causal: false); null: the next token is",
    )
    infill: InfillConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="fill in the middle: some documents are read with their middle last; null: none is",
    )
    cross_documents: bool = Field(default=False, description="let attention cross from document to document")
    prefetch: int = Field(default=16, ge=0, le=1024, description="batches prepared in advance")
    window_blocks: int = Field(default=2, ge=1, description="blocks whose sequences are shuffled together")
    fetch: FetchConfig = FetchConfig()

    @model_validator(mode="after")
    def batches(self) -> DataConfig:
        ramp = [("batch_ramp:", size) for size in self.batch_ramp.values()]
        for key, size in [*ramp, ("global_batch", self.global_batch)]:
            if self.micro_batch > size:
                raise ValueError(
                    f"micro_batch {self.micro_batch} exceeds {key} {size}: lower micro_batch to {size}"
                )
            if size % self.micro_batch:
                fit = next(micro for micro in range(self.micro_batch, 0, -1) if size % micro == 0)
                raise ValueError(
                    f"{key} {size} is not a multiple of micro_batch {self.micro_batch}: set micro_batch to {fit}"
                )
        return self

    @model_validator(mode="after")
    def rows(self) -> DataConfig:
        if self.conversations is None:
            return self
        for key, value, wanted in (
            ("packing", self.packing, "windows"), ("cross_documents", self.cross_documents, False),
            ("sequence_ramp", self.sequence_ramp, {}), ("fold", self.fold, None),
            ("replay", self.replay, None), ("curriculum", self.curriculum, None),
        ):  # fmt: skip
            if value != wanted:
                raise ValueError(f"{key}: conversations are packed in rows of whole ones: leave {key} out")
        return self

    @model_validator(mode="after")
    def rewritten(self) -> DataConfig:
        given = [name for name in ("masking", "infill") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError("masking and infill exclude each other: leave one of them out")
        for key, value in (("conversations", self.conversations), ("fold", self.fold)):
            if given and value is not None:
                raise ValueError(f"{given[0]}: every token of its rows is learned from: leave {key} out")
        if self.infill and self.cross_documents:
            raise ValueError("infill: rearranges documents one by one: set cross_documents to false")
        return self

    @model_validator(mode="after")
    def folds(self) -> DataConfig:
        if self.fold and self.cross_documents:
            raise ValueError(
                "fold: with cross_documents others would be trained on what follows held-out documents: set cross_documents to false"
            )
        return self

    @model_validator(mode="after")
    def times(self) -> DataConfig:
        steps = [stage.from_step for stage in self.stages]
        if steps != sorted(set(steps)):
            raise ValueError(f"stages: from_step must rise from stage to stage, is {steps}")
        lengths = [self.sequence_ramp[step] for step in sorted(self.sequence_ramp)]
        for length in lengths:
            if self.sequence_length % length:
                fit = next(n for n in range(length, 0, -1) if self.sequence_length % n == 0)
                raise ValueError(
                    f"sequence_ramp: {length} does not divide sequence_length {self.sequence_length}: set it to {fit}"
                )
        for last in sorted({*self.sequence_ramp, *self.batch_ramp, 2**62}):
            length, batch = self.length_at(last), self.batch_at(last)
            parts = self.sequence_length // length
            if batch % parts:
                raise ValueError(
                    f"sequence_ramp: at step {last} a batch of {batch} sequences of {length} is not a whole number of"
                    f" sequences of {self.sequence_length}: set the batch there to {-(-batch // parts) * parts}"
                )
            cells = batch // parts
            if self.lanes and self.lanes % cells:
                of = "" if parts == 1 else f" (a batch of {batch} sequences of {length})"
                raise ValueError(
                    f"lanes {self.lanes} is not a multiple of {cells} sequences of {self.sequence_length}{of}: set lanes"
                    f" to {-(-self.lanes // cells) * cells}"
                )
        return self

    def length_at(self, step: int) -> int:
        """Tokens in a sequence of step `step`."""
        return _ramped(self.sequence_ramp, self.sequence_length, step)

    def batch_at(self, step: int) -> int:
        """Sequences in the batch of step `step`."""
        return _ramped(self.batch_ramp, self.global_batch, step)

    def tokens(self, step: int) -> int:
        """Tokens that the steps up to this one train on."""
        total = done = 0
        for end in sorted({*self.sequence_ramp, *self.batch_ramp, step}):
            last = min(end, step)
            total += (last - done) * self.batch_at(last) * self.length_at(last)
            done = last
        return total

    def steps_for(self, tokens: int) -> int:
        """The fewest steps that train on this many tokens or more."""
        ends = [
            last for last in sorted({*self.sequence_ramp, *self.batch_ramp}) if self.tokens(last) < tokens
        ]
        done = ends[-1] if ends else 0
        return done - (self.tokens(done) - tokens) // (self.batch_at(done + 1) * self.length_at(done + 1))

    def reads(self, source: str) -> bool:
        """Whether any stage reads a source of that name."""
        named = [stage.weights or stage.repeats for stage in (self, *self.stages)]
        return any(not given or given.get(source, 0) > 0 for given in named)


def _ramped(ramp: dict[int, int], full: int, step: int) -> int:
    return next((ramp[last] for last in sorted(ramp) if step <= last), full)
