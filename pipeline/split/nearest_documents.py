"""Validation documents compared with train: which (all, or as many of each source as a bound on text allows), and for
each of them the most similar document of train and the one that holds most of it, in one pass over train.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import groups_of, hash_ids, read_validation_groups, split_of
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.stage import Context, Partition
from corpusmill.pipeline.split.index import SAMPLE, compare, empty_best, load
from corpusmill.pipeline.text.shingles import one_array
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.documents import ID
from corpusmill.schemas.manifest import PublishedFile, hash_json

I64 = npt.NDArray[np.int64]
DOCUMENTS = 10_000  # compared at most: what a document of train may cost grows with them
VIEW = 4 << 20  # bytes of text at a time

MEASURES = ("jaccard", "inside")
# The best of a partition for one measure: place in the sample, value, the document of train.
BEST = pa.schema(
    [
        pa.field("measure", pa.int8(), nullable=False),
        pa.field("document", pa.int64(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
    ]
)


def draw(rows: pa.Table, limit: int, seed: int, documents: int = DOCUMENTS) -> dict[str, pa.Array]:
    """Source -> the sorted groups whose documents are compared, from the groups of validation (`measure.MEMBERS`).

    Sources with less than a fair share of `limit` bytes and of `documents` are compared whole, the others divide what
    is left. Of one source the groups with the smallest hash are taken, until the next would exceed its part; a
    group that exceeds it alone is left out.
    """
    taken: dict[str, pa.Array] = {}
    names = pc.unique(rows["source"]).sort().to_pylist() if len(rows) else []
    tables = [rows.filter(pc.equal(rows["source"], name)) for name in names]
    totals = [(pc.sum(table["bytes"]).as_py(), pc.sum(table["docs"]).as_py()) for table in tables]
    parts = zip(
        fair([size for size, _ in totals], limit), fair([docs for _, docs in totals], documents), strict=True
    )
    for name, table, (size, docs) in zip(names, tables, parts, strict=True):
        table = table.filter(pc.and_(pc.less_equal(table["bytes"], size), pc.less_equal(table["docs"], docs)))
        groups = pa.concat_arrays(table["group"].chunks) if len(table) else pa.array([], ID)
        order = np.lexsort((np.arange(len(table)), hash_ids(groups, seed)))
        within = (np.cumsum(table["bytes"].to_numpy()[order]) <= size) & (
            np.cumsum(table["docs"].to_numpy()[order]) <= docs
        )
        taken[name] = groups.take(pa.array(np.sort(order[within])))
    return taken


def fair(amounts: list[int], limit: int) -> list[int]:
    """What of `limit` each amount gets: all of it, or what is left divided by those that want more."""
    parts, left = [0] * len(amounts), limit
    order = sorted(range(len(amounts)), key=lambda i: amounts[i])
    for done, i in enumerate(order):
        parts[i] = min(amounts[i], left // (len(order) - done))
        left -= parts[i]
    return parts


def views(sizes: I64, rows: I64) -> Iterator[I64]:
    """`rows`, cut so that the texts of each part, of `sizes` bytes, have `VIEW` bytes together, or are one."""
    ends = np.cumsum(sizes[rows])
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + VIEW, side="right")))
        yield rows[first:last]
        first = last


@dataclass(frozen=True)
class Draw:
    """Publish the shingle sets of a partition's documents among those drawn: a table of `SAMPLE`."""

    taken: dict[str, pa.Array]
    params: DedupParams
    work: Folder

    def __call__(self, partition: Partition) -> PublishedFile:
        docs = partition.read(["doc_id", "source", "cluster_id", "text"])
        groups = groups_of(docs)
        wanted = np.zeros(len(docs), bool)
        for source, taken in self.taken.items():
            mine = pc.and_(pc.equal(docs["source"], source), pc.is_in(groups, value_set=taken))
            wanted |= mine.to_numpy()
        rows = np.flatnonzero(wanted)
        text = one_array(docs["text"])
        sizes = pc.binary_length(text).to_numpy(zero_copy_only=False).astype(np.int64)
        shingling = Shingling(self.params, 0)
        bounds, hashes = [np.zeros(1, np.int64)], [np.zeros(0, np.uint64)]
        for part in views(sizes, rows):
            ends, found = shingling.sets(text, part)
            bounds.append(ends[1:] + bounds[-1][-1])
            hashes.append(found)
        lists = pa.LargeListArray.from_arrays(
            pa.array(np.concatenate(bounds)),
            pa.array(np.concatenate(hashes)),
            type=SAMPLE.field("shingles").type,
        )
        chosen = docs.select(["doc_id", "source"]).take(pa.array(rows))
        table = pa.table([*chosen.columns, pa.array(sizes[rows]), lists], schema=SAMPLE)
        return publish_table(self.work, f"sets/{partition.name}.parquet", table)


