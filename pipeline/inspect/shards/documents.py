"""What the shards hold against the cleaned documents of the run: texts, presence, and the split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import normalized
from corpusmill.pipeline.engine.stage import Partition, Scheduler
from corpusmill.pipeline.inspect.shards.contents import IDS, DocumentHashes, below, joined
from corpusmill.pipeline.inspect.shards.sets import ShardsChecked, on_all
from corpusmill.pipeline.shard.read import read_tokenizer
from corpusmill.pipeline.shard.text_members import id_bytes

Ids = npt.NDArray[np.void]


def compare(
    shards: str, found: ShardsChecked, partitions: Sequence[Partition], scheduler: Scheduler | None = None
) -> list[str]:
    """Problems of the shards (each line begins with `shards`) against the documents that they were written from.

    Of the documents chosen by the hash of their id, each must be in the shards with the same text, byte by byte, and
    the shards may hold no other. No duplicate cluster may have documents in both splits.
    """
    tokenizer = found.tokenizer if found.tokens_sample else None
    composes = tokenizer is not None and read_tokenizer(*tokenizer).nfc
    read = partial(_read, found.limit, found.validation, tokenizer if composes else None)
    sizes = [part.text_bytes for part in partitions]
    label = "verify: documents"
    rows: list[_Read] = on_all(scheduler, read, partitions, label, sizes)
    ids = joined([read.ids for read in rows])
    left = ~np.isin(ids, found.taken)
    problems = []
    for what, samples in (("tokens", found.tokens_sample), ("text", found.texts_sample)):
        if samples:
            there = DocumentHashes(joined([s.ids for s in samples]), joined([s.hashes for s in samples]))
            hashes = joined([read.composed if what == "tokens" else read.hashes for read in rows])
            wanted = DocumentHashes(ids[left], hashes[left])
            problems += [f"{shards}: {line}" for line in _differences(what, there, wanted)]
    held_out = np.unique(joined([read.clusters for read in rows]))
    if len(held_out):
        clusters = partial(_train_clusters, found.validation, held_out)
        both = np.unique(joined(on_all(scheduler, clusters, partitions, label, sizes)))
        if len(both):
            problems.append(
                f"{shards}: {len(both)} duplicate clusters have documents in train and validation, first {_hex(both)}"
            )
    return problems


def _differences(what: str, there: DocumentHashes, wanted: DocumentHashes) -> list[str]:
    lines = []
    missing, extra = np.setdiff1d(wanted.ids, there.ids), np.setdiff1d(there.ids, wanted.ids)
    if len(missing):
        lines.append(f"{len(missing)} cleaned documents are not there ({what}), first {_hex(missing)}")
    if len(extra):
        lines.append(f"{len(extra)} documents ({what}) are not among the cleaned ones, first {_hex(extra)}")
    _, ours, theirs = np.intersect1d(there.ids, wanted.ids, return_indices=True)
    wrong = there.ids[ours][there.hashes[ours] != wanted.hashes[theirs]]
    if len(wrong):
        lines.append(
            f"{len(wrong)} documents do not decode to their cleaned text ({what}), first {_hex(wrong)}"
        )
    return lines


class _Read(NamedTuple):
    """Of a partition: the chosen documents, the hashes of their texts as they stand and as the tokens stand for them,
    and the clusters that have validation documents. V16 each."""

    ids: Ids
    hashes: Ids
    composed: Ids
    clusters: Ids


def _read(limit: int, validation: Ids, composes: tuple[Folder, int] | None, partition: Partition) -> _Read:
    docs = partition.read(["doc_id", "text_hash", "cluster_id"])
    ids = _bytes(docs["doc_id"])
    chosen = below(ids.tobytes(), limit)
    hashes = composed = _bytes(docs["text_hash"])[chosen]
    if composes is not None:  # the tokens stand for the text in its canonical composition
        texts = partition.read(["text"])["text"].filter(pa.array(chosen))
        texts = normalized(read_tokenizer(*composes), texts)
        composed = joined([np.frombuffer(text_hash(text.as_py()), IDS) for text in texts])
    clustered = docs.filter(pc.and_(pc.is_valid(docs["cluster_id"]), pa.array(np.isin(ids, validation))))
    return _Read(ids[chosen], hashes, composed, np.unique(_bytes(clustered["cluster_id"])))


def _train_clusters(validation: Ids, held_out: Ids, partition: Partition) -> Ids:
    """Those of the clusters `held_out` that have a document which is not validation."""
    docs = partition.read(["doc_id", "cluster_id"])
    train = pa.array(~np.isin(_bytes(docs["doc_id"]), validation))
    clusters = docs.filter(pc.and_(pc.is_valid(docs["cluster_id"]), train))["cluster_id"]
    return np.intersect1d(_bytes(clusters), held_out)


def _bytes(column: pa.ChunkedArray) -> Ids:
    """16-byte values without nulls, as V16."""
    return id_bytes(column).view(IDS).reshape(-1)


def _hex(ids: Ids) -> str:
    return bytes(ids[0].tobytes()).hex()
