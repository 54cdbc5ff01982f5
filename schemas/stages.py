"""The parameters of every stage. Defaults are what a newcomer should run with; each has its reason."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.manifest import Strict

Share = float


class IngestParams(Strict):
    """Raw files to document partitions."""

    partition_mb: float = Field(
        default=64.0, gt=0, description="text per partition, MiB; bounds a task's memory"
    )
    max_record_mb: float = Field(default=16.0, gt=0, description="a longer record is quarantined, MiB")
    html_extractor: Literal["resiliparse", "trafilatura", "all_text"] = Field(
        default="resiliparse", description="resiliparse, all_text, or trafilatura (extra `html`)"
    )
    repair_encoding: bool = Field(default=True, description="mend mojibake with ftfy; counted")
    min_chars: int = Field(default=1, ge=1, description="records with less text are quarantined as empty")


class SplitParams(Strict):
    """Validation split, by duplicate cluster, so that no near-copy of it is trained on."""

    validation_share: Share = Field(default=0.02, ge=0, lt=1, description="of each source's text bytes")
    min_documents: int = Field(default=1, ge=0, description="validation documents per source, at least")


class TokenizerParams(Strict):
    """Byte-level BPE, trained on the train split alone."""

    vocab_size: int = Field(default=32_000, ge=257, le=2**31)
    path: str | None = Field(default=None, description="an existing tokenizer.json, in place of training")
    sample_mb: float = Field(default=256.0, gt=0, description="text that the trainer sees at most, MiB")
    min_frequency: int = Field(default=2, ge=1, description="pairs seen less often are never merged")
    eos_token: str = Field(default="<|endoftext|>", description="written after every document")


class ShardParams(Strict):
    """WebDataset tars of token blocks, per source and split."""

    block_tokens: int = Field(default=2**19, ge=64, description="tokens in a block: 1 MiB as uint16")
    shard_mb: float = Field(default=256.0, gt=0, description="wanted size of a tar, MiB")


class ReportParams(Strict):
    """The HTML report and the data card."""

    samples: int = Field(default=3, ge=0, le=50, description="texts shown per rule, and of those kept")
    sample_chars: int = Field(default=600, ge=50)
    labels: str | None = Field(
        default=None,
        description="JSON of planted documents and what should become of them: reported as caught or not",
    )
    card: str | None = Field(default=None, description="file for the data card; default: beside the report")
