"""The documents that the tokenizer is trained on: whole ones of the train split, in the order of a hash of
their ids, up to a size. The same for any partitioning and any number of workers, in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.publish import publish_table, read_table
from pipeline.splits import hash_ids, purpose_seed, read_validation_groups, split_of
from pipeline.stage import Context, Partition
from schemas.errors import UserError
from schemas.manifest import PublishedFile
from schemas.storage import Folder

_TOP = 2**64 - 1


class Found(NamedTuple):
    """A partition's candidates, as published under `scratch/`: their file, hashes and bytes."""

    file: PublishedFile
    hashes: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Search:
    """Publish the train documents of a partition whose hash is at most `threshold`."""

    split: Folder
    work: Folder
    seed: int
    threshold: int
    limit: int

    def __call__(self, partition: Partition) -> Found:
        docs = partition.read(["doc_id", "cluster_id", "text"])
        hashes = hash_ids(docs["doc_id"], self.seed)
        sizes = pc.binary_length(docs["text"]).to_numpy()
        wanted = ~split_of(docs, read_validation_groups(self.split))
        # A document that alone exceeds the sample would make all of it.
        wanted &= (hashes <= np.uint64(self.threshold)) & (sizes <= self.limit)
        table = pa.table(
            {"hash": hashes[wanted], **{c: docs[c].filter(pa.array(wanted)) for c in ("doc_id", "text")}}
        )
        file = publish_table(self.work, f"{partition.name}.parquet", table)
        return Found(file, hashes[wanted], sizes[wanted].astype(np.int64))


def train_sample(context: Context, limit: int, train_bytes: int, train_docs: int) -> pa.Table:
    """(hash, doc_id, text), sorted by hash: the longest prefix of the train split, in that order, whose texts
    have at most `limit` bytes. Only documents below a threshold that should do are looked at; where the guess
    was too low, it is raised."""
    work = context.folder / "scratch/sample"
    seed = purpose_seed(context.recipe.seed, "tokenizer")
    share = limit / max(train_bytes, 1)
    margin = 6 * math.sqrt(max(share * train_docs, 1.0)) / max(train_docs, 1)  # in documents, 6 sigma
    threshold = min(_TOP, int((share * 1.05 + margin) * _TOP))
    sizes = [part.text_bytes for part in context.partitions]
    while True:
        search = Search(context.previous["split"], work, seed, threshold, limit)
        found = context.scheduler.map(search, context.partitions, "tokenizer: sample", sizes)
        if threshold == _TOP or sum(int(f.sizes.sum()) for f in found) > limit:
            break
        threshold = min(_TOP, threshold * 4)
    hashes = np.concatenate([np.zeros(0, np.uint64), *(f.hashes for f in found)])
    order = np.argsort(hashes, kind="stable")
    total = np.cumsum(np.concatenate([np.zeros(0, np.int64), *(f.sizes for f in found)])[order])
    count = int(np.searchsorted(total, limit, side="right"))
    if count == 0:
        raise UserError(
            "tokenizer.sample_mb: no document of the train split fits into the sample; raise it, or check"
            " what the earlier stages kept"
        )
    last = hashes[order[count - 1]]
    tables = []
    for one in found:
        table = read_table(work / one.file.path, one.file.xxh3)
        tables.append(table.filter(pc.less_equal(table["hash"], pa.scalar(last, pa.uint64()))))
    work.delete([one.file.path for one in found])
    return pa.concat_tables(tables).sort_by([("hash", "ascending"), ("doc_id", "ascending")]).slice(0, count)
