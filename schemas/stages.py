"""What a stage declares of itself, a stage of the user's own, and the parameters of `ingest` and `report`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator

from corpusmill.schemas.manifest import Strict

Share = float
Kind = Literal["source", "local", "global"]


@dataclass(frozen=True)
class Declaration:
    """A stage as the recipe, the runner, the command line and the docs know it.

    It annotates the stage's field of `corpusmill.schemas.recipe.Recipe`, whose name is the stage's, whose type is the
    model of its parameters, and whose place among the fields is its place in a run. The code is
    `corpusmill.pipeline.<name>.stage`, imported when the stage runs.
    """

    kind: Kind  # source: makes partitions; local: partition in, partition out; global: looks at all of them
    summary: str
    example: str = ""  # of its command; "": it has none
    reads: tuple[str, ...] = ()  # stages that must come before, whose files it reads besides the documents
    reads_all: bool = False  # whether it reads all stages before it
    folder: str = ""  # below the run's folder, where it is not the stage's name
    wants: tuple[str, str] | None = None  # a parameter without which it cannot run, and what that is


@dataclass(frozen=True)
class StageSpec:
    """A declared stage with its name and parameters."""

    name: str
    params: type[Strict]
    declared: Declaration

    @property
    def folder(self) -> str:
        """Its folder below the run's."""
        return self.declared.folder or self.name

    @property
    def chain(self) -> list[str]:
        """The stages that its command runs."""
        return list(dict.fromkeys(["ingest", *self.declared.reads, self.name]))


class CustomStage(Strict):
    """A stage of the user's own: a function on an Arrow table of documents (docs/custom-stages.md)."""

    python: str = Field(
        description="module:function; imported from the recipe's folder or the working directory"
    )
    version: str | None = Field(
        default=None,
        min_length=1,
        description="changes with the code; may be set by @corpusmill.stage instead",
    )
    name: str = Field(
        default="", description="of the stage, its folder and its rule; default: the function's"
    )
    params: dict[str, JsonValue] = Field(default={}, description="keyword arguments of the function")

    @field_validator("python")
    @classmethod
    def module_and_function(cls, value: str) -> str:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", value):
            raise ValueError(f"'{value}' must be module:function, such as my_stages:shorten")
        return value

    @field_validator("version", mode="before")
    @classmethod
    def number_or_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value  # YAML reads 1 as a number

    @field_validator("name")
    @classmethod
    def plain(cls, value: str) -> str:
        if value and not re.fullmatch(r"[a-z][a-z0-9_]*", value):
            raise ValueError(f"'{value}': a name holds small letters, digits and '_', a letter first")
        return value

    def model_post_init(self, context: Any) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.python.partition(":")[2].lower())


class IngestParams(Strict):
    """Raw files to document partitions."""

    partition_mb: float = Field(
        default=64.0, gt=0, description="text per partition, MiB; bounds a task's memory"
    )
    max_record_mb: float = Field(default=16.0, gt=0, description="a longer record is quarantined, MiB")
    html_extractor: Literal["resiliparse", "trafilatura", "all_text"] = Field(
        default="resiliparse", description="resiliparse, all_text, or trafilatura (extra `html`)"
    )
    repair_encoding: bool = Field(default=True, description="mend mojibake with ftfy; counted")
    min_chars: int = Field(default=1, ge=1, description="records with less text are quarantined as empty")


class ReportParams(Strict):
    """The HTML report and the data card."""

    samples: int = Field(default=3, ge=0, le=50, description="texts shown per rule, and of those kept")
    sample_chars: int = Field(default=600, ge=50)
    labels: str | None = Field(
        default=None,
        description="JSON of planted documents and what should become of them: reported as caught or not",
    )
    card: str | None = Field(default=None, description="file for the data card; default: beside the report")
