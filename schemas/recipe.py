"""The recipe: which sources, which stages in which order, with which parameters. One YAML file.

Every parameter that can change a byte of the output is in here, and goes into the stage's key; what cannot
(`cluster`, `output`) does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from corpusmill.common.errors import nearest
from corpusmill.schemas.augment import AugmentParams
from corpusmill.schemas.conversations import ConversationsParams
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.shards import ShardParams
from corpusmill.schemas.sources import Source
from corpusmill.schemas.split import SplitParams
from corpusmill.schemas.stages import (
    CustomStage,
    Declaration,
    DecontaminateParams,
    IngestParams,
    RedactParams,
    ReportParams,
    StageSpec,
)
from corpusmill.schemas.tokenizer import TokenizerParams


class Cluster(Strict):
    """Where the work runs. Nothing in here changes a byte of the output."""

    workers: int | None = Field(
        default=None,
        ge=0,
        description="processes; 0 works in this one; default: 0 up to 16 MB of text, else cores",
    )
    memory_limit: str = Field(default="auto", description="per worker, such as 4GB; 0: no limit")
    retries: int = Field(
        default=2,
        ge=0,
        description="retries of a task after its worker died; a cluster by address has its own number",
    )
    patience: float = Field(
        default=600,
        gt=0,
        le=7 * 86_400,
        description="seconds to wait for a scheduler that was lost, or for a worker where none is left (without --scheduler at"
        " most 120)",
    )
    import_from: list[str] = Field(
        default=[],
        description="folders of your own stages' modules; default: the recipe's and the working directory",
    )

    @field_validator("memory_limit")
    @classmethod
    def bytes_or_auto(cls, value: str) -> str:
        if not re.fullmatch(r"auto|\d{1,15}(\.\d{1,6})? ?([kMGT]i?)?B?", value, re.IGNORECASE):
            raise ValueError(
                f"'{value[:40]}' is no amount of memory (allowed: such as 4GB, 512MiB; auto; 0 for no limit)"
            )
        return value


def _known(name: str) -> str:
    if name not in STAGES:
        allowed = ", ".join(f"'{known}'" for known in STAGES)
        raise ValueError(f"'{name}' is not allowed{nearest(name, STAGES)} (allowed: {allowed})")
    return name


class _Names:
    """The names of stages in the JSON Schema."""

    @staticmethod
    def __get_pydantic_json_schema__(schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "enum": list(STAGES)}


# Tags in brackets are no part of a key (`corpusmill.common.config`).
Entry = Annotated[
    Annotated[str, AfterValidator(_known), _Names, Tag("[name]")] | Annotated[CustomStage, Tag("[python]")],
    Discriminator(lambda value: "[name]" if isinstance(value, str) else "[python]"),
]


Of = Literal["texts", "conversations"]
Retain = Literal["all", "none"] | Annotated[int, Field(ge=1)]


class Recipe(Strict):
    """A pipeline: sources in, shards and an account of them out."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
        max_length=100,
        description="also the run's folder under runs/",
    )
    output: str | None = Field(default=None, description="folder or URL of the run; default runs/<name>")
    seed: int = Field(default=0, ge=0, lt=2**63)
    sources: dict[str, Source] = Field(min_length=1)
    stages: list[Entry] = Field(
        default_factory=lambda: list[Entry](DEFAULT),
        min_length=1,
        description="default: all, decontaminate only where `decontaminate.against` names files; an entry may be a"
        " stage of your own: {python: module:function, version: ...}",
    )
    # The stages, in the order of a run.
    ingest: Annotated[
        IngestParams,
        Declaration(
            "source", "Raw files to document partitions.", "corpusmill ingest crawl/*.warc.gz out/ingested"
        ),
    ] = IngestParams()
    filter: Annotated[
        FilterParams,
        Declaration(
            "local",
            "Measure signals, judge rules, keep what passes.",
            "corpusmill filter docs.jsonl.gz out/filtered --rules gopher --rules c4",
        ),
    ] = FilterParams()
    dedup: Annotated[
        DedupParams,
        Declaration(
            "local",
            "Remove exact and verified near-duplicates.",
            "corpusmill dedup docs/*.parquet out/deduped --similarity 0.8 --text-column content",
        ),
    ] = DedupParams()
    decontaminate: Annotated[
        DecontaminateParams,
        Declaration(
            "local",
            "Remove what holds items of evaluation sets.",
            "corpusmill decontaminate docs.jsonl out/clean --against evals/",
            wants=("against", "the evaluation files to look for"),
        ),
    ] = DecontaminateParams()
    redact: Annotated[
        RedactParams,
        Declaration(
            "local",
            "Replace personal data and secrets.",
            "corpusmill redact mail.jsonl out/redacted --kinds email --kinds phone",
        ),
    ] = RedactParams()
    split: Annotated[
        SplitParams, Declaration("global", "Choose the validation documents, duplicates together.")
    ] = SplitParams()
    tokenizer: Annotated[
        TokenizerParams,
        Declaration(
            "global",
            "Train a byte-level tokenizer: BPE, Unigram or WordPiece.",
            "corpusmill tokenizer docs.jsonl out/tokenizer --vocab-size 32000",
            reads=("split",),
            of="texts",
        ),
    ] = TokenizerParams()
    augment: Annotated[
        AugmentParams,
        Declaration(
            "global",
            "Make perturbed or rewritten copies.",
            reads=("split",),
            wants=("copies", "how copies are made"),
            of="texts",
        ),
        Field(exclude_if=lambda value: value == AugmentParams()),
    ] = AugmentParams()
    shard: Annotated[
        ShardParams,
        Declaration(
            "global",
            "Write WebDataset token shards.",
            "corpusmill shard docs.jsonl out/shards --tokenizer out/tokenizer",
            reads=("split", "tokenizer"),
            may_read=("augment",),
            folder="shards",
            of="texts",
        ),
    ] = ShardParams()
    conversations: Annotated[
        ConversationsParams,
        Declaration(
            "global",
            "Write conversations as JSON Lines.",
            reads=("split",),
            of="conversations",
        ),
        Field(exclude_if=lambda value: value == ConversationsParams()),
    ] = ConversationsParams()
    report: Annotated[
        ReportParams, Declaration("global", "Report and data card of the run.", reads_all=True)
    ] = ReportParams()
    cluster: Cluster = Cluster()
    retain: Retain = Field(
        default="all",
        description="text of the local stages before the last: `all` keeps it, `none` deletes it when the run is finished, a"
        " number does so after as many days (at the next run, or by `corpusmill expire`); what changes later starts from the"
        " raw input",
    )

    @model_validator(mode="before")
    @classmethod
    def all_stages(cls, config: Any) -> Any:
        """A recipe that gives what a stage wants, and names no stages, has that stage among them; one of conversations has the
        stages for these."""
        if isinstance(config, dict) and "stages" not in config:
            wanting = [
                name
                for name, spec in STAGES.items()
                if spec.declared.wants and _given(config.get(name), spec.declared.wants[0])
            ]
            kind: Of = "conversations" if _conversations(config.get("sources")) else "texts"
            if wanting or kind == "conversations":
                return {**config, "stages": [*default_stages(kind, wanting)]}
        return config

    @model_validator(mode="after")
    def order(self) -> Recipe:
        names = self.stage_names
        for name, own in self.custom.items():
            if name in _TAKEN:
                raise ValueError(
                    f"stages: {own.python}: the name '{name}' is taken; give it a `name` of its own"
                )
        if len(set(names)) != len(names):
            raise ValueError("stages: each stage may appear once")
        if names[0] != "ingest":
            raise ValueError("stages: must begin with ingest")
        for position, stage in enumerate(names):
            declared = STAGES[stage].declared if stage in STAGES else None
            for earlier in declared.reads if declared else ():
                if earlier not in names[:position]:
                    raise ValueError(f"stages: {stage} needs {earlier} before it")
            for earlier in declared.may_read if declared else ():
                if earlier in names[position:]:
                    raise ValueError(f"stages: {earlier} must come before {stage}")
        local = [names.index(name) for name in self.local]
        if local != list(range(len(local))):
            after = [name for name in STAGES if name not in LOCAL]
            raise ValueError(f"stages: {', '.join([*LOCAL, *self.custom])} come before {', '.join(after)}")
        for name in names:
            wants = STAGES[name].declared.wants if name in STAGES else None
            if wants and not getattr(getattr(self, name), wants[0]):
                raise ValueError(f"{name}.{wants[0]}: missing: {wants[1]}")
        for one in self.augment.copies:
            for source in one.sources or ():
                if source not in self.sources:
                    near = nearest(source, self.sources)
                    raise ValueError(f"augment.copies: {one.by}: '{source}' is not a source{near}")
        for source in self.sources:
            if not source.replace("_", "").replace("-", "").isalnum() or not source.isascii():
                raise ValueError(f"sources: '{source}': a name may contain only letters, digits, '_' and '-'")
        _check_conversations(self)
        return self

    @property
    def of_conversations(self) -> bool:
        """Whether its sources are conversations: all are, or none is."""
        return any(source.conversations for source in self.sources.values())

    @property
    def output_url(self) -> str:
        """Where the run is."""
        return self.output or f"runs/{self.name}"

    @property
    def stage_names(self) -> list[str]:
        """The names of its stages, in order."""
        return [stage if isinstance(stage, str) else stage.name for stage in self.stages]

    @property
    def custom(self) -> dict[str, CustomStage]:
        """The stages of the user's own, by name."""
        return {stage.name: stage for stage in self.stages if isinstance(stage, CustomStage)}

    @property
    def local(self) -> list[str]:
        """The names of the stages that take partitions to partitions, ingest the first."""
        return [name for name in self.stage_names if is_local(name)]

    def importing_from(self, *folders: str) -> Recipe:
        """The recipe with these folders for the modules of its own stages and functions, if it has any and names no folders."""
        own = self.custom or any(one.python for one in self.augment.copies)
        if not own or self.cluster.import_from:
            return self
        cluster = self.cluster.model_copy(update={"import_from": list(dict.fromkeys(folders))})
        return self.model_copy(update={"cluster": cluster})

    def params_of(self, stage: str) -> dict[str, Any]:
        """The parameters of one stage as JSON, for its key and manifest."""
        if stage in self.custom:
            return self.custom[stage].model_dump(mode="json", include={"python", "params"})
        params: Strict = getattr(self, stage)
        return params.model_dump(mode="json")


