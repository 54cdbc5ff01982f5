"""The recipe: which sources, which stages in which order, with which parameters. One YAML file.

Every parameter that can change a byte of the output is in here, and goes into the stage's key; what cannot
(`cluster`, `output`) does not.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from corpusmill.schemas.decontaminate import DecontaminateParams
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.redact import RedactParams
from corpusmill.schemas.shard import ShardParams
from corpusmill.schemas.split import SplitParams
from corpusmill.schemas.stages import IngestParams, ReportParams
from corpusmill.schemas.tokenizer import TokenizerParams

StageName = Literal[
    "ingest", "filter", "dedup", "decontaminate", "redact", "split", "tokenizer", "shard", "report"
]
STAGES: tuple[StageName, ...] = get_args(StageName)
DEFAULT = tuple(name for name in STAGES if name != "decontaminate")  # which needs files to look for
LOCAL = (
    "ingest",
    "filter",
    "dedup",
    "decontaminate",
    "redact",
)  # partition in, partition of the same name out
Format = Literal[
    "auto", "jsonl", "parquet", "text", "markdown", "warc", "wet", "html", "mediawiki", "documents"
]


class Source(Strict):
    """One named origin of text. `paths` are files, folders, globs or URLs; relative ones start at the
    working directory."""

    paths: list[str] = Field(min_length=1)
    format: Format = Field(default="auto", description="`auto` goes by the file's name and first bytes")
    text_column: str = Field(default="text", description="JSONL and Parquet: the field that holds the text")
    id_column: str | None = Field(default=None, description="the field kept as `source_id`; `id` if present")
    url_column: str | None = None
    date_column: str | None = None
    encoding: str | None = Field(default=None, description="of text files; detected when absent")
    priority: int = Field(default=0, description="duplicates survive in the source with the highest priority")
    license: str | None = Field(default=None, description="SPDX name, for the data card")
    attribution: str | None = None
    description: str | None = None


class Cluster(Strict):
    """Where the work runs. Nothing in here changes a byte of the output."""

    workers: int | None = Field(
        default=None, ge=0, description="processes; 0 works in this one; default: cores"
    )
    memory_limit: str = Field(default="auto", description="per worker, such as 4GB")
    retries: int = Field(default=2, ge=0, description="times a task is tried again after its worker died")


class Recipe(Strict):
    """A pipeline: sources in, shards and an account of them out."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="also the run's folder under runs/")
    output: str | None = Field(default=None, description="folder or URL of the run; default runs/<name>")
    seed: int = Field(default=0, ge=0, lt=2**63)
    sources: dict[str, Source] = Field(min_length=1)
    stages: list[StageName] = Field(
        default=list(DEFAULT),
        min_length=1,
        description="absent: all, decontaminate only where `decontaminate.against` names files",
    )
    ingest: IngestParams = IngestParams()
    filter: FilterParams = FilterParams()
    dedup: DedupParams = DedupParams()
    decontaminate: DecontaminateParams = DecontaminateParams()
    redact: RedactParams = RedactParams()
    split: SplitParams = SplitParams()
    tokenizer: TokenizerParams = TokenizerParams()
    shard: ShardParams = ShardParams()
    report: ReportParams = ReportParams()
    cluster: Cluster = Cluster()

    @model_validator(mode="before")
    @classmethod
    def all_stages(cls, config: Any) -> Any:
        """A recipe that names evaluation files and no stages has `decontaminate` among them."""
        if isinstance(config, dict) and "stages" not in config:
            section = config.get("decontaminate")
            if isinstance(section, dict) and section.get("against"):
                return {**config, "stages": list(STAGES)}
        return config

    @model_validator(mode="after")
    def order(self) -> Recipe:
        if len(set(self.stages)) != len(self.stages):
            raise ValueError("stages: each stage may appear once")
        if self.stages[0] != "ingest":
            raise ValueError("stages: must begin with ingest")
        needs: dict[str, tuple[str, ...]] = {"shard": ("split", "tokenizer"), "tokenizer": ("split",)}
        for position, stage in enumerate(self.stages):
            for earlier in needs.get(stage, ()):
                if earlier not in self.stages[:position]:
                    raise ValueError(f"stages: {stage} needs {earlier} before it")
        local = [self.stages.index(s) for s in self.stages if s in LOCAL]
        if local != list(range(len(local))):
            raise ValueError(f"stages: {', '.join(LOCAL)} come before split, tokenizer, shard, report")
        if "decontaminate" in self.stages and not self.decontaminate.against:
            raise ValueError("decontaminate.against: missing: the evaluation files to look for")
        for source in self.sources:
            if not source.replace("_", "").replace("-", "").isalnum() or not source.isascii():
                raise ValueError(f"sources: '{source}': a name holds letters, digits, '_' and '-' only")
        return self

    @property
    def output_url(self) -> str:
        return self.output or f"runs/{self.name}"

    def params_of(self, stage: str) -> dict[str, Any]:
        """The parameters of one stage as JSON, for its key and manifest."""
        params: Strict = getattr(self, stage)
        return params.model_dump(mode="json")
