"""What plans are made of besides the input: constants of machine and code, measured by `python -m bench plan` and kept in
`measured.json`; and where data lie, which is assumed."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from pydantic import Field

from corpusmill.common.storage import IN_FLIGHT
from corpusmill.schemas.manifest import Strict

FILE = "measured.json"
ALONE = 4  # reads of a task that wait for each other: its marker, what it works on
TOKEN_BYTES = 66  # of a token in tokenizer.json


class Store(Strict):
    """Where partitions and intermediate files lie, as one worker sees it."""

    request_seconds: float = Field(ge=0, description="until the first byte of a read or the end of a write")
    bytes_per_second: float = Field(gt=0)
    at_once: int = Field(default=1, ge=1, description="reads of a task that wait together")


# Assumed, not measured: an object store in the workers' own region, and a local disk.
OBJECT_STORE = Store(request_seconds=0.03, bytes_per_second=1e8, at_once=IN_FLIGHT)
LOCAL = Store(request_seconds=1e-4, bytes_per_second=1e9)


class StageConstants(Strict):
    """Of one stage."""

    seconds: dict[str, float] = Field(
        default={}, description="unit -> CPU seconds for one of it: mb of text that comes in, process, ..."
    )
    kept: float = Field(
        default=1.0, ge=0, description="share of the text that stays, in the corpus of the bench"
    )
    kept_documents: float = Field(default=1.0, ge=0)
    row_bytes: float = Field(
        default=0.0, ge=0, description="written for each document that comes in, besides its text"
    )
    base_bytes: float = Field(default=0.0, ge=0, description="memory of a worker with a partition of no size")
    held: float = Field(default=0.0, ge=0, description="more of it, for each byte of text in a partition")
    driver_base: float = Field(
        default=0.0,
        ge=0,
        description="memory of the driver, besides what the stage's plan has for its numbers",
    )
    driver_held: float = Field(
        default=0.0, ge=0, description="more of it, for each byte of text that it has (tokenizer: the sample)"
    )


class Constants(Strict):
    """All of them."""

    machine: str
    bytes_per_document: float = Field(gt=0, description="mean of the corpus of the bench")
    stored: float = Field(gt=0, description="bytes of Parquet for each byte of text")
    bytes_per_token: float = Field(gt=0)
    manifest_bytes: float = Field(
        ge=0, description="that the driver holds for a partition and stage of a group"
    )
    task_bytes: float = Field(ge=0, description="for a task, until it is done")
    slice_bytes: float = Field(ge=0, description="for a slice between the two phases of shard, at most")
    block_bytes: float = Field(ge=0, description="for a block of tokens in the index")
    row_bytes: float = Field(ge=0, description="for a row that split lists, at most")
    survey_bytes: float = Field(ge=0, description="for a partition that the report surveys")
    dispatch_seconds: float = Field(ge=0, description="of the driver, for each task")
    stages: dict[str, StageConstants]

    def of(self, stage: str) -> StageConstants:
        """Of a stage; of one that was not measured (a user's own) nothing is known."""
        return self.stages.get(stage, StageConstants())


@lru_cache(maxsize=1)
def measured() -> Constants:
    """The constants in the package."""
    return Constants.model_validate_json((files("corpusmill.pipeline.engine.planning") / FILE).read_bytes())


def path() -> Path:
    """Where the bench writes them."""
    return Path(__file__).with_name(FILE)
