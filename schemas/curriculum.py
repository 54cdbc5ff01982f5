"""A curriculum: in which order the sequences of a source come in the first steps of a run, and how fast the hard ones join."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.manifest import Strict

LENGTH = "length"  # the signal that needs no pipeline: tokens of a document


class CurriculumConfig(Strict):
    """Sequences from easy to hard: up to step `over`, batches are drawn from a growing part of each source (competence-based
    curriculum learning, Platanios et al. 2019)."""

    signal: str = Field(
        min_length=1,
        description="what orders documents: `length` (tokens), or a number that the filter stored, such as gopher.mean_word_length",
    )
    order: Literal["ascending", "descending"] = Field(
        default="ascending", description="whether small or large values come first"
    )
    over: int = Field(ge=1, description="the step by which all sequences of a source may be drawn")
    pacing: Literal["linear", "sqrt"] = Field(
        default="sqrt", description="how the part that may be drawn grows: evenly, or fast at first"
    )
    start: float = Field(default=0.01, gt=0, le=1, description="the part that may be drawn at first")
    signals: str | None = Field(
        default=None,
        description="folder of the stored signals, *.parquet; default: `filter/signals` beside the shards' folder",
    )

    def signals_of(self, shards: str) -> str:
        """Where the signals are, for a shard set at `shards`: its folder, or the index.json in it."""
        folder = shards.rstrip("/").removesuffix("/index.json").rstrip("/")
        return self.signals or f"{folder.rpartition('/')[0]}/filter/signals"
