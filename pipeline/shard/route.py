"""Phase 1, per partition: documents become tokens, or samples of text, sorted by the shard that they belong to.

What a partition gives is one file under `scratch/` for each kind: a segment per shard (`segments.py`). A shard's task
reads its segment out of every file by range requests, so the shuffle is out of core and makes no more files than there
are partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import once
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import write_pieces
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import coming_back, encode, normalized
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.engine.document_hash import hash_ids, read_validation_groups, split_of
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.shard.plan import Kind, Plan
from corpusmill.pipeline.shard.segments import HEADER, SEGMENT, packed
from corpusmill.pipeline.shard.takedown_log import left
from corpusmill.pipeline.shard.text_members import COLUMNS, id_bytes, rendered
from corpusmill.schemas.manifest import Marker, PublishedFile, Strict, hash_json


@dataclass(frozen=True)
class Tokenizer:
    """`file`: the copy beside the shards, which tasks read. `source`: where it came from, which is what errors name."""

    file: Folder
    eos_token: str
    source: Folder

    def load(self) -> Bpe:
        """What `load_bpe` makes of it. That keeps what it loaded by bytes and name. The driver asks by the same name, so
        a process that is both loads once, and has one table of pre-tokens."""
        return load_bpe(self.file.read(), self.eos_token, str(self.source))


Array = npt.NDArray[Any]


class RoutedKind(Strict):
    """A partition's file of one kind, and the rows of `segments.SEGMENT` that describe its contents."""

    path: str
    segments: list[tuple[int, int, int, int, int, int]]


class RoutedPartition(Marker):
    """A partition's marker."""

    kinds: list[RoutedKind]


class Routed(NamedTuple):
    """A file of a partition, and its segments as an array."""

    path: str
    segments: Array


@dataclass(frozen=True)
class Route:
    """Make a partition's segments and publish them with their marker under `scratch`; a valid marker is used again.

    Raises `WorkError` if tokens do not stand for exactly the bytes of their text.
    """

    plan: Plan
    split: Folder
    tokenizer: Tokenizer
    work: Folder

    def __call__(self, partition: Partition) -> list[Routed]:
        key = hash_json([self.plan.key, partition.name, partition.xxh3])
        marker = self.work / f"parts/{partition.name}.json"
        routed = once(RoutedPartition, marker, key, self.work, lambda: self._routed(key, partition))
        return [Routed(one.path, np.array(one.segments, dtype=SEGMENT)) for one in routed.kinds]

    def _routed(self, key: str, partition: Partition) -> RoutedPartition:
        wanted = set(COLUMNS) if "text" in self.plan.kinds else {"doc_id", "source", "text"}
        docs = left(self.work.parent, partition.read(sorted(wanted | {"cluster_id"})))
        validation = split_of(docs, read_validation_groups(self.split))
        headers = np.zeros(len(docs), dtype=HEADER)
        headers["hash"] = hash_ids(docs["doc_id"], self.plan.seed)
        halves = id_bytes(docs["doc_id"]).view(">u8")
        headers["high"], headers["low"] = halves[:, 0], halves[:, 1]
        files, kinds = [], []
        for kind in self.plan.kinds:
            sets, buckets = self._place(kind, docs["source"], validation, headers["hash"], partition.name)
            if kind == "tokens":
                elements, offsets, dtype, texts = self._tokens(docs)
            else:
                elements, offsets, dtype, texts = *rendered(docs), np.dtype("<u8"), docs["text"]
            headers["text_bytes"] = pc.binary_length(texts).to_numpy()
            pieces, segments = packed(headers, sets, buckets, elements, offsets, dtype)
            path = f"{kind}/{partition.name}.bin"
            size, xxh3 = write_pieces(self.work / path, pieces)
            files.append(PublishedFile(path=path, rows=len(docs), bytes=size, xxh3=xxh3))
            kinds.append(RoutedKind(path=path, segments=segments.tolist()))
        return RoutedPartition(key=key, files=files, kinds=kinds)

    def _tokens(self, docs: pa.Table) -> tuple[Array, npt.NDArray[np.int64], np.dtype[Any], pa.ChunkedArray]:
        """(tokens, offsets of the documents, type to write them as, the texts that they stand for)."""
        bpe = self.tokenizer.load()
        texts = normalized(bpe, docs["text"])
        ids, offsets = encode(bpe, texts)
        _check(bpe, docs["doc_id"], texts, ids, offsets)
        return ids, offsets, np.dtype(bpe.dtype), texts

    def _place(
        self,
        kind: Kind,
        source: pa.ChunkedArray,
        validation: npt.NDArray[np.bool_],
        hashes: npt.NDArray[np.uint64],
        where: str,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Index of the set, and of the bucket in it, per document."""
        sets = np.full(len(hashes), -1, dtype=np.int64)
        for index, plan in enumerate(self.plan.sets):
            if plan.kind == kind:
                mine = pc.equal(source, plan.source).to_numpy()
                sets[mine & (validation if plan.split == "validation" else ~validation)] = index
        if (sets < 0).any():
            raise WorkError(
                f"shard: partition {where} holds documents that the split stage did not count; run it again"
            )
        counts = np.array([plan.buckets for plan in self.plan.sets], dtype=np.uint64)[sets]
        half = np.uint64(32)  # the upper half of the hash is enough to choose by
        return sets, (((hashes >> half) * counts) >> half).astype(np.int64)


def _check(
    bpe: Bpe, doc_ids: pa.ChunkedArray, texts: pa.ChunkedArray, ids: Array, offsets: npt.NDArray[np.int64]
) -> None:
    """Every document's tokens must give its text back, byte for byte: character offsets are computed from them."""
    wrong = np.flatnonzero(~coming_back(bpe, texts, ids, offsets))
    if len(wrong):
        doc = doc_ids[int(wrong[0])].as_py().hex()
        raise WorkError(
            f"shard: the tokens of {len(wrong)} documents do not stand for their text, first {doc}"
        )
