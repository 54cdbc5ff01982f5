"""The parameters of `split`, and the figures that it publishes: what was chosen, and how similar validation is to train."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import MOST_MIB, Strict
from corpusmill.schemas.stages import Share

MIB = 1 << 20


class Target(NamedTuple):
    """What validation of one source should hold: a share of its bytes, or `size` bytes where that is not None; so
    many groups at least; `only` one side."""

    share: float
    size: int | None
    min_documents: int
    only: Literal["train", "validation"] | None

    def wanted(self, total: int) -> float:
        """Bytes of validation wanted of a source of `total` bytes."""
        return self.share * total if self.size is None else float(self.size)


class SourceSplit(Strict):
    """What differs for one source. A size given here takes the place of the one for all sources."""

    only: Literal["train", "validation"] | None = Field(
        default=None, description="train: no validation from this source; validation: no training on it"
    )
    validation_share: Share | None = Field(default=None, ge=0, lt=1, description="of the source's text bytes")
    validation_mb: float | None = Field(
        default=None, ge=0, le=MOST_MIB, description="text, instead of a share, MiB"
    )
    validation_tokens: int | None = Field(default=None, ge=0, description="tokens, instead of a share")
    bytes_per_token: float | None = Field(default=None, gt=0, description="of this source")
    min_documents: int | None = Field(default=None, ge=0, description="validation documents, at least")

    @model_validator(mode="after")
    def one_size(self) -> SourceSplit:
        given = [name for name in _SIZES if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)}: one of {', '.join(_SIZES)} is allowed; remove the others"
            )
        if self.only and given:
            raise ValueError(f"only: {self.only} leaves no choice of {given[0]}; remove one of them")
        return self


_SIZES = ("validation_share", "validation_mb", "validation_tokens")


class SplitParams(Strict):
    """Validation split, by duplicate cluster, so that no near-copy of it is trained on."""

    validation_share: Share = Field(default=0.02, ge=0, lt=1, description="of each source's text bytes")
    validation_mb: float | None = Field(
        default=None, ge=0, le=MOST_MIB, description="text of each source, MiB; replaces the share"
    )
    validation_tokens: int | None = Field(
        default=None,
        ge=0,
        description="tokens of each source, by `bytes_per_token`; replaces the share",
    )
    bytes_per_token: float = Field(
        default=4.0, gt=0, description="for `validation_tokens`: the tokenizer is trained after the split"
    )
    min_documents: int = Field(default=1, ge=0, description="validation documents per source, at least")
    by: Literal["cluster", "domain"] = Field(
        default="cluster",
        description="what is kept together: duplicate clusters; domain: also the documents of one host",
    )
    per_source: dict[str, SourceSplit] = Field(
        default={}, description="source -> what differs for it: only, validation_share, validation_mb, ..."
    )
    similarity_mb: float = Field(
        default=16.0,
        ge=0,
        le=MOST_MIB,
        description="validation text compared with all of train, MiB; above that a sample by hash; 0: none",
    )

    @model_validator(mode="after")
    def one_size(self) -> SplitParams:
        if self.validation_mb is not None and self.validation_tokens is not None:
            raise ValueError("validation_mb and validation_tokens: one of them is allowed; remove the other")
        return self

    def target(self, source: str) -> Target:
        """What is wanted of a source: its own parameters before those of all sources."""
        own = self.per_source.get(source, SourceSplit())
        least = self.min_documents if own.min_documents is None else own.min_documents
        rate = own.bytes_per_token or self.bytes_per_token
        if own.only:
            return Target(0.0, None, 0, own.only)
        if own.validation_share is not None:
            return Target(own.validation_share, None, least, None)
        mb, tokens = own.validation_mb, own.validation_tokens
        if mb is None and tokens is None:
            mb, tokens = self.validation_mb, self.validation_tokens
        if mb is not None:
            return Target(0.0, round(mb * MIB), least, None)
        if tokens is not None:
            return Target(0.0, round(tokens * rate), least, None)
        return Target(self.validation_share, None, least, None)


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
    largest_component: dict[str, Any] | None = Field(
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
    shingle: dict[str, Any] = Field(description="kind, ngram, preset")
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
