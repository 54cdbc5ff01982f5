"""What is reported of runs that continue each other and of averages of checkpoints: `exposure`, `forgetting`, `average`."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pydantic import Field

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.manifest import Strict

# A row a document of which a token was a label in any phase.
DOCUMENT_EXPOSURE = pa.schema(
    [
        ("doc_id", pa.binary(16)),
        ("source", pa.string()),  # by the name that the first phase had for it
        ("tokens", pa.int64()),  # of its text, in the blocks that were drawn from
        ("drawn", pa.int64()),  # labels that were trained on, each repeat counted
        ("times", pa.float64()),  # drawn / tokens
        ("by_phase", pa.list_(pa.int64())),  # labels that each phase was trained on
    ]
)


class PhaseExposure(Strict):
    """A run of the chain, up to where the next one left it."""

    name: str
    run: str
    step: int
    plan: str = Field(description="sha256 of what every step was made of")
    tokens: int = Field(description="trained on in it, each repeat counted")
    lr_sum: float = Field(description="of the learning rates that the schedule has for its steps")


class SourceExposure(Strict):
    """A source, by the checksum of its index: the same data under other names is one source."""

    names: list[str] = Field(description="that phases had for it")
    tokens_available: int
    tokens: list[int] = Field(description="trained on in each phase, each repeat counted")
    epochs: list[float] = Field(description="of each phase; a sequence that was drawn twice counts twice")


class Exposure(Strict):
    """What `corpusmill exposure` reports."""

    phases: list[PhaseExposure]
    sources: list[SourceExposure]


class SourceForgetting(Strict):
    """Bits per byte of one source's validation split, at the start of the newest phase and now."""

    earlier: bool = Field(description="whether an earlier phase was trained on this source")
    before: Estimate | None = Field(description="null of text without a byte")
    after: Estimate | None
    difference: Estimate | None = Field(
        description="after less before, paired by document, which are the units of its interval: above 0, it was forgotten"
    )
    p: float | None = Field(description="two-sided, of no difference")


class Forgetting(Strict):
    """What `corpusmill forgetting` reports."""

    name: str
    start: str = Field(description="folder of the run that the newest phase continued")
    start_step: int
    step: int
    sources: dict[str, SourceForgetting]
    forgotten: Estimate | None = Field(description="mean difference of the sources of earlier phases")
    gained: Estimate | None = Field(description="of the others")


AVERAGE = "average.json"


class Member(Strict):
    """A checkpoint that was averaged, or that a greedy soup tried."""

    run: str
    step: int
    weights_xxh3: str
    kept: bool = True
    bits_per_byte: Estimate | None = Field(description="mean of the sources")


class SourceAverage(Strict):
    """Bits per byte of one source's validation split. Differences are paired by document."""

    members: list[Estimate | None]
    average: Estimate | None
    ensemble: Estimate | None = Field(description="of the mean of the members' predicted probabilities")
    average_less_best: Estimate | None = Field(
        description="less that of the member with the lowest mean of sources"
    )
    ensemble_less_best: Estimate | None


class Averaged(Strict):
    """`average.json` in the folder of a model that is an average."""

    kind: Literal["corpusmill-average-v1"] = "corpusmill-average-v1"
    greedy: bool
    members: list[Member]
    best: int = Field(description="number of the member with the lowest mean of sources, from 0")
    sources: dict[str, SourceAverage]
    average: Estimate | None = Field(description="mean of the sources")
    ensemble: Estimate | None
