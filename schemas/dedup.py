"""The parameters of `dedup`."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from corpusmill.schemas.manifest import MOST_MIB, Strict

Share = float
# What a preset sets where nothing else is given.
PRESETS: dict[str, dict[str, Any]] = {
    "code": {"ngram": 8, "similarity": 0.6},
    "short": {"shingle": "char", "ngram": 3, "similarity": 0.65},
}
ORDERS = ("source_priority", "length", "date", "doc_id")
_SIGNAL = re.compile(r"^signal:[a-z0-9_]+\.[a-z0-9_]+$")
_NUMBER = re.compile(r"^[1-9][0-9]{0,5}$")
_FIELD = re.compile(r"^metadata:[^\s:]+$")


class LineParams(Strict):
    """Lines, paragraphs or sentence windows that occur more than once in the corpus: all but one are cut."""

    unit: Literal["line", "paragraph", "sentences"] = Field(
        default="line", description="line (CCNet), paragraph (blank lines between), windows of sentences (C4)"
    )
    sentences: int = Field(default=3, ge=1, le=16, description="sentences in a window, as in C4")
    min_words: int = Field(default=3, ge=1, description="shorter units are never cut")
    min_left: int = Field(
        default=1, ge=0, description="a document left with fewer words is removed as a whole"
    )

    @model_validator(mode="after")
    def nothing_lost(self) -> LineParams:
        if self.min_left > self.min_words:  # else a document could go with the only copy of a line
            raise ValueError(f"min_left {self.min_left} exceeds min_words {self.min_words}")
        return self


class SubstringParams(Strict):
    """Runs of equal tokens in two places of the corpus (Lee et al. 2021): all but one are cut."""

    min_tokens: int = Field(default=50, ge=8, le=1000, description="shorter repeats are kept")
    min_left: int = Field(
        default=1, ge=0, description="a document left with fewer words is removed as a whole"
    )

    @model_validator(mode="after")
    def nothing_lost(self) -> SubstringParams:
        if self.min_left > self.min_tokens:  # else a document could go with the only copy of a run
            raise ValueError(f"min_left {self.min_left} exceeds min_tokens {self.min_tokens}")
        return self


class DedupParams(Strict):
    """Exact by text hash, then MinHash LSH; only pairs with exact Jaccard >= `similarity` are duplicates."""

    url: bool = Field(default=False, description="remove documents with the same URL as another")
    exact: bool = Field(default=True, description="remove copies of the same text")
    normalized: bool = Field(
        default=False, description="remove texts with the same words, ignoring case and punctuation"
    )
    minhash: bool = Field(default=True, description="remove verified near-copies")
    preset: Literal["corpusmill", "code", "short", "datatrove"] = Field(
        default="corpusmill",
        description="code: tokens of source code, names and comments normalised (ngram 8, similarity 0.6); short: characters"
        " inside words, for short texts (ngram 3, similarity 0.65); datatrove: its words, hashes and 14 x 8 bands",
    )
    similarity: Share = Field(default=0.8, gt=0, le=1, description="exact Jaccard of the shingle sets")
    recall: Share = Field(default=0.95, gt=0, lt=1, description="share of the pairs at `similarity` to find")
    containment: Share | None = Field(
        default=None,
        gt=0,
        le=1,
        description="also remove documents of which a longer one contains this share; default: off",
    )
    shingle: Literal["word", "char"] = Field(default="word", description="word or char n-grams")
    ngram: int = Field(default=5, ge=1, le=64, description="words, characters or tokens in a shingle")
    max_shingles: int = Field(
        default=1_000_000,
        ge=1_000,
        description="sign at most this many shingles per document; truncations are counted",
    )
    num_perm: int = Field(default=112, ge=8, le=1024, description="permutations, as in datasketch")
    bands: int | None = Field(
        default=None, ge=1, description="with `rows`, instead of `recall`; default: computed from it"
    )
    rows: int | None = Field(default=None, ge=1, description="permutations in a band; given with `bands`")
    seed: int = Field(default=1, ge=0, lt=2**32, description="seed of the permutations, as in datasketch")
    memory_mb: int = Field(
        default=512,
        ge=16,
        le=MOST_MIB,
        description="records that a task keeps in memory, MiB; determines the number of tasks",
    )
    scratch_bytes_per_doc: int | None = Field(
        default=None, ge=64, description="budget of intermediate files; limits the bands; default: none"
    )
    keep: str = Field(
        default="one",
        description="how many of a document and its duplicates to keep: one, none, all (only writes clusters), or a number",
    )
    keep_order: list[str] = Field(
        default=list(ORDERS),
        description="which document is kept: highest priority, longest, earliest, lowest id, or the highest"
        " signal:NAME or metadata:KEY of all; '-' before a name reverses it",
    )
    remove_only_from: list[str] | None = Field(
        default=None, description="sources that may lose documents; default: all"
    )
    max_source_loss: Share = Field(
        default=0.9,
        gt=0,
        le=1,
        description="near-copies removed from one source above this share stop the run",
    )
    max_cluster: int = Field(
        default=100_000, ge=2, description="a cluster with more different texts stops the run"
    )
    sample: int = Field(
        default=2_000, ge=0, le=5_000, description="texts compared pair by pair to measure the recall"
    )
    planted: int = Field(default=500, ge=0, description="near-copies planted to measure the recall")
    store_signatures: bool = Field(default=False, description="publish signatures/, for datasketch")
    index: str | None = Field(
        default=None,
        description="folder of a persistent index to which the documents are added; default: none",
    )
    lines: LineParams | None = Field(default=None, description="cut repeated lines; default: off")
    substrings: SubstringParams | None = Field(default=None, description="cut repeated runs; default: off")

    @model_validator(mode="before")
    @classmethod
    def fill(cls, given: Any) -> Any:
        preset = given.get("preset") if isinstance(given, dict) else None
        return {**PRESETS[preset], **given} if isinstance(preset, str) and preset in PRESETS else given

    @field_validator("keep")
    @classmethod
    def known_keep(cls, value: str) -> str:
        if value not in ("one", "none", "all") and not _NUMBER.match(value):
            raise ValueError(f"'{value}': allowed are one, none, all, or a number of 1 or more")
        return value

    @field_validator("keep_order")
    @classmethod
    def known_orders(cls, value: list[str]) -> list[str]:
        for name in value:
            bare = name.removeprefix("-")
            if bare not in ORDERS and not _SIGNAL.match(bare) and not _FIELD.match(bare):
                allowed = f"{', '.join(ORDERS)}, signal:<family>.<name>, metadata:<key>"
                raise ValueError(f"'{name}' is not a criterion; allowed: {allowed}, each with or without '-'")
        if len(set(value)) != len(value):
            raise ValueError("each criterion may be given once")
        return value

    @model_validator(mode="after")
    def consistent(self) -> DedupParams:
        if (self.bands is None) != (self.rows is None):
            raise ValueError("bands and rows are given together, or neither")
        if self.bands and self.rows and self.bands * self.rows > self.num_perm:
            raise ValueError(f"bands x rows = {self.bands * self.rows} exceeds num_perm = {self.num_perm}")
        if self.index is not None and (self.url or self.lines or self.substrings):
            raise ValueError(
                "an index stores no URLs and no texts: it cannot be used with url, lines or substrings"
            )
        if self.preset == "datatrove" and self.shingle != "word":
            raise ValueError("preset datatrove has word shingles only")
        if self.preset in PRESETS and self.shingle != PRESETS[self.preset].get("shingle", "word"):
            raise ValueError(f"preset {self.preset} has shingles of its own: leave out shingle")
        return self
