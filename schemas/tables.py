"""Every published Arrow table. Contracts 1 and 2: the document partition, a Parquet file (zstd) of documents, and beside it the signals,
one typed column per measured value, keyed by `doc_id`. Contract 3: decisions and the ledger: a stage writes decisions, the run
merges them, one row a document. Then the tables of single stages.
"""

from __future__ import annotations

from typing import Any, Final, Literal

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

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

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
# text that it gave, and back (`corpusmill.pipeline.inspect.lineage.edits`). Ingest got bytes: its edits are the places in
# the text that it gave where U+FFFD stands for bytes that are no text.
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

# Ingest's decisions also name the record, since a quarantined one appears in no document partition. Documents whose text was
# repaired have one, too, with outcome `kept`: `detail` says what was done.
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


# `spans/lines/`, `spans/substrings/` of dedup: what is cut, as offset and length in bytes of the UTF-8 text that the stage
# received. Sorted by (doc_id, offset).
SPANS = pa.schema([("doc_id", ID), ("offset", pa.int64()), ("length", pa.int64())])

# `clusters.parquet` of dedup: a row per document that has copies, by cluster and document.
CLUSTERS = pa.schema(
    [
        pa.field("cluster_id", ID),
        pa.field("doc_id", ID),
        pa.field("source", pa.string()),
        pa.field("survivor", ID),
        pa.field("kept", pa.bool_()),
        pa.field("rule", pa.string()),
        pa.field("jaccard", pa.float64()),
    ]
)

# `removals/` of dedup: a partition's documents in clusters, by document.
REMOVALS = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("cluster_id", ID, nullable=False),
        pa.field("survivor", ID, nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("rule", pa.string()),
        pa.field("jaccard", pa.float64()),
        pa.field("value", pa.float64()),  # of what the rule measures: the containment, or the similarity
    ]
)

# `changes.parquet` of dedup with an index: what became of documents that it held before.
CHANGES = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("change", pa.string(), nullable=False),  # removed, restored, or survivor: another one stays
        pa.field("survivor", ID),
        pa.field("rule", pa.string()),
        pa.field("jaccard", pa.float64()),
        *[pa.field(name, pa.string()) for name in ("source", "source_id", "locator", "url")],
    ]
)

# `hits/` of decontaminate: every occurrence of an n-gram that is looked for.
HITS = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # of the document in its partition
        pa.field("unit", pa.uint32(), nullable=False),
        pa.field("gram", pa.uint32(), nullable=False),
        pa.field(
            "place", pa.int64(), nullable=False
        ),  # the word of the unit with which the gram begins there
        pa.field("start", pa.int64(), nullable=False),  # characters, from the first of the gram's words
        pa.field("stop", pa.int64(), nullable=False),  # to the end of its last
        pa.field("paragraph", pa.int64(), nullable=False),  # that holds all its words, or -1
        pa.field("of", pa.int64(), nullable=False),  # n-grams of that paragraph
    ]
)

# `hits/*.near.parquet` of decontaminate: passages that hold most words of an item, in order.
NEAR_HITS = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("near", pa.uint32(), nullable=False),  # row of `index/near_units.parquet`
        pa.field("words", pa.int64(), nullable=False),  # of the near unit in the passage
        pa.field("start", pa.int64(), nullable=False),  # characters, from the first of these words
        pa.field("stop", pa.int64(), nullable=False),  # to the end of the last
    ]
)

MATCHED_SPAN = pa.struct([pa.field("offset", pa.int64()), pa.field("length", pa.int64())])
# `matches/` of decontaminate: how much of which item stands in which document.
MATCHES = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("unit", pa.uint32(), nullable=False),
        pa.field("set", pa.string(), nullable=False),
        pa.field("item", pa.string(), nullable=False),  # of those that share the unit, the first
        pa.field("items", pa.int64(), nullable=False),  # how many share it
        pa.field("part", pa.string(), nullable=False),
        pa.field(
            "near", pa.bool_(), nullable=False
        ),  # found with words changed: its words, not n-grams, are counted
        pa.field("matched", pa.int64(), nullable=False),  # distinct n-grams of the unit in the document
        pa.field("grams", pa.int64(), nullable=False),  # of so many
        pa.field("words", pa.int64(), nullable=False),  # of the unit in these n-grams
        pa.field("of", pa.int64(), nullable=False),  # of so many in any
        pa.field("value", pa.float64(), nullable=False),  # what is held against the threshold
        pa.field("found", pa.bool_(), nullable=False),  # value >= threshold
        pa.field("acts", pa.bool_(), nullable=False),  # found, and the part is one of `parts`
        # Matched words, in characters of the text; those that touch are one.
        pa.field("spans", pa.list_(MATCHED_SPAN), nullable=False),
    ]
)


def signatures(values: pa.DataType, stored: int, metadata: dict[str, str]) -> pa.Schema:
    """`signatures/` of dedup: `stored` values of a document's signature, uint32 or uint64 (preset datatrove); the metadata
    name the scheme, the permutations and the shingles."""
    fields = [("doc_id", ID), ("signature", pa.list_(pa.field("item", values), stored))]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields], metadata=metadata)


# `validation.parquet` of `split`: duplicate clusters, and documents without copies, sorted.
GROUPS = pa.schema([pa.field("group", ID, nullable=False)])

# `copies/` of `augment`: a row for each copy that was to be made. `doc_id`: of the copy.
COPIES = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("parent", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),  # of the copy
        pa.field("by", pa.string(), nullable=False),  # the perturbation, or function and version
        pa.field("outcome", pa.string(), nullable=False),  # made, unchanged or failed
        pa.field("detail", pa.string()),  # why it failed; no text of the document
    ]
)

# `shards.parquet` of `dedup --takedown --shards`: where documents are in a shard set, a row a segment.
HOLDING = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("shard", pa.string(), nullable=False),  # path of the tar, relative to the shard set
        pa.field("block", pa.string(), nullable=False),  # the sample's key
        pa.field("char_start", pa.int64(), nullable=False),  # of the cleaned text
        pa.field("char_end", pa.int64(), nullable=False),
    ]
)
