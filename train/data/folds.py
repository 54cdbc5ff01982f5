"""Folds of a shard set for cross-validation: documents that a run holds out, whose tokens are never labels.

A fold is drawn for each duplicate cluster, or for a document of none, by a hash of its id, so that near-copies are never on both
sides. Clusters stand in the pipeline's ledger; documents in the blocks' lists. Nothing is written: the shards, their order and every
batch are those of a run without folds. A held-out document in a batch is not trained on, since it has no label, and does
not influence others, since attention stays within documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.data import FoldConfig
from corpusmill.schemas.shards import Block, BlockDocuments, Shard
from corpusmill.schemas.tables import ID

MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class Listed(Protocol):
    """A train split: its folder, and its blocks with their tars (`corpusmill.train.data.shards.Source`)."""

    @property
    def folder(self) -> Folder: ...
    @property
    def blocks(self) -> list[tuple[Shard, Block]]: ...


def held_out(
    sources: Mapping[str, Listed], shards: str, fold: FoldConfig
) -> dict[str, tuple[npt.NDArray[np.bool_], ...]]:
    """Of each source's blocks, which of their documents are held out; `shards`: URL of the set. Raises `UserError` for a ledger that is
    not there or is of another run."""
    ids = {name: list(document_ids(source)) for name, source in sources.items()}
    probe = [block[0] for blocks in ids.values() for block in blocks if len(block)]
    documents, clusters = clustered(Folder(fold.ledger_of(shards)), probe)
    return {
        name: tuple(
            folds(groups(block, documents, clusters), fold.seed, fold.of) == fold.index for block in blocks
        )
        for name, blocks in ids.items()
    }


def document_ids(source: Listed) -> Iterator[pa.Array]:
    """The ids of the documents of each block, in their order. Raises what `block_documents` does."""
    for member in block_documents(source):
        yield pa.array([bytes.fromhex(one) for one in member.doc_ids], ID)


def block_documents(source: Listed) -> Iterator[BlockDocuments]:
    """The list of each block's documents. Raises `WorkError` for one that is not as published."""
    places = [(shard.url, block.json_offset, block.json_size) for shard, block in source.blocks]
    for (_, block), data in zip(source.blocks, source.folder.read_ranges(places), strict=True):
        if checksum(data) != block.json_xxh3:
            raise WorkError(
                f"{source.folder}: block {block.key}: its list of documents is damaged (checksum differs)"
            )
        yield BlockDocuments.from_json(data, block.key)


def clustered(ledger: Folder, probe: list[pa.Scalar]) -> tuple[pa.Array, pa.Array]:
    """(documents that were kept and are in a cluster, the cluster of each), of a ledger's partitions. Raises `UserError` if it lacks
    a document of `probe`."""
    files = [entry.path for entry in ledger.list() if entry.path.endswith(".parquet")]
    if not files:
        raise UserError(
            f"data.fold.ledger: {ledger}: no *.parquet there; name the ledger of the pipeline's run, such as runs/<recipe>/ledger"
        )
    wanted = pa.array([one.as_py() for one in probe], ID)
    documents, clusters = [pa.array([], ID)], [pa.array([], ID)]
    missing = np.ones(len(wanted), dtype=np.bool_)
    for file in files:
        table = pq.read_table(
            pa.BufferReader((ledger / file).read()), columns=["doc_id", "outcome", "cluster_id"]
        )
        table = table.filter(pc.equal(table["outcome"], "kept")).combine_chunks()
        missing &= ~pc.is_in(wanted, value_set=table["doc_id"].combine_chunks()).to_numpy(
            zero_copy_only=False
        )
        inside = table.filter(pc.is_valid(table["cluster_id"]))
        documents += inside["doc_id"].chunks
        clusters += inside["cluster_id"].chunks
    if missing.any():
        lost = wanted[int(missing.argmax())].as_py().hex()
        raise UserError(
            f"data.fold.ledger: {ledger}: document {lost} of the shards was not kept in it; it is the ledger of another run"
        )
    return pa.concat_arrays(documents), pa.concat_arrays(clusters)


def groups(ids: pa.Array, documents: pa.Array, clusters: pa.Array) -> pa.Array:
    """What is never parted, for each document: its cluster, or itself."""
    return pc.coalesce(clusters.take(pc.index_in(ids, value_set=documents)), ids)


def folds(ids: pa.Array, seed: int, of: int) -> npt.NDArray[np.int64]:
    """A number below `of` for each id (16 bytes), the same for equal ones: SplitMix64's finaliser over both halves and the seed."""
    halves = np.frombuffer(b"".join(ids.to_pylist()), dtype="<u8").reshape(-1, 2)
    state = halves[:, 0] ^ (halves[:, 1] * MIX[0]) ^ (np.uint64(seed) * MIX[1] + MIX[0])
    for shift, factor in ((30, MIX[1]), (27, MIX[2])):
        state = (state ^ (state >> np.uint64(shift))) * factor
    state ^= state >> np.uint64(31)
    return (state % np.uint64(of)).astype(np.int64)