@dataclass(frozen=True)
class Nearest:
    """Publish the best of a partition's documents of train; what a killed run left for the same key is used again."""

    split: Folder
    work: Folder
    sample: PublishedFile
    params: DedupParams
    key: str

    def __call__(self, partition: Partition) -> PublishedFile:
        key = hash_json([self.key, self.sample.xxh3, partition.name, partition.xxh3])
        path = f"best/{partition.name}-{key[:16]}.parquet"
        try:
            data = (self.work / path).read()
            return PublishedFile(path=path, bytes=len(data), xxh3=checksum(data))
        except FileNotFoundError:
            return publish_table(self.work, path, self._best(partition))

    def _best(self, partition: Partition) -> pa.Table:
        docs = partition.read(["doc_id", "source", "cluster_id", "text"])
        train = np.flatnonzero(~split_of(docs, read_validation_groups(self.split)))
        ids = _words(docs["doc_id"])
        train = train[np.lexsort((ids[train, 1], ids[train, 0]))]  # of equals the least id is kept
        text = one_array(docs["text"])
        sizes = pc.binary_length(text).to_numpy(zero_copy_only=False).astype(np.int64)
        index = load(self.work, self.sample.path, self.sample.xxh3)
        best, best_row = empty_best(len(index.sizes))
        shingling = Shingling(self.params, 0)
        for part in views(sizes, train):
            compare(*shingling.sets(text, part), part, tuple(index), best, best_row)
        document, measure = np.nonzero(best_row >= 0)
        found = docs.select(["doc_id", "source"]).take(pa.array(best_row[document, measure]))
        columns = [
            pa.array(measure, pa.int8()), pa.array(document), pa.array(best[document, measure]), *found.columns,
        ]  # fmt: skip
        return pa.table(columns, schema=BEST)


def _words(ids: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """uint64[n, 2]: 16-byte ids as numbers in the order of their bytes."""
    array = pa.concat_arrays(ids.chunks) if ids.num_chunks else pa.array([], ID)
    if not len(array):
        return np.zeros((0, 2), np.uint64)
    words = np.frombuffer(array.buffers()[1], ">u8", 2 * len(array), 16 * array.offset)
    return words.reshape(-1, 2).astype(np.uint64)


def gather(context: Context, draw: Draw) -> tuple[pa.Table, PublishedFile]:
    """The sample (`SAMPLE`, sorted by id) of all partitions, and the file that it was published as."""
    sizes = [part.text_bytes for part in context.partitions]
    files = context.scheduler.map(draw, context.partitions, "split: sample", sizes)
    tables = [read_table(draw.work / file.path, file.xxh3).cast(SAMPLE) for file in files]
    sample = pa.concat_tables([SAMPLE.empty_table(), *tables]).sort_by("doc_id")
    return sample, publish_table(draw.work, "sample.parquet", sample)


def nearest(context: Context, task: Nearest, count: int) -> dict[str, dict[str, Any]]:
    """By measure: `value` float64[count], and of the document of train that has it `doc_id` and `source` (lists;
    None where no shingle is shared). One partition's result is held at a time."""
    sizes = [part.text_bytes for part in context.partitions]
    files = context.scheduler.map(task, context.partitions, "split: similarity", sizes)
    found: dict[str, dict[str, Any]] = {
        name: {"value": np.zeros(count), "doc_id": [None] * count, "source": [None] * count}
        for name in MEASURES
    }
    for file in files:
        table = read_table(task.work / file.path, file.xxh3).cast(BEST)
        for number, name in enumerate(MEASURES):
            _fold(found[name], table.filter(pc.equal(table["measure"], number)))
    return found


def _fold(best: dict[str, Any], table: pa.Table) -> None:
    """Take what is better: the higher value, of equals the document with the least id."""
    document, value = table["document"].to_numpy(), table["value"].to_numpy()
    again = np.flatnonzero(value >= best["value"][document])
    rows = table.take(pa.array(again))
    for place, number, doc, source in zip(
        document[again].tolist(), value[again].tolist(), rows["doc_id"].to_pylist(), rows["source"].to_pylist(),
        strict=True,
    ):  # fmt: skip
        before = best["doc_id"][place]
        if number > best["value"][place] or before is None or doc < before:
            best["value"][place], best["doc_id"][place], best["source"][place] = number, doc, source
