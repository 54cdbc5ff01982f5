"""Clusters counted by range of their hash, by tasks: where a corpus has so many that the driver could not hold them all.

A partition's clusters go to a file cut by range; the task of a range has all documents of each of its clusters, and gives the
driver those that may be chosen, one by one, and of the others sums. The choice is the same as where all are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import hash_ids
from corpusmill.pipeline.engine.shuffle import (
    Done,
    File,
    Slices,
    by_part,
    ids,
    in_range,
    read_slices,
    starts_of,
    words,
    write,
)
from corpusmill.pipeline.engine.stage import Context, Partition
from corpusmill.pipeline.split.measure import ALL, REST, ROWS, Measure, Measured

DOCUMENTS = 20_000_000  # of a range, on average
# A cluster in a source: its hash, the halves of its id, the hash of the source's name.
CLUSTER = np.dtype(
    [("hash", "<u8"), ("hi", "<u8"), ("lo", "<u8"), ("source", "<u8"), ("docs", "<i8"), ("bytes", "<i8")]
)


class Routed(NamedTuple):
    """Of a partition: documents that are alone, the file of its clusters, and the names of its sources."""

    alone: Measured
    file: File
    names: list[str]


@dataclass(frozen=True)
class Route:
    """Publish the clusters of a partition, sorted by hash and cut by range."""

    measure: Measure
    work: Folder
    ranges: int

    def __call__(self, partition: Partition) -> Routed:
        found = self.measure(partition)
        joined = found.joined
        rows = np.zeros(len(joined), CLUSTER)
        rows["hash"] = hash_ids(joined["unit"], self.measure.seed)
        rows["hi"], rows["lo"] = words(joined["unit"].combine_chunks())
        names = pc.unique(joined["source"]).to_pylist()
        codes = np.array([source_hash(name) for name in names], np.uint64)
        place = pc.index_in(joined["source"], value_set=pa.array(names, pa.string())).to_numpy()
        rows["source"] = codes[place.astype(np.int64)]
        rows["docs"], rows["bytes"] = joined["docs"].to_numpy(), joined["bytes"].to_numpy()
        rows = rows[np.argsort(rows["hash"], kind="stable")]
        numbers = in_range(rows["hash"], self.ranges)
        file = write(self.work, f"clusters/{partition.name}.bin", rows, numbers)
        return Routed(found._replace(joined=ROWS.empty_table()), file, names)


@dataclass(frozen=True)
class Merge:
    """A range of clusters: listed are those whose hash lies below the threshold of one of their sources."""

    thresholds: Mapping[str, int]
    usual: int
    work: Folder
    names: tuple[str, ...]

    def __call__(self, slices: Slices) -> Measured:
        rows = read_slices(self.work, slices, CLUSTER)
        rows = rows[np.lexsort((rows["source"], rows["lo"], rows["hi"], rows["hash"]))]
        first = np.flatnonzero(starts_of(rows["hash"], rows["hi"], rows["lo"], rows["source"]))
        docs, sizes = (np.add.reduceat(rows[name], first) for name in ("docs", "bytes"))
        rows = rows[first]
        codes = np.array([source_hash(name) for name in self.names], np.uint64)
        order = np.argsort(codes)
        source = order[np.searchsorted(codes[order], rows["source"])]
        least = np.array([self.thresholds.get(name, self.usual) for name in self.names], np.uint64)
        # A cluster is listed in all of its sources, or in none.
        begins = np.flatnonzero(starts_of(rows["hash"], rows["hi"], rows["lo"]))
        below = np.logical_or.reduceat(rows["hash"] <= least[source], begins)
        listed = np.repeat(below, np.diff(np.r_[begins, len(rows)]))
        count = int(listed.sum())
        table = pa.table(
            [
                pa.array(self.names, pa.string()).take(pa.array(source[listed])),
                ids(rows["hi"][listed], rows["lo"][listed]),
                pa.array([""] * count),
                pa.array(np.ones(count, bool)),
                pa.array(docs[listed]),
                pa.array(sizes[listed]),
            ],
            schema=ROWS,
        )
        rest = []
        for number, name in enumerate(self.names):
            left = (source == number) & ~listed
            some = {"source": name, "docs": int(docs[left].sum()), "bytes": int(sizes[left].sum())}
            if left.any():
                rest.append({**some, "groups": int(left.sum()), "complete": int(least[number])})
            elif (source == number).any():
                rest.append({**some, "groups": 0, "complete": ALL})
        return Measured(table, ROWS.empty_table(), pa.Table.from_pylist(rest, schema=REST))


def source_hash(name: str) -> int:
    """Of the name of a source, in a record."""
    return xxhash.xxh3_64_intdigest(name.encode())


def measured(context: Context, measure: Measure, sizes: Sequence[int], ranges: int) -> list[Measured]:
    """What `measure` counts over all partitions, the clusters by range."""
    work = context.folder / "scratch"
    routed: list[Any] = context.scheduler.map(
        Route(measure, work, ranges), context.partitions, "split", sizes
    )
    names = tuple(sorted({name for one in routed for name in one.names}))
    parts = by_part([Done(key="", files={"clusters": one.file}) for one in routed], "clusters")
    merge = Merge(measure.thresholds, measure.usual, work, names)
    merged = context.scheduler.map(merge, list(parts.values()), "split: clusters")
    return [*(one.alone for one in routed), *merged]


def ranges_of(context: Context) -> int:
    """How many ranges the clusters of a corpus are counted in; 1: the driver holds them all."""
    return -(-sum(part.rows for part in context.partitions) // DOCUMENTS) or 1
