"""Phase 2, per shard: its documents from all partitions, in the order of their hash, as one tar.

The tar goes to its place as it is made (a temporary name and a rename locally, a multipart upload on an object store:
no reader sees it before it is complete). What a task holds: a window (`segments.WINDOW`) up to four times over, a few blocks,
the headers of the shard's documents, and the parts of the upload under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.blocks import Encoded
from corpusmill.common.blocks import write_blocks as write_encoded
from corpusmill.common.checkpoints import once
from corpusmill.common.storage import Folder
from corpusmill.common.tar import Sink, TarWriter
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.shard.plan import Plan, SetPlan
from corpusmill.pipeline.shard.route import Routed, Tokenizer
from corpusmill.pipeline.shard.segments import SEGMENT, Window, in_order, weigh
from corpusmill.schemas.manifest import Marker, PublishedFile, hash_json
from corpusmill.schemas.shards import Shard, TextShard


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
            PublishedFile(path=path, rows=shard.ndocs, bytes=shard.filesize, xxh3=made.xxh3),
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
    sidecar = tar.finish()
    shard = TextShard(
        url=url, nsamples=ndocs, filesize=tar.size, sha256=tar.sha256, ndocs=ndocs, text_bytes=text_bytes
    )
    return Made(shard, tar.xxh3, sidecar)
