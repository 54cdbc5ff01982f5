"""Which blocks of which shards hold given documents: what must be written anew after a takedown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from pipeline.shard.read import read_documents, read_index, read_set
from pipeline.stage import Scheduler
from schemas.errors import UserError
from schemas.shards import Shard, ShardSet
from schemas.storage import Folder

HOLDING = pa.schema(
    [
        pa.field("doc_id", pa.binary(16), nullable=False),
        pa.field("shard", pa.string(), nullable=False),  # path of the tar, relative to the shard set
        pa.field("block", pa.string(), nullable=False),
        pa.field("char_start", pa.int64(), nullable=False),  # of the cleaned text
        pa.field("char_end", pa.int64(), nullable=False),
    ]
)


def shard_set(shards: Folder) -> ShardSet:
    """The shard set there; raises `UserError` if there is none."""
    try:
        return read_set(shards)
    except FileNotFoundError:
        raise UserError(f"{shards}: no shards there; give a run's shards folder") from None


def holding(shards: Folder, doc_ids: Sequence[bytes], scheduler: Scheduler) -> pa.Table:
    """Every segment of the documents in the shard set, by document. Raises `UserError` if there is no shard
    set."""
    found = shard_set(shards)
    items = []
    for entry in found.sets:
        file = shards / entry.index
        items += [(entry.place, shard) for shard in read_index(file).shardlist]
    wanted = frozenset(doc_id.hex() for doc_id in doc_ids)
    rows = scheduler.map(partial(_segments, shards, wanted), items, "dedup shards")
    table = pa.Table.from_pylist([row for mine in rows for row in mine], HOLDING)
    return table.sort_by([("doc_id", "ascending"), ("shard", "ascending"), ("block", "ascending")])


def _segments(shards: Folder, wanted: frozenset[str], item: tuple[str, Shard]) -> list[dict[str, object]]:
    return list(_rows(shards, wanted, *item))


def _rows(shards: Folder, wanted: frozenset[str], place: str, shard: Shard) -> Iterator[dict[str, object]]:
    for block in shard.blocks:
        documents = read_documents(shards / place, shard, block)
        for doc_id, start, end in zip(
            documents.doc_ids, documents.char_starts, documents.char_ends, strict=True
        ):
            if doc_id in wanted:
                yield {
                    "doc_id": bytes.fromhex(doc_id), "shard": f"{place}/{shard.url}".lstrip("/"),
                    "block": block.key, "char_start": start, "char_end": end,
                }  # fmt: skip
