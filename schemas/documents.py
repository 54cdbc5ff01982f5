"""Contract 1: the document partition, a Parquet file (zstd) of documents."""

from __future__ import annotations

import pyarrow as pa

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
