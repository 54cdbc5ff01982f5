"""The JSON documents of a run's folder besides manifests, shards and those of `dedup`, `decontaminate` and `report`: the record of
the run and of its input files, and the figures of `split` and `tokenizer`.

Each model names its file. Figures whose names are data (sources, languages, rules) are mappings.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from corpusmill.schemas.manifest import Strict

Figures = dict[str, Any]


class RecordedStage(Strict):
    """A finished stage of a run."""

    key: str = Field(description="of its manifest")
    folder: str = Field(description="below the run's folder")


class RunRecord(Strict):
    """`manifest.json` of a run, `run.json` of a stage's command: written after the last stage."""

    kind: Literal["corpusmill-run-v1"] = "corpusmill-run-v1"
    corpusmill: str = Field(description="version that ran it; part of no key")
    recipe: dict[str, Any] = Field(description="a Recipe, without `cluster` and `output`")
    stages: dict[str, RecordedStage] = Field(description="in the order of the run")


class RunInputs(Strict):
    """`inputs.json`: the raw files, so that those whose size and change tag are known are not read again."""

    files: dict[str, tuple[int, str, str]] = Field(
        description="<source>/<path> -> bytes, change tag, xxh3_128 of the bytes"
    )
    made_in: str = Field(
        default="",
        description="directory that relative paths of the recipe start from, relative to the run's folder, so that both may"
        ' move together; "" if it is not known or not needed',
    )


class UnitManifest(Strict):
    """`ingest/units/<number>.json`: the partitions that a unit of raw input became; written after the last of them."""

    key: str
    partitions: list[str]


class SplitCounts(Strict):
    """One side of a source. `groups`: duplicate clusters, and documents without copies."""

    docs: int
    bytes: int
    groups: int


class SplitSides(Strict):
    """Both sides of a source."""

    train: SplitCounts
    validation: SplitCounts


class SplitSummary(Strict):
    """`split/split.json`: what was chosen, and what should be known of it."""

    by: Literal["cluster", "domain"]
    sources: dict[str, SplitSides]
    wanted_bytes: dict[str, int | float] = Field(description="source -> bytes of validation wanted")
    largest_component: Figures | None = Field(
        description="`by: domain`: the largest group that is never parted"
    )
    notes: list[str]


class Measured(Strict):
    """A measure of similarity over the validation documents that were compared."""

    max: float
    above: int = Field(description="documents at or above the threshold")
    quantiles: dict[str, float]


class NearestPair(Strict):
    """A validation document and the most similar document of train."""

    validation: str = Field(description="doc_id, hex")
    validation_source: str
    train: str = Field(description="doc_id, hex")
    train_source: str
    jaccard: float
    inside: float = Field(description="share of the validation document's shingles that are in the other")


class SourceSimilarity(Strict):
    """The validation documents of one source against all of train."""

    validation_documents: int
    compared: int
    jaccard: Measured | None = None
    inside: Measured | None = None
    worst: list[NearestPair]


class Similarity(Strict):
    """`split/similarity.json`: how similar validation is to train."""

    kind: Literal["corpusmill-similarity-v1"]
    shingle: Figures = Field(description="kind, ngram, preset")
    threshold: float
    deduplicated: bool = Field(description="whether near-copies were removed before")
    validation_documents: int
    compared: int
    compared_bytes: int
    without_words: int
    jaccard: Measured | None = None
    inside: Measured | None = None
    sources: dict[str, SourceSimilarity]
    worst: list[NearestPair]
    histogram: dict[str, list[float]] = Field(description="`from`, and documents by `jaccard` and `inside`")
    sentence: str


class TokenizerStats(Strict):
    """`tokenizer/stats.json`: the tokenizer measured on the validation documents (or, of a source without any, on train)."""

    vocab_size: int
    special_tokens: int
    eos_token: str
    eos_id: int
    merged_tokens: int
    sources: dict[str, Figures] = Field(
        description="source -> docs, words, chars, bytes, tokens and their rates"
    )
    languages: dict[str, Figures]
    scripts: dict[str, int] = Field(description="script -> tokens of the vocabulary")
    round_trip: Figures = Field(description="documents encoded and decoded again; `changed`: of another text")
    longest_tokens: list[str]
    repetitions: Figures
    unused: dict[str, int] = Field(
        description="tokens of the vocabulary that did not occur, by text looked at"
    )
    unused_tokens: int
    unused_longest: list[str]
    origins: Figures = Field(description="merges that come from repeated lines and from the tags of `redact`")
    trained_on: Figures
