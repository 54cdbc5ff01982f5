"""Sections of `report/report.json` on signals and on single documents: distributions, and the samples."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from corpusmill.schemas.manifest import Strict


class JudgingRule(Strict):
    """A rule that compares a signal with a number."""

    rule: str
    comparison: str
    threshold: float


class Distribution(Strict):
    """How the values of a signal are spread over the documents that the filter measured.

    Counts are of bins: first the values below all edges, then those from each edge to below the next, then those above.
    """

    signal: str
    log: bool = Field(description="whether the edges are logarithmic")
    edges: list[float]
    rules: list[JudgingRule] = Field(description="that judge it, in the order of judging")
    documents: list[int]
    kept: list[int] = Field(description="the same, of the documents kept in the end")
    sources: dict[str, list[int]] = Field(description="the same by source, the largest first")


class Excerpt(Strict):
    """The beginning of a document, redacted."""

    doc_id: str
    source: str
    locator: str
    value: float | None
    threshold: float | None
    detail: str | None
    text: str


class RemovedExcerpts(Strict):
    """Documents that one rule removed."""

    stage: str
    rule: str
    texts: list[Excerpt]


class NearExcerpt(Strict):
    """A document near a threshold; `others`: how many other rules of the stage it failed."""

    doc_id: str
    source: str
    locator: str
    value: float
    others: int
    text: str


class NearThreshold(JudgingRule):
    """What a rule only just removed, and what was kept though it all but failed it; the nearest first."""

    signal: str
    removed: list[NearExcerpt]
    kept: list[NearExcerpt]


class PairExcerpt(Strict):
    """A near-copy beside the document kept for it; differences are marked."""

    jaccard: float | None
    source: str
    removed: str
    kept: str
    removed_text: Any
    kept_text: Any


class TagExcerpt(Strict):
    """A replaced span in its context."""

    kind: str
    doc_id: str
    source: str
    locator: str
    before: str
    tag: str
    after: str


class Samples(Strict):
    """Texts shown, chosen by the hash of the document."""

    kept: list[Excerpt]
    removed: list[RemovedExcerpts]
    pairs: list[PairExcerpt]
    near: list[NearThreshold]
    tags: list[TagExcerpt]
