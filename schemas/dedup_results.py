"""The figures that `dedup` publishes: its plan with the estimated cost, the quality that it measured, and the list of what an
index holds.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from corpusmill.common.ids import checksum
from corpusmill.schemas.manifest import PublishedFile, Strict


class Interval(Strict):
    """A number with its 95 % interval."""

    value: float = Field(ge=0)
    low: float = Field(ge=0)
    high: float = Field(ge=0)


class EstimatedStep(Strict):
    """One step of the run. Bytes and requests are of all its tasks, `worker_bytes` of one."""

    name: str
    tasks: int
    read_bytes: float
    written_bytes: float
    gets: float = Field(description="range reads")
    puts: float
    cpu_seconds: float
    worker_bytes: float = Field(description="that its largest task holds, the process itself not counted")
    entries: float = Field(description="slices of files whose places the driver holds")
    seconds: float = Field(description="wall time on the given workers")


class Estimate(Strict):
    """A deduplication before it runs. Sums are over all steps."""

    documents: int
    text_bytes: int
    partitions: int
    workers: int
    bands: int
    rows: int
    similarity: float
    memory_mb: int
    curve: dict[str, float]
    candidates: float
    verified: float
    similar: Interval | None = Field(description="pairs at the similarity, where a pilot counted them")
    exact_removed: float
    near_removed: float
    band_ranges: int
    text_ranges: int
    steps: tuple[EstimatedStep, ...]
    tasks: int
    read_bytes: float
    shuffled_bytes: float = Field(description="intermediate files")
    output_bytes: float
    requests: float
    cpu_seconds: float
    seconds: float
    worker_bytes: float
    driver_bytes: float = Field(description="the process itself, and the three below")
    union_bytes: float = Field(description="of union-find, or the pilot")
    places_bytes: float = Field(description="of where slices lie")
    results_bytes: float = Field(description="of tasks and what they publish")
    entries: float
    not_counted: tuple[str, ...] = Field(
        description="what is asked for and has no part in any of these numbers"
    )

    @property
    def disk_bytes(self) -> float:
        """Intermediate files, which stay until the stage is finished, and the output."""
        return self.shuffled_bytes + self.output_bytes

    def step(self, name: str) -> EstimatedStep:
        """The step of that name."""
        return next(step for step in self.steps if step.name == name)


class Rate(Strict):
    """`found` of `of`, with its 95 % interval (Wilson 1927)."""

    value: float | None = Field(description="null: there was nothing to count")
    found: int
    of: int
    low: float
    high: float
    effective: float | None = Field(
        default=None, description="effective number of independent things, if less than `of`"
    )


class ExpectedRate(Rate):
    """A measured share beside the theoretical one."""

    expected: float | None


class CurvePoint(ExpectedRate):
    """A bin of a measured S-curve: pairs from `jaccard` on, of mean similarity `mean`."""

    jaccard: float
    mean: float | None


class Stratum(Strict):
    """Texts of the sample with `from` to `to` shingles, and the recall of their pairs."""

    from_: int = Field(alias="from")
    to: int
    texts: int
    recall: Rate


class Precision(Rate):
    """Removals that were checked by other means. `least`: least similarity of a removed document."""

    least: float | None
    disagree: int
    too_long: int


class PlantedMeasured(Strict):
    """The same on planted near-copies of known similarity."""

    texts: int
    recall: Rate
    lsh_recall: ExpectedRate
    curve: list[CurvePoint]


class DedupMeasured(PlantedMeasured):
    """Recall, precision and curves of a deduplication, measured on a sample of its texts."""

    strata: list[Stratum]
    planted: PlantedMeasured
    combined_curve: list[CurvePoint]
    precision: Precision


class DedupPlan(Strict):
    """`dedup/plan.json`: what a deduplication promises before it runs."""

    documents: int
    similarity: float
    bands: int
    rows: int
    permutations_used: int
    recall_at_similarity: float = Field(
        description="expected share of the pairs at `similarity` that are found"
    )
    s_curve: dict[str, float] = Field(description="similarity -> probability that a pair is found")
    band_ranges: int
    text_ranges: int
    estimate: Estimate | None = Field(description="cost and findings, as `corpusmill dedup-plan --json`")


class HotBucket(Strict):
    """A bucket of the index with many documents."""

    documents: int
    example: str = Field(description="doc_id of one, hex")


class DedupQuality(DedupPlan):
    """`dedup/quality.json`: the plan, what was found, and how well, measured on a sample and on planted copies."""

    counters: dict[str, int]
    hot_buckets: list[HotBucket]
    measured: DedupMeasured


class RecordsFile(Strict):
    """A file of records and its parts: records of part, start, size and checksum, in base64."""

    file: PublishedFile
    places: str = ""


class Indexed(Strict):
    """A partition of the corpus, and its status after the last change: which of its documents stay."""

    number: int
    name: str
    rows: int
    text_bytes: int
    xxh3: str = Field(description="of the documents as they were added")
    generation: int = Field(description="the addition that it came with")
    purged: bool = Field(default=False, description="documents of it were taken down since")
    status: RecordsFile | None = None
    before: RecordsFile | None = Field(default=None, description="the status before the last change")


class IndexFile(Strict):
    """`index.json` of an index: which partitions it holds, made with which parameters. Written last, at every change."""

    kind: Literal["corpusmill-dedup-index-v1"] = "corpusmill-dedup-index-v1"
    version: str
    params: dict[str, Any]
    bands: int
    rows: int
    band_ranges: int
    text_ranges: int
    priorities: dict[str, int]
    generation: int = 0
    last: str = Field(default="", description="what the last change was: made again, it is the same change")
    partitions: list[Indexed] = Field(default_factory=list)
    seal: str = Field(default="", description="xxh3_128 of all the rest")

    def sealed(self) -> IndexFile:
        """The same with its seal."""
        bare = self.model_copy(update={"seal": ""})
        return bare.model_copy(update={"seal": checksum(bare.model_dump_json().encode())})
