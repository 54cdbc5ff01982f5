"""Contract 3: decisions and the ledger. A stage writes decisions; the run merges them, one row a document."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from corpusmill.schemas.documents import ID

KEPT: Final = "kept"
REMOVED: Final = "removed"
QUARANTINED: Final = "quarantined"
OUTCOMES = (KEPT, REMOVED, QUARANTINED)

FAILED_RULE = pa.struct(
    [
        pa.field("stage", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
    ]
)
# Offsets and lengths count characters of the text as the stage received it. Never the secret itself. Edits that cut
# (`written` 0) may overlap; those that write stand apart. So every position maps from the text that a stage got to the
# text that it gave, and back (`corpusmill.pipeline.inspect.lineage.edits`).
EDIT = pa.struct(
    [
        pa.field("stage", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("written", pa.int64()),  # characters that stand in the edit's place; 0 for a cut
    ]
)

# What a stage says of the documents that it removed, quarantined or edited. Silence means kept, untouched.
DECISIONS = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("rule", pa.string()),  # the first rule that decided, as `<rule set>.<rule>`
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("detail", pa.string()),  # a reason in words, a byte position; no text of the document
        pa.field("failed", pa.list_(FAILED_RULE)),  # every rule that the document failed, the first included
        pa.field("duplicate_of", ID),
        pa.field("jaccard", pa.float64()),  # exact, with the document that stays
        pa.field("cluster_id", ID),
        pa.field("edits", pa.list_(EDIT)),
    ]
)

# One row for every record that ingest saw.
LEDGER = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("source_id", pa.string()),
        pa.field("locator", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("text_bytes", pa.int64()),  # UTF-8 bytes after ingest; null for a quarantined record
        *[field for field in DECISIONS if field.name != "doc_id"],
    ]
)

# Ingest's decisions also name the record, since a quarantined one appears in no document partition.
INGEST_DECISIONS = pa.schema(
    [
        *DECISIONS,
        pa.field("source", pa.string(), nullable=False),
        pa.field("source_id", pa.string()),
        pa.field("locator", pa.string(), nullable=False),
        pa.field("url", pa.string()),
    ]
)


def readable(value: Any) -> Any:
    """A value of a row as JSON has it: bytes as hex, all the way down."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list) else value
