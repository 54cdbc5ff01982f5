"""The parameters of `ingest` and `report`; other stages' have files of their own. Defaults are what a newcomer should run
with; each has its reason."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.manifest import Strict

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


class ReportParams(Strict):
    """The HTML report and the data card."""

    samples: int = Field(default=3, ge=0, le=50, description="texts shown per rule, and of those kept")
    sample_chars: int = Field(default=600, ge=50)
    labels: str | None = Field(
        default=None,
        description="JSON of planted documents and what should become of them: reported as caught or not",
    )
    card: str | None = Field(default=None, description="file for the data card; default: beside the report")
