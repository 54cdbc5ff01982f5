"""Which validation documents are compared with train: all, or so many of each source as a bound on text allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import groups_of, hash_ids
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.split.index import SAMPLE
from corpusmill.pipeline.text.shingles import one_array
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.documents import ID
from corpusmill.schemas.manifest import PublishedFile

I64 = npt.NDArray[np.int64]
DOCUMENTS = 10_000  # compared at most: what a document of train may cost grows with them
VIEW = 4 << 20  # bytes of text at a time


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