def _check_conversations(recipe: Recipe) -> None:
    """Raises `ValueError` where sources of conversations meet others, or what would cut their turns."""
    of = {name for name, source in recipe.sources.items() if source.conversations}
    if of and (others := set(recipe.sources) - of):
        raise ValueError(
            f"sources: {min(of)} is of conversations, {min(others)} is not; give each kind a recipe of its own"
        )
    kind = "conversations" if of else "texts"
    for stage in recipe.stage_names:
        if stage in STAGES and STAGES[stage].declared.of not in ("any", kind):
            instead = ", ".join(name for name, spec in STAGES.items() if spec.declared.of == kind)
            raise ValueError(f"stages: {stage} does not work on {kind} (allowed here instead: {instead})")
    cutting = {
        "filter.cut_lines": recipe.filter.cut_lines,
        "dedup.lines": recipe.dedup.lines is not None,
        "dedup.substrings": recipe.dedup.substrings is not None,
        "decontaminate.action": recipe.decontaminate.action == "cut",
    }
    if of and (wrong := [name for name, cuts in cutting.items() if cuts]):
        raise ValueError(
            f"{wrong[0]}: would cut conversations in the middle of a turn; leave it out, or remove them whole"
        )


def _conversations(sources: Any) -> bool:
    """Whether sources, as a recipe gives them, are of conversations."""
    given = sources.values() if isinstance(sources, dict) else ()
    return any(
        one.get("conversations") is True if isinstance(one, dict) else getattr(one, "conversations", False)
        for one in given
    )


