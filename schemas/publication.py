"""`publication.json`: what `corpusmill publish` put into a folder, from which run; and the tables that go out.

It is written last: a folder without it is no publication. It names the checksum of `SHA256SUMS`, which names every other file.
"""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa
from pydantic import Field

from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.tables import FAILED_RULE

PUBLICATION: Final = "publication.json"
SUMS: Final = "SHA256SUMS"
CROISSANT: Final = "croissant.json"

# `data/<source>/<split>-<number>-of-<count>.parquet`, or `.jsonl.zst` with the same fields. What a run knows besides is private:
# `source_id` and `locator` name the raw record.
PUBLISHED_DOCUMENTS = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),  # hex
        pa.field("source", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("date", pa.string()),
        pa.field("language", pa.string()),
        pa.field("metadata", pa.string()),  # JSON object
        pa.field("text", pa.large_string(), nullable=False),
    ]
)

# `ledger/ledger-<number>-of-<count>.parquet`: one row for every record that ingest saw; no text, and nothing that names a record
# but its id.
PUBLISHED_LEDGER = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),  # hex
        pa.field("source", pa.string(), nullable=False),
        pa.field("text_bytes", pa.int64()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("rule", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("failed", pa.list_(FAILED_RULE)),
        pa.field("duplicate_of", pa.string()),  # hex
        pa.field("jaccard", pa.float64()),
        pa.field("cluster_id", pa.string()),  # hex
    ]
)

DocumentFormat = Literal["parquet", "jsonl"]


class About(Strict):
    """What a run cannot know of a publication (`--about FILE`): it goes into the data card and the Croissant metadata."""

    title: str | None = Field(default=None, description="default: the recipe's name")
    description: str | None = Field(default=None, description="a sentence or two for catalogues")
    creator: str | None = Field(default=None, description="person or organisation that publishes it")
    contact: str | None = Field(default=None, description="where to write to, also for takedowns")
    url: str | None = Field(default=None, description="web page of the data set")
    version: str | None = Field(default=None, description="of the data set, such as 1.0.0")
    date: str | None = Field(
        default=None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="of publication, YYYY-MM-DD"
    )
    license: str | None = Field(
        default=None, description="of the whole, as SPDX expression or URL; default: those of the sources"
    )
    citation: str | None = Field(default=None, description="how to cite it, such as BibTeX")


class DocumentSet(Strict):
    """The published documents of a source and split."""

    source: str
    split: str
    documents: int = Field(ge=0)
    text_bytes: int = Field(ge=0, description="UTF-8 bytes of text")
    files: list[str]


class PublishedDocuments(Strict):
    """All published documents."""

    format: DocumentFormat
    columns: list[str]
    sets: list[DocumentSet]


class TokenSet(Strict):
    """The published shards of a source and split."""

    source: str
    split: str
    documents: int = Field(ge=0)
    tokens: int = Field(ge=0)


class PublishedShards(Strict):
    """All published token shards."""

    index: str
    sets: list[TokenSet]


class PublishedLedger(Strict):
    """The cleaned ledger."""

    rows: int = Field(ge=0)
    files: list[str]


class Terms(Strict):
    """Under which terms a source's text may be used, as the recipe states them."""

    source: str
    license: str | None
    attribution: str | None
    homepage: str | None
    citation: str | None
    files: list[str] = Field(description="texts of licences")


class PublishedRun(Strict):
    """The run that a publication was made from."""

    name: str
    corpusmill: str = Field(description="version that ran it")
    record_xxh3: str = Field(description="xxh3_128 of the run's record")
    stages: dict[str, str] = Field(description="stage -> its key")


class Checksums(Strict):
    """The file of checksums, and its own."""

    path: str
    sha256: str


class Publication(Strict):
    """`publication.json`, written last."""

    kind: Literal["corpusmill-publication-v1"] = "corpusmill-publication-v1"
    key: str = Field(description="hash of all that the publication's bytes depend on")
    run: PublishedRun
    redacted: bool = Field(description="whether the run has a `redact` stage")
    searched: bool = Field(
        description="whether all files were searched for what `redact` recognised in the run, and nothing of it is left"
    )
    taken_down: int = Field(ge=0, description="documents left out because of takedowns")
    documents: PublishedDocuments | None
    shards: PublishedShards | None
    tokenizer: str | None = Field(description="path of tokenizer.json")
    ledger: PublishedLedger | None
    sources: list[Terms]
    files: int = Field(ge=0, description="named in the file of checksums")
    bytes: int = Field(ge=0, description="of these files")
    checksums: Checksums
