"""`report/report.json`: every figure of the report, section by section.

Figures whose names are data (sources, rules, kinds of personal data) are mappings.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from corpusmill.schemas.augment import Augmented
from corpusmill.schemas.decontamination import ContaminationSection
from corpusmill.schemas.dedup_results import CurvePoint, ExpectedRate, HotBucket, Precision, Rate, Stratum
from corpusmill.schemas.manifest import Counts, SourceLost, Strict
from corpusmill.schemas.report_samples import Distribution, Samples
from corpusmill.schemas.shards import ShardSet
from corpusmill.schemas.split import Similarity, SplitSummary
from corpusmill.schemas.tokenizer import TokenizerStats


class Totals(Strict):
    """The run in numbers; null where the stage did not run."""

    records: int
    kept: int
    removed: int
    quarantined: int
    raw_bytes: int
    text_bytes: int
    kept_bytes: int
    tokens: int | None
    train_tokens: int | None
    duplicates: int | None
    pii_spans: int | None
    sources: int


class RuleDocuments(Strict):
    """Documents that a rule removed or quarantined."""

    rule: str
    documents: int


class FlowRow(Counts):
    """A stage: documents and bytes in and kept, and why the others went."""

    stage: str
    why: list[RuleDocuments]


class SourceRow(Strict):
    """A source of the recipe, through all stages."""

    source: str
    records: int
    kept: int
    removed: int
    quarantined: int
    removed_by_stage: dict[str, int]
    raw_bytes: int | None
    text_bytes: int
    kept_bytes: int
    tokens: int | None
    pii_spans: int
    license: str | None
    attribution: str | None
    description: str | None


class Failures(Strict):
    """Amounts of text that failed a rule. `first`: removed by it; `alone`: failed no other rule of the stage."""

    first: int
    failed: int
    alone: int


class RuleRow(Failures):
    """A rule that removed documents, in documents, bytes of text as ingested, and tokens."""

    stage: str
    rule: str
    bytes: Failures
    tokens: Failures | None
    sources: dict[str, int]


class Overlap(Strict):
    """`counts[i][j]`: documents that failed both rule i and rule j."""

    rules: list[str]
    counts: list[list[int]]


class CutRow(Strict):
    """Spans that a rule on lines cut out of kept documents, by source."""

    rule: str
    spans: int
    characters: int
    sources: dict[str, int]


class Amounts(Strict):
    """For each threshold of the grid: how much of `of` fails, and how much of that fails no other rule."""

    of: int
    failed: list[int]
    marginal: list[int]


class ThresholdCurve(Strict):
    """What a rule would remove with other thresholds."""

    rule: str
    signal: str
    comparison: str
    threshold: float
    log: bool = Field(description="whether the grid is logarithmic")
    grid: list[float]
    documents: Amounts
    bytes: Amounts
    tokens: Amounts | None


class SourceWarning(Strict):
    """What is seldom meant: a source that delivered nothing, of which nothing is left, or of which one stage took most."""

    kind: Literal["nothing", "emptied", "stage"]
    source: str
    stage: str | None = Field(description="that took most of it")
    documents: int = Field(description="that were lost, `of` so many; of `stage`, in it alone")
    of: int
    rule: str | None = Field(description="that took most of them in the stage")
    by_rule: int
    message: str


class PlannedFigure(Strict):
    """A figure of the plan beside the actual one."""

    what: str
    unit: str
    expected: float
    actual: float | None


class SourceLoss(Strict):
    """Documents that a source had and lost to `dedup`; `near`: as near-copies."""

    source: str
    documents: int
    removed: int | None
    near: int


class ClusterSizes(Strict):
    """Clusters of `from` to `to` documents."""

    from_: int = Field(alias="from")
    to: int | None
    clusters: int
    documents: int


class SourceDocuments(Strict):
    """Documents of one source."""

    source: str
    documents: int


class LargestCluster(Strict):
    """One of the clusters with the most documents. `jaccard`: least similarity of one to its survivor."""

    cluster: str
    kept: int | None
    jaccard: float | None
    sources: list[SourceDocuments]
    documents: int


class KindSpans(Strict):
    """Spans of one kind, by source."""

    kind: str
    spans: int
    sources: dict[str, int]


class DedupCuts(Strict):
    """Repeated lines and substrings that were cut out of documents."""

    spans: int
    documents: int
    kinds: list[KindSpans]


class Duplicates(Strict):
    """The section on `dedup`; null where the stage measured nothing."""

    removed: int
    exact: int
    near: int
    rules: dict[str, int]
    similarity: float | None
    promised: float | None = Field(description="recall that was asked for at `similarity`")
    bands: int | None
    rows: int | None
    candidates: int | None
    verified: int | None
    clusters: int | None
    largest_cluster: int | None
    largest_bucket: int | None
    recall_expected: float | None
    recall: Rate | None
    lsh_recall: ExpectedRate | None
    planted_recall: Rate | None
    planted_lsh_recall: ExpectedRate | None
    precision: Precision | None
    sampled_texts: int | None
    planted_texts: int | None
    strata: list[Stratum]
    s_curve: list[tuple[float, float]] = Field(
        description="Jaccard similarity, probability of being a candidate"
    )
    s_curve_measured: list[CurvePoint]
    s_curve_planted: list[CurvePoint]
    planned: list[PlannedFigure]
    losses: list[SourceLoss]
    max_source_loss: float | None
    cluster_sizes: list[ClusterSizes] | None
    largest_clusters: list[LargestCluster] | None
    hot_buckets: list[HotBucket]
    cuts: DedupCuts | None
    jaccard: list[int] = Field(description="removed near-copies by bins of their similarity")


class KindCount(Strict):
    """Spans of one kind of personal data."""

    kind: str
    spans: int


class Pii(Strict):
    """Spans that `redact` replaced."""

    spans: int
    documents: int
    replacement: str | None
    kinds: list[KindCount]
    sources: list[dict[str, str | int]] = Field(description="`source`, and spans by kind")


class LanguageRow(Strict):
    """Documents of a language, as the filter identified it."""

    language: str
    documents: int | None
    kept: int
    kept_bytes: int


class Lengths(Strict):
    """Documents per power of two of their bytes as ingested: all, and those kept in the end."""

    from_bytes: list[int]
    documents: list[int]
    kept: list[int]


class QuarantineExample(Strict):
    """A record that could not be read."""

    doc_id: str
    source: str
    locator: str
    detail: str | None


class QuarantineRow(Strict):
    """Records that were quarantined for one reason."""

    stage: str
    rule: str
    records: int
    examples: list[QuarantineExample]


class MissedLabel(Strict):
    """A planted document of which something else became."""

    id: str
    outcome: str
    rule: str | None


class PlantedRow(Strict):
    """A kind of planted documents: how many became what the label file expects."""

    kind: str
    expected: str
    planted: int
    caught: int
    elsewhere: dict[str, int] = Field(description="stage -> documents that it removed before")
    missed: list[MissedLabel]


class StageVersion(Strict):
    """A stage that ran."""

    stage: str
    version: str
    key: str


class Reproduction(Strict):
    """What makes the run again."""

    corpusmill: str
    recipe: dict[str, Any] = Field(description="without defaults")
    stages: list[StageVersion]
    revisions: dict[str, str] = Field(
        default={},
        description="data set of the Hugging Face Hub with its revision -> the commit that was read; left out if there is none",
    )


class Report(Strict):
    """`report/report.json`. Sections of stages that did not run are null."""

    kind: Literal["corpusmill-report-v1"]
    name: str
    totals: Totals
    alarms: list[SourceLost]
    warnings: list[SourceWarning]
    flow: list[FlowRow]
    sources: list[SourceRow]
    rules: list[RuleRow]
    overlap: Overlap | None
    cuts: list[CutRow]
    curves: list[ThresholdCurve]
    distributions: list[Distribution]
    tokens_measured_on: str | None
    duplicates: Duplicates | None
    contamination: ContaminationSection | None
    pii: Pii | None
    languages: list[LanguageRow] | None
    lengths: Lengths
    quarantine: list[QuarantineRow]
    split: SplitSummary | None
    similarity: Similarity | None
    tokenizer: TokenizerStats | None
    shards: ShardSet | None
    augmented: Augmented | None = Field(default=None, exclude_if=lambda value: value is None)
    planted: list[PlantedRow] | None
    counters: dict[str, dict[str, int]]
    reproduce: Reproduction
    samples: Samples