def _given(section: Any, key: str) -> bool:
    return bool(section.get(key)) if isinstance(section, dict) else False


def _declared() -> dict[str, StageSpec]:
    found = {}
    for name, field in Recipe.model_fields.items():
        for declared in field.metadata:
            if isinstance(declared, Declaration):
                assert isinstance(field.annotation, type) and issubclass(field.annotation, Strict)
                found[name] = StageSpec(name, field.annotation, declared)
    return found


STAGES: dict[str, StageSpec] = _declared()
LOCAL = tuple(name for name, spec in STAGES.items() if spec.declared.kind != "global")


def default_stages(kind: Of, wanting: Collection[str] = ()) -> tuple[str, ...]:
    """The stages of a recipe that names none: those for its sources, which `kind` are, that need nothing or are `wanting`."""
    return tuple(
        name
        for name, spec in STAGES.items()
        if spec.declared.of in ("any", kind) and (spec.declared.wants is None or name in wanting)
    )


DEFAULT: tuple[str, ...] = default_stages("texts")
FOLDERS = {name: spec.folder for name, spec in STAGES.items() if spec.folder != name}
LEDGER = "ledger"  # the runner adds it after the last local stage
REPORT = "report"
# Names that folders of a run have already, or of a stage.
_TAKEN = {
    *STAGES,
    *FOLDERS.values(),
    LEDGER,
    "before",
    "documents",
    "decisions",
    "signals",
    "parts",
    "units",
    "scratch",
}


def is_local(stage: str) -> bool:
    """Whether a stage takes partitions to partitions: ingest, those declared as local, and a user's own."""
    return stage in LOCAL or (stage not in STAGES and stage != LEDGER)
