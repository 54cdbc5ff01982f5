"""The documents that the tokenizer is trained on: of each source of the train split those that come first in the order of
a hash of their ids, up to the source's part of the sample. The same for any partitioning and any number of workers; what is
drawn stays in one file a partition, read one at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import known
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import hash_ids, purpose_seed, read_validation_groups, split_of
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.stage import Context, Partition
from corpusmill.schemas.manifest import Marker, PublishedFile

_TOP = 2**64 - 1
_WORK = "scratch/sample"
_MARKER = "drawn.json"


class Edge(NamedTuple):
    """Where a source's part ends: documents with a smaller hash are whole, one with this hash gives `rest` bytes."""

    hash: int  # `_TOP + 1` where all are taken
    rest: int
    docs: int
    bytes: int


@dataclass(frozen=True)
class Drawn:
    """A sample: the candidates' files, and the edge of each source."""

    work: Folder
    files: tuple[PublishedFile, ...]
    edges: dict[str, Edge]

    @property
    def docs(self) -> int:
        return sum(edge.docs for edge in self.edges.values())

    @property
    def bytes(self) -> int:
        return sum(edge.bytes for edge in self.edges.values())

    def tables(self) -> Iterator[pa.Table]:
        """The sample, one partition's part at a time."""
        for file in self.files:
            yield read_part(self.work, file, self.edges)


class Kept(Marker):
    """The marker of a sample that was drawn."""

    edges: dict[str, Edge]


