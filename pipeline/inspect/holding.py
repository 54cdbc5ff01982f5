"""Which blocks and text samples of which shards hold given documents: what must be written anew after a takedown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.takedown.find import find, read_text, text_ids
from corpusmill.pipeline.shard.read import open_set, read_documents
from corpusmill.schemas.shards import Shard, TextShard

HOLDING = pa.schema(
    [
        pa.field("doc_id", pa.binary(16), nullable=False),
        pa.field("shard", pa.string(), nullable=False),  # path of the tar, relative to the shard set
        pa.field("block", pa.string(), nullable=False),  # the sample's key
        pa.field("char_start", pa.int64(), nullable=False),  # of the cleaned text
        pa.field("char_end", pa.int64(), nullable=False),
    ]
)


class _Tar(NamedTuple):
    """A tar that holds some of the documents; `folder` is that of its index."""

    folder: Folder
    path: str
    shard: Shard | TextShard
    wanted: frozenset[bytes]


def holding(shards: Folder, doc_ids: Sequence[bytes], scheduler: Scheduler) -> pa.Table:
    """Every segment of the documents in the shard set, by document; every list of documents is read. `shards` may be a run's
    folder. Raises `UserError` if there is no shard set."""
    opened = open_set(shards)
    found = find(opened, dict.fromkeys(doc_ids), None, scheduler)
    tars = []
    for (number, tar), wanted in sorted(found.tars.items()):
        listed = opened.sets[number]
        shard = listed.index.shardlist[tar]
        tars.append(_Tar(opened.folder / listed.place, listed.path(tar), shard, frozenset(wanted)))
    rows = scheduler.map(_segments, tars, "dedup shards")
    table = pa.Table.from_pylist([row for mine in rows for row in mine], HOLDING)
    return table.sort_by([("doc_id", "ascending"), ("shard", "ascending"), ("block", "ascending")])


def _segments(tar: _Tar) -> list[dict[str, object]]:
    return [dict(zip(HOLDING.names, row, strict=True)) for row in _rows(tar)]


def _rows(tar: _Tar) -> Iterator[tuple[bytes, str, str, int, int]]:
    folder, shard = tar.folder, tar.shard
    if isinstance(shard, TextShard):
        for start, doc_id in text_ids(folder, shard):
            if doc_id in tar.wanted:
                yield doc_id, tar.path, doc_id.hex(), 0, len(read_text(folder / shard.url, start))
        return
    said = folder.at_once(lambda block: read_documents(folder, shard, block), shard.blocks)
    for block, documents in zip(shard.blocks, said, strict=True):
        ids = map(bytes.fromhex, documents.doc_ids)
        for doc_id, start, end in zip(ids, documents.char_starts, documents.char_ends, strict=True):
            if doc_id in tar.wanted:
                yield doc_id, tar.path, block.key, start, end
