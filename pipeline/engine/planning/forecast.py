"""What a stage says of itself before it runs: `Work`, a row of tasks with what they read, write, ask for and hold, and the
`Flow` of documents that it leaves. Pure arithmetic on expected amounts; `estimate.py` makes time and cost of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from corpusmill.common.traffic import PAGE
from corpusmill.pipeline.engine.planning.constants import Constants


class Shape(NamedTuple):
    """The raw input, by the sizes and formats of its files."""

    input_bytes: float  # as stored
    text_bytes: float
    files: float
    units: float
    partitions: float


@dataclass(frozen=True)
class Flow:
    """Documents on their way through a run, where a stage finds them."""

    documents: float
    text_bytes: float
    shape: Shape
    records: float  # at ingest
    sources: int
    workers: int
    object_store: bool
    copies: float  # other documents with the same text that one has, mean
    duplicates: float  # and near-duplicates
    local: tuple[str, ...] = ()  # local stages so far
    in_memory: bool = False  # the stage before it has just made them in the same task
    clusters: float = 0.0  # of duplicates, of which a document stays
    validation: float = 0.0  # documents of it

    @property
    def partitions(self) -> float:
        return self.shape.partitions

    @property
    def megabytes(self) -> float:
        """Of text."""
        return self.text_bytes / 1e6

    @property
    def partition_bytes(self) -> float:
        """Text of a partition."""
        return self.text_bytes / max(1.0, self.partitions)

    def kept(self, documents: float, text_bytes: float, stage: str) -> Flow:
        """What a local stage leaves."""
        return replace(
            self, documents=documents, text_bytes=text_bytes, local=(*self.local, stage), in_memory=True
        )


@dataclass(frozen=True)
class Work:
    """A step of a stage. Bytes and requests are of all its tasks, `worker_bytes` and `driver_bytes` peaks of a process.

    `units` are priced by the stage's constants. `kept_bytes` stay when the stage is done, the rest of `written_bytes` is
    deleted then. A step on `one_core` runs its tasks one after the other.
    """

    name: str
    tasks: float
    units: Mapping[str, float] = field(default_factory=dict)
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    kept_bytes: float = 0.0
    gets: float = 0.0
    puts: float = 0.0
    lists: float = 0.0
    worker_bytes: float = 0.0
    driver_bytes: float = 0.0
    one_core: bool = False
    cpu_seconds: float = 0.0  # besides that of the units
    seconds: float | None = None  # of wall time, if the stage knows better


class Forecast(NamedTuple):
    """Of one stage: its steps in order, and the documents after it."""

    works: Sequence[Work]
    flow: Flow


def local(stage: str, flow: Flow, known: Constants, files: int = 2) -> Forecast:
    """A stage that takes each partition by itself, with so many tables a partition: it looks for a finished one, reads the
    documents unless they are at hand, writes the tables and a manifest; the driver lists them, and holds the manifest."""
    own = known.of(stage)
    count = flow.partitions
    documents, text = flow.documents * own.kept_documents, flow.text_bytes * own.kept
    written = text * known.stored + flow.documents * own.row_bytes
    work = Work(
        stage, count, {"mb": flow.megabytes}, written_bytes=written, kept_bytes=written,
        read_bytes=0.0 if flow.in_memory else flow.text_bytes * known.stored,
        gets=count * (1 if flow.in_memory else 2), puts=count * (files + 1) + 1,
        worker_bytes=own.base_bytes + own.held * flow.partition_bytes,
        driver_bytes=count * (known.manifest_bytes + known.task_bytes),
    )  # fmt: skip
    return Forecast([work, manifests(flow, known, files)], flow.kept(documents, text, stage))


def manifests(flow: Flow, known: Constants, files: int) -> Work:
    """The driver's own part in a local stage: the listing of what is there, before and after, and the manifests read."""
    count = flow.partitions
    return Work(
        "manifests", 1, gets=count, lists=2 * math.ceil(count * (files + 1) / PAGE), one_core=True,
        driver_bytes=count * known.manifest_bytes,
    )  # fmt: skip


def over_partitions(
    stage: str, name: str, flow: Flow, known: Constants, passes: float = 1.0, **more: float
) -> Work:
    """A step of a global stage whose tasks each read the documents of a partition, `passes` times in all; `more` are
    amounts that come on top of these."""
    own, count = known.of(stage), flow.partitions * passes
    amounts = {
        "read_bytes": flow.text_bytes * known.stored * passes,
        "gets": count,
        "worker_bytes": own.base_bytes + own.held * flow.partition_bytes,
        "driver_bytes": flow.partitions * known.task_bytes,
    }
    for key, amount in more.items():
        amounts[key] = amounts.get(key, 0.0) + amount
    return Work(name, count, **amounts)  # type: ignore[arg-type]
