"""Tables that stages publish beside the documents and the ledger, as Arrow schemas."""

from __future__ import annotations

import pyarrow as pa

from corpusmill.schemas.documents import ID

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