class Found(NamedTuple):
    """A partition's candidates, as published, with their hashes and bytes by source."""

    file: PublishedFile
    hashes: dict[str, npt.NDArray[np.uint64]]
    sizes: dict[str, npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Search:
    """Publish the train documents of a partition whose hash is at most the threshold of their source."""

    split: Folder
    work: Folder
    seed: int
    thresholds: dict[str, int]

    def __call__(self, partition: Partition) -> Found:
        docs = partition.read(["doc_id", "source", "cluster_id", "text"])
        hashes = hash_ids(docs["doc_id"], self.seed)
        train = ~split_of(docs, read_validation_groups(self.split))
        wanted = train & below(docs["source"], hashes, self.thresholds)
        columns = {name: docs[name].filter(pa.array(wanted)) for name in ("source", "text")}
        table = pa.table({"hash": hashes[wanted], **columns})
        sizes = pc.binary_length(table["text"]).to_numpy().astype(np.int64)
        of = {source: pc.equal(table["source"], source).to_numpy() for source in self.thresholds}
        return Found(
            publish_table(self.work, f"{partition.name}.parquet", table),
            {source: hashes[wanted][mask] for source, mask in of.items()},
            {source: sizes[mask] for source, mask in of.items()},
        )


def below(
    sources: pa.ChunkedArray, hashes: npt.NDArray[np.uint64], tops: Mapping[str, int]
) -> npt.NDArray[np.bool_]:
    """bool[K]: the hash of the document is at most that of its source in `tops`."""
    mask = np.zeros(len(hashes), dtype=bool)
    for source, top in tops.items():
        mask |= pc.equal(sources, source).to_numpy() & (hashes <= np.uint64(top))
    return mask


def parts(held: Mapping[str, int], limit: int, weights: Mapping[str, float]) -> dict[str, int]:
    """source -> bytes of its train split that go into a sample of `limit` bytes; `held`: what each has.

    Without `weights`, in proportion to what each holds. With them, by weight; what a source cannot give goes to the others
    by their weights. A source without a weight gives nothing.
    """
    if not weights:
        total = max(sum(held.values()), 1)
        return {source: size if total <= limit else limit * size // total for source, size in held.items()}
    result = dict.fromkeys(held, 0)
    open_sources = sorted(source for source in held if weights.get(source, 0) > 0)
    left = limit
    while open_sources:
        total_weight = math.fsum(weights[source] for source in open_sources)
        offer = {source: int(left * (weights[source] / total_weight)) for source in open_sources}
        full = [source for source in open_sources if held[source] <= offer[source]]
        for source in full or open_sources:
            result[source] = held[source] if full else offer[source]
            left -= result[source]
        open_sources = [source for source in open_sources if source not in full] if full else []
    return result


def draw(
    context: Context,
    limit: int,
    splits: Mapping[str, Mapping[str, Mapping[str, int]]],
    key: str,
    weights: Mapping[str, float] | None = None,
) -> Drawn:
    """The sample of at most `limit` bytes, by the sizes in `split.json` and `weights` (see `parts`).

    Only documents below a threshold that should do are looked at; where the guess was too low, it is raised. What a killed run
    drew for the same `key` is used. Raises `WorkError` if there is no text, `UserError` if
    none of it fits.
    """
    work = context.folder / _WORK
    if (kept := known(Kept, work / _MARKER, key, work)) is not None:
        return Drawn(work, tuple(kept.files), kept.edges)
    held = {
        source: numbers["train"]["bytes"] for source, numbers in splits.items() if numbers["train"]["bytes"]
    }
    if not held:
        raise WorkError(
            "tokenizer: the train split holds no text: the stages before it kept nothing to train on; the run's report and"
            " ledger say why"
        )
    wanted = {s: size for s, size in parts(held, limit, weights or {}).items() if size}
    if not wanted:
        raise UserError("tokenizer.sample_mb: no text of the train split fits into the sample; raise it")
    seed = purpose_seed(context.recipe.seed, "tokenizer")
    thresholds = {s: _guess(size, held[s], splits[s]["train"]["docs"]) for s, size in wanted.items()}
    sizes = [part.text_bytes for part in context.partitions]
    while True:
        search = Search(context.previous["split"], work, seed, thresholds)
        found = context.scheduler.map(search, context.partitions, "tokenizer: sample", sizes)
        low = [
            source
            for source, top in thresholds.items()
            if top < _TOP and sum(int(one.sizes[source].sum()) for one in found) < wanted[source]
        ]
        if not low:
            break
        thresholds |= {source: min(_TOP, 4 * thresholds[source]) for source in low}
    edges = {
        source: _edge(
            np.concatenate([one.hashes[source] for one in found]),
            np.concatenate([one.sizes[source] for one in found]),
            size,
        )
        for source, size in sorted(wanted.items())
    }
    kept = Kept(key=key, files=[one.file for one in found], edges=edges)
    (work / _MARKER).write(kept.model_dump_json().encode())
    return Drawn(work, tuple(kept.files), edges)


def _guess(size: int, held: int, docs: int) -> int:
    """A hash below which documents of `size` bytes should be found: six sigma above the share."""
    share = size / held
    margin = 6 * math.sqrt(max(share * docs, 1.0)) / max(docs, 1)
    return _TOP if share >= 1 else min(_TOP, int((share * 1.05 + margin) * _TOP))


def _edge(hashes: npt.NDArray[np.uint64], sizes: npt.NDArray[np.int64], limit: int) -> Edge:
    """The edge of the longest prefix by hash of at most `limit` bytes, and of the next document what is left."""
    order = np.argsort(hashes, kind="stable")
    total = np.cumsum(sizes[order])
    count = int(np.searchsorted(total, limit, side="right"))
    taken = int(total[count - 1]) if count else 0
    if count == len(order):
        return Edge(_TOP + 1, 0, count, taken)
    rest = limit - taken
    return Edge(int(hashes[order[count]]), rest, count + (rest > 0), taken + rest)


def read_part(work: Folder, file: PublishedFile, edges: Mapping[str, Edge]) -> pa.Table:
    """Of one partition's candidates those in the sample: `hash`, `source`, `text`; the last document of a
    source is cut at a character, so that a part may lack up to three bytes."""
    table = read_table(work / file.path, file.xxh3)
    hashes = table["hash"].to_numpy()
    inside = np.zeros(len(table), dtype=bool)
    cuts: dict[int, int] = {}
    for source, edge in edges.items():
        mine = pc.equal(table["source"], source).to_numpy()
        if edge.hash > _TOP:
            inside |= mine
            continue
        inside |= mine & (hashes < np.uint64(edge.hash))
        cuts |= {int(row): edge.rest for row in np.flatnonzero(mine & (hashes == np.uint64(edge.hash)))}
    whole = table.filter(pa.array(inside))
    if not cuts:
        return whole
    ends = []
    for row, rest in sorted(cuts.items()):
        one = table.slice(row, 1)
        text = one["text"][0].as_py().encode()[:rest].decode(errors="ignore")
        ends.append(
            one.set_column(one.column_names.index("text"), "text", pa.array([text], pa.large_string()))
        )
    return pa.concat_tables([whole, *ends])
