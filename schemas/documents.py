"""Contracts 1 and 2: the document partition, a Parquet file (zstd) of documents; and beside it the signals, one typed column per
measured value, keyed by `doc_id`."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

ID = pa.binary(16)

DOCUMENTS = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        # The user's own id, if the input has one: `corpusmill why` takes it wherever it takes a doc_id.
        pa.field("source_id", pa.string()),
        # Where the record lies inside its source: path#record, or path#<WARC record id>.
        pa.field("locator", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("date", pa.string()),  # ISO 8601, as far as the input knows it
        pa.field("language", pa.string()),  # ISO 639 code, set by `filter`
        pa.field("metadata", pa.string()),  # JSON object: whatever else the record carried
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("text_hash", ID, nullable=False),  # xxh3_128 of `text` as it stands in this partition
        # Set by `dedup`: near-copies that stay share it, and `split` never parts them.
        pa.field("cluster_id", ID),
    ]
)

ARROW_TYPES = {"float": pa.float32(), "int": pa.int64(), "bool": pa.bool_(), "string": pa.string()}


class SignalSpec(BaseModel):
    """What one signal column holds. Its name is `<family>.<value>`, such as `gopher.mean_word_length`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$")
    dtype: Literal["float", "int", "bool", "string"]
    version: str = Field(default="1", description="Changes when the same text may give another value")
    unit: str = Field(description="characters, words, lines, share of words, probability, ...")
    range: tuple[float | None, float | None] = Field(default=(0.0, None), description="inclusive bounds")
    origin: str = Field(description="The paper or tool whose definition this follows")


def signals_schema(specs: list[SignalSpec]) -> pa.Schema:
    """The Arrow schema of a signals partition: `doc_id`, then one column per spec, in order."""
    fields = [pa.field("doc_id", ID, nullable=False)]
    return pa.schema(fields + [pa.field(spec.name, ARROW_TYPES[spec.dtype]) for spec in specs])
