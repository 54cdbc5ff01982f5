"""The two phases of `shard`: `Route` a partition's documents to shards, and `Write` a shard.

Phase 1: a partition's documents become tokens, or samples of text, sorted by the shard that they belong to, in one file under
`scratch/` for each kind: a segment per shard (`segments.py`). Phase 2: a shard's task reads its segment out of every file by
range requests, and writes its documents in the order of their hash as one tar. So the shuffle is out of core, and makes no more
files than there are partitions.

The tar goes to its place as it is made (a temporary name and a rename locally, a multipart upload on an object store: no reader
sees it before it is complete). What a task of phase 2 holds: a window (`segments.WINDOW`) up to four times over, a few blocks,
the headers of the shard's documents, and the parts of the upload under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.blocks import Encoded
from corpusmill.common.blocks import write_blocks as write_encoded
from corpusmill.common.checkpoints import once
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import write_pieces
from corpusmill.common.storage import Folder
from corpusmill.common.tar import Sink, TarWriter
from corpusmill.common.task_progress import advance
from corpusmill.pipeline.bpe.encode import coming_back, encode, normalized
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.engine.document_hash import hash_ids, read_validation_groups, split_of
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.engine.takedown_log import left
from corpusmill.pipeline.shard.plan import Kind, Plan, SetPlan
from corpusmill.pipeline.shard.segments import HEADER, SEGMENT, Window, in_order, packed, weigh
from corpusmill.pipeline.shard.text_members import COLUMNS, id_bytes, rendered
from corpusmill.schemas.manifest import Marker, PublishedFile, Strict, hash_json
from corpusmill.schemas.shards import Shard, TextShard


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


@dataclass(frozen=True)
class Bucket:
    """A shard to write: its number in its set, and its segments (`segments.SEGMENT`) in files under `scratch`."""

    set: int
    number: int
    files: list[str]
    segments: npt.NDArray[Any]

    @property
    def bytes(self) -> int:
        """About how much there is to write."""
        return int(self.segments["elements"].sum()) * 2


def gather(routed: Sequence[Routed]) -> list[Bucket]:
    """The shards to write, in their order, from the files of all partitions. A range of hashes that no document fell
    into makes no shard: numbers go on without a gap."""
    files = np.repeat(np.arange(len(routed)), [len(one.segments) for one in routed])
    segments = np.concatenate([np.zeros(0, dtype=SEGMENT), *(one.segments for one in routed)])
    order = np.lexsort((files, segments["bucket"], segments["set"]))
    files, segments = files[order], segments[order]
    changes = np.flatnonzero((np.diff(segments["set"]) != 0) | (np.diff(segments["bucket"]) != 0)) + 1
    buckets: list[Bucket] = []
    for mine, some in zip(np.split(files, changes), np.split(segments, changes), strict=True):
        if len(some):
            position = int(some["set"][0])
            number = buckets[-1].number + 1 if buckets and buckets[-1].set == position else 0
            buckets.append(Bucket(position, number, [routed[i].path for i in mine.tolist()], some))
    return buckets


class Written(Marker):
    """A shard's marker: its entry of the index, and its files under the stage's folder."""

    shard: Shard | TextShard


class Made(NamedTuple):
    """A tar that was written: its entry in the index, its xxh3, and its `.idx`."""

    shard: Shard | TextShard
    xxh3: str
    sidecar: bytes


@dataclass(frozen=True)
class Write:
    """Write a shard and its `.idx`, then its marker; a valid marker is used again. The bytes depend on the
    documents, the tokenizer, the seed and the size of a block alone."""

    plan: Plan
    tokenizer: Tokenizer
    folder: Folder

    def __call__(self, bucket: Bucket) -> Written:
        target = self.plan.sets[bucket.set]
        stem = f"{target.name}-{bucket.number:06d}"
        # A segment's checksum covers its headers, which hold the sums of its documents.
        key = hash_json([self.plan.key, stem, bucket.segments["xxh3"].tolist()])
        marker = self.folder / f"scratch/shards/{stem}.json"
        return once(Written, marker, key, self.folder, lambda: self._written(target, bucket, stem, key))

    def _written(self, target: SetPlan, bucket: Bucket, stem: str, key: str) -> Written:
        path = f"{target.folder}/{stem}.tar"
        with (self.folder / path).create() as stream:
            made = self._make(target, bucket, stem, stream)
        shard = made.shard
        files = [
            PublishedFile(
                path=path, rows=shard.ndocs, bytes=shard.filesize, xxh3=made.xxh3, sha256=shard.sha256
            ),
            publish_bytes(self.folder, f"{path}.idx", made.sidecar),
        ]
        return Written(key=key, shard=shard, files=files)

    def _make(self, target: SetPlan, bucket: Bucket, stem: str, stream: Sink) -> Made:
        scratch = self.folder / "scratch"
        if target.kind == "text":
            return write_texts(in_order(scratch, bucket.files, bucket.segments, "<u8"), f"{stem}.tar", stream)
        bpe = self.tokenizer.load()
        windows = in_order(scratch, bucket.files, bucket.segments, bpe.dtype, gap=1)
        return write_blocks(windows, bpe, stem, self.plan.block_tokens, stream)


def write_blocks(windows: Iterable[Window], bpe: Bpe, stem: str, block_tokens: int, sink: Sink) -> Made:
    """Write the tar `<stem>.tar` of documents in their order to `sink`. Each document's tokens are followed by a free
    place, which gets the end-of-document token. Keys are `<stem>-<block>`."""
    documents = (encoded(window, bpe) for window in windows)
    made = write_encoded(documents, stem, block_tokens, bpe.dtype, sink)
    return Made(Shard(**made.shard), made.xxh3, made.sidecar)


def encoded(window: Window, bpe: Bpe) -> Encoded:
    """A window's documents with their end-of-document tokens; characters are counted by the tokens that begin them."""
    tokens, offsets = window.elements, window.offsets
    tokens[offsets[1:] - 1] = bpe.eos_id
    chars = np.empty(len(window.ids), dtype=np.int64)
    weigh(tokens, offsets, bpe.lead_bytes, chars)
    advance(tokens.nbytes)

    def cuts_of(row: int, places: Sequence[int]) -> list[tuple[int, int]]:
        edges = offsets[row] + np.array([0, *places], dtype=np.int64)
        counts = np.empty(len(places), dtype=np.int64)
        weigh(tokens, edges, bpe.lead_bytes, counts)
        ends = np.cumsum(counts)
        return list(zip(ends.tolist(), (ends - bpe.inside[tokens[edges[1:]]]).tolist(), strict=True))

    return Encoded(tokens, offsets, window.ids, chars, window.text_bytes, cuts_of)


def write_texts(windows: Iterable[Window], url: str, sink: Sink) -> Made:
    """Write a tar of documents that `text_members.rendered` made samples of, in their order, to `sink`."""
    tar = TarWriter(sink)
    ndocs = text_bytes = 0
    for window in windows:
        tar.add_samples(window.elements.view(np.uint8).data, window.offsets[:-1] * window.elements.itemsize)
        ndocs += len(window.ids)
        text_bytes += window.text_bytes
        advance(window.elements.nbytes)
    sidecar = tar.finish()
    shard = TextShard(
        url=url, nsamples=ndocs, filesize=tar.size, sha256=tar.sha256, ndocs=ndocs, text_bytes=text_bytes
    )
    return Made(shard, tar.xxh3, sidecar)
