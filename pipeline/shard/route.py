"""Phase 1, per partition: documents become tokens, sorted by the shard that they belong to.

The tokens of a partition are one file under `scratch/`: a segment (an Arrow stream) per shard, found by the
offsets in the partition's marker. A shard's task reads its segment out of every file by a range request, so
the shuffle is out of core and makes no more files than there are partitions.
"""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from pipeline.bpe.encode import encode
from pipeline.bpe.load import Bpe, load_bpe
from pipeline.publish import publish_bytes
from pipeline.shard.plan import Plan
from pipeline.splits import hash_ids, read_validation_groups, split_of
from pipeline.stage import Partition
from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.manifest import PublishedFile, Strict, hash_json
from schemas.storage import Folder


class Segment(Strict):
    """A partition's documents that belong to one shard: bytes `offset` to `offset + size` of its file."""

    set: int
    bucket: int
    offset: int
    size: int
    xxh3: str
    docs: int


class Routed(Strict):
    """A partition's marker."""

    key: str
    file: PublishedFile
    segments: list[Segment]


@dataclass(frozen=True)
class Route:
    """Tokenise a partition and publish its segments and marker under `scratch`; a valid marker is used again.

    Raises `WorkError` if tokens do not stand for exactly the bytes of their text.
    """

    plan: Plan
    split: Folder
    tokenizer: Folder
    eos_token: str
    work: Folder

    def __call__(self, partition: Partition) -> Routed:
        key = hash_json([self.plan.key, partition.name, partition.xxh3])
        marker = self.work / f"parts/{partition.name}.json"
        try:
            routed = Routed.model_validate_json(marker.read())
            if routed.key == key and (self.work / routed.file.path).entry().size == routed.file.bytes:
                return routed
        except (FileNotFoundError, ValidationError):
            pass
        data, segments = self._segments(partition)
        file = publish_bytes(
            self.work, f"tokens/{partition.name}.bin", data, rows=sum(s.docs for s in segments)
        )
        routed = Routed(key=key, file=file, segments=segments)
        marker.write(routed.model_dump_json().encode())
        return routed

    def _segments(self, partition: Partition) -> tuple[bytes, list[Segment]]:
        bpe = load_bpe(self.tokenizer.read(), self.eos_token, str(self.tokenizer))
        docs = partition.read(["doc_id", "source", "cluster_id", "text"])
        if len(docs) == 0:
            return b"", []
        validation = split_of(docs, read_validation_groups(self.split))
        hashes = hash_ids(docs["doc_id"], self.plan.seed)
        sets, buckets = self._place(docs["source"], validation, hashes, partition.name)
        ids, offsets = encode(bpe, docs["text"])
        sizes = pc.binary_length(docs["text"]).to_numpy().astype(np.int64)
        _check(bpe, docs, ids, offsets, sizes)
        tokens = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids.astype(bpe.dtype)))
        order = np.lexsort((buckets, sets))
        table = pa.table(
            {"doc_id": docs["doc_id"], "hash": hashes, "text_bytes": sizes, "tokens": tokens}
        ).take(order)
        sets, buckets = sets[order], buckets[order]
        changes = np.flatnonzero((np.diff(sets) != 0) | (np.diff(buckets) != 0)) + 1
        edges = [0, *changes.tolist(), len(docs)]
        out = io.BytesIO()
        segments = []
        for start, stop in itertools.pairwise(edges):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(start, stop - start).combine_chunks())
            data = sink.getvalue().to_pybytes()
            segments.append(
                Segment(
                    set=int(sets[start]), bucket=int(buckets[start]), offset=out.tell(), size=len(data),
                    xxh3=checksum(data), docs=stop - start,
                )
            )  # fmt: skip
            out.write(data)
        return out.getvalue(), segments

    def _place(
        self,
        source: pa.ChunkedArray,
        validation: npt.NDArray[np.bool_],
        hashes: npt.NDArray[np.uint64],
        where: str,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Index of the set, and of the bucket in it, per document."""
        sets = np.full(len(hashes), -1, dtype=np.int64)
        for index, plan in enumerate(self.plan.sets):
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
    bpe: Bpe,
    docs: pa.Table,
    ids: npt.NDArray[np.uint32],
    offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
) -> None:
    """Tokens must stand for as many bytes as their text has: what character offsets are computed from."""
    total = np.concatenate([[0], np.cumsum(bpe.byte_lengths[ids], dtype=np.int64)])
    wrong = np.flatnonzero(total[offsets[1:]] - total[offsets[:-1]] != sizes)
    if len(wrong):
        doc = docs["doc_id"][int(wrong[0])].as_py().hex()
        raise WorkError(
            f"shard: the tokens of {len(wrong)} documents do not stand for their text, first {doc}"
        )


def read_segment(work: Folder, path: str, segment: Segment) -> pa.Table:
    """(doc_id, hash, text_bytes, tokens) of a segment; raises `WorkError` if its bytes changed."""
    data = (work / path).read_range(segment.offset, segment.size)
    if checksum(data) != segment.xxh3:
        raise WorkError(f"{work / path}: its bytes changed since they were published; delete it, run again")
    return pa.ipc.open_stream(data).read_all()
