"""What every task of a run knows, the records that travel between tasks, and files of many steps made into fewer.

A location is `partition index << 32 | row`: an address inside one run, never an identity. Planted near-copies
have locations of their own, above all others.

A task that reads one slice of each of ten thousand files makes ten thousand small requests, and the driver must
know where each lies. Beyond `MOST_SLICES` steps report only that they are finished; tasks then copy the
files of neighbouring steps together, part by part, and those are what is read: a two-level shuffle.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slices, read
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.tables import SPANS

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

PLANTED_PART = 1 << 30  # added to the index of a partition whose texts were planted
PLANTED = PLANTED_PART << 32

# 16-byte ids are two big-endian words, so that numbers sort as the bytes do.
BAND = np.dtype([("key", "<u8"), ("text", "<u8"), ("location", "<i8")])
EDGE = np.dtype([("a", "<i8"), ("b", "<i8")])
# A text that is the second of a pair, and the partition of the first one.
PARTNER = np.dtype([("location", "<i8"), ("first_in", "<i8")])
# A verified pair: exact Jaccard similarity, and the share of the smaller set that the larger one holds.
PAIR = np.dtype([("a", "<i8"), ("b", "<i8"), ("jaccard", "<f8"), ("inside", "<f8")])
HOT = np.dtype([("key", "<u8"), ("texts", "<i8"), ("location", "<i8")])
LABEL = np.dtype([("location", "<i8"), ("cluster", "<i8"), ("range", "<i8")])
HASH = np.dtype("<u8")
LOCATION = np.dtype("<i8")
MOST_SLICES = 1_000_000  # that the driver knows, and that are read one by one
PEAK = "peak_bytes"  # a counter of what a task returns to the driver, never of what is published
COPIES = 2  # of the records that a task holds which puts files together
NUMBERS = 32  # bytes for each record that it holds beside: parts and orders


@dataclass(frozen=True)
class Job:
    """What every task of a run needs: small, and the same for all of them."""

    work: Folder
    params: DedupParams
    banding: Banding
    band_ranges: int
    text_ranges: int
    priorities: tuple[tuple[str, int], ...]
    planted_share: float
    key: str
    slim: bool = False  # steps do not report their parts to the driver: `compact`
    whole: bool = False  # all that is found out about a text is kept, for a lasting index

    @property
    def budget(self) -> int:
        """Bytes of records that a task may hold at once."""
        return self.params.memory_mb << 20

    @property
    def sends(self) -> bool:
        """Whether shingle sets are written once more for each task that compares them, in its order: with very many
        partitions nearly every set would be a request of its own otherwise. Those of an index are for later runs too."""
        return self.slim and not self.whole

    @property
    def keep(self) -> float:
        """How many of a document and its duplicates stay: 0, a number, or infinity."""
        named = {"none": 0.0, "one": 1.0, "all": math.inf}
        return named[self.params.keep] if self.params.keep in named else float(self.params.keep)

    @cached_property
    def order(self) -> tuple[str, str, tuple[int]]:
        """The column that survivor order goes by: ascending, first whether the document may be removed."""
        return ("order", "<i8", (1 + len(self.params.keep_order),))

    @cached_property
    def doc(self) -> np.dtype[Any]:
        """A document: its key (hash of its text, words or URL), id, survivor order, source."""
        return np.dtype(
            [("hi", "<u8"), ("lo", "<u8"), ("id_hi", "<u8"), ("id_lo", "<u8"), ("location", "<i8"),
             ("text", "<u8"), ("source", "<u8"), self.order]
        )  # fmt: skip

    @cached_property
    def text(self) -> np.dtype[Any]:
        """The best documents of a partition with one key; on the first of them how many there are."""
        return np.dtype([*self.doc.descr, ("documents", "<i8"), ("protected", "<i8"), ("shingles", "<i8")])

    @cached_property
    def node(self) -> np.dtype[Any]:
        """A text whose shingle set is stored: where it begins in the partition's file, its size and sum."""
        return np.dtype([*self.text.descr, ("start", "<i8"), ("size", "<i8"), ("sum", "<u8")])

    @cached_property
    def member(self) -> np.dtype[Any]:
        """A node in a cluster, on its way to the election."""
        return np.dtype([*self.node.descr, ("cluster", "<i8")])

    @cached_property
    def fate(self) -> np.dtype[Any]:
        """The election's result for a text: for which document it goes, and how many of its documents that
        may be removed stay."""
        return np.dtype(
            [("hi", "<u8"), ("lo", "<u8"), ("cluster_hi", "<u8"), ("cluster_lo", "<u8"),
             ("survivor_hi", "<u8"), ("survivor_lo", "<u8"), ("survivor_location", "<i8"), ("jaccard", "<f8"),
             ("inside", "<f8"), ("slots", "<f8"), ("own", "?")]
        )  # fmt: skip

    @cached_property
    def decided(self) -> np.dtype[Any]:
        """What a partition receives about a key: the fate, the document that leads it, and the last in survivor
        order that stays."""
        return np.dtype(
            [*self.fate.descr, ("head_hi", "<u8"), ("head_lo", "<u8"), ("head_location", "<i8"),
             ("head_text", "<u8"), ("second_hi", "<u8"), ("second_lo", "<u8"), ("second_location", "<i8"),
             ("last_hi", "<u8"), ("last_lo", "<u8"), ("last_order", *self.order[1:])]
        )  # fmt: skip


def copy_fields(source: Records, target: Records, names: tuple[str, ...] | None) -> Records:
    """`target` with the fields of `source` that have these names."""
    for name in names or ():
        target[name] = source[name]
    return target


def survivor_order(records: Records, *first: npt.NDArray[Any]) -> I64:
    """Indices of document records by `first`, then the one to keep first; the id decides last: no ties."""
    order = [records["order"][:, i] for i in range(records["order"].shape[1])]
    return np.lexsort([*first, *order, records["id_hi"], records["id_lo"]][::-1])


def parts_of(location: I64) -> I64:
    """The partition's index of each location."""
    return location >> 32


@dataclass(frozen=True)
class Compact:
    """Steps by the names of their markers in `work`, and which of their files is to be put together."""

    number: int
    work: Folder
    label: str
    name: str
    markers: tuple[str, ...]
    key: tuple[str, ...]  # checksums of these files


def slim(step: Callable[[Job, Any], Done], job: Job, item: Any) -> Done:
    """A step whose result reports the peak memory of the process, and, if there are very many steps, leaves out
    the parts of its files."""
    done = step(job, item)
    files = {name: File(file=file.file) for name, file in done.files.items()} if job.slim else done.files
    counters = {**done.counters, PEAK: peak_bytes()}
    return done.model_copy(update={"files": files, "counters": counters})


def peak_bytes() -> int:
    """The most resident memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def parts(
    job: Job, work: Folder, dones: Sequence[Done], name: str, map_: Callable[..., list[Done]]
) -> dict[int, Slices]:
    """Part number -> its slices in the files called `name` of all the steps; of slim ones, in copies of them."""
    if not job.slim:
        return shuffle.by_part(dones, name)
    items = [
        Compact(
            number, work, f"{group[0].name.partition('/')[0]}-{name}", name,
            tuple(done.name for done in group), tuple(done.files[name].file.xxh3 for done in group),
        )
        for number, group in enumerate(_groups(job, [done for done in dones if name in done.files], name))
    ]  # fmt: skip
    return shuffle.by_part(map_(compact, items, f"{name} together"), name)


def _groups(job: Job, dones: Sequence[Done], name: str) -> Iterator[list[Done]]:
    """Neighbours whose files a task can hold at once, one at least."""
    held: list[Done] = []
    size = 0
    for done in dones:
        file = done.files[name].file
        more = COPIES * file.bytes + NUMBERS * (file.rows or 0)
        if held and size + more > job.budget:
            yield held
            held, size = [], 0
        held.append(done)
        size += more
    if held:
        yield held


def compact(job: Job, item: Compact) -> Done:
    """Publishes the files of the steps as one in their folder, cut by the same parts."""
    key = hash_json([job.key, "compact", item.label, item.markers, item.key])
    name = f"{'' if item.work == job.work else 'scratch/'}compact/{item.label}/{item.number:06d}"
    return shuffle.once(item.work, name, key, lambda: _compact(job, item, name, key))


def _compact(job: Job, item: Compact, name: str, key: str) -> Done:
    pieces = list(item.work.at_once(partial(_piece, item), item.markers))
    numbers = [np.repeat(table["number"], table["count"]) for _, table in pieces]
    number = np.concatenate([np.empty(0, np.int64), *numbers])
    found = [records for records, _ in pieces if len(records)] or [np.empty(0, "V1")]
    del pieces, numbers
    whole = np.concatenate(found)
    del found
    order = np.argsort(number, kind="stable")
    whole = whole[order]
    return Done(
        key=key, files={item.name: shuffle.write(item.work, f"{name}.{item.name}", whole, number[order])}
    )


def _piece(item: Compact, marker: str) -> tuple[Records, Records]:
    """The records of a step's file, and its parts."""
    done = shuffle.read_marker(item.work, marker)
    if done is None:
        raise WorkError(f"{item.work / marker}.json: missing or changed; run again to rebuild it")
    file = done.files[item.name]
    width = file.file.bytes // max(1, file.file.rows or 0)
    return read(item.work, file.file, np.dtype(f"V{max(1, width)}")), file.table()


def publish_spans(
    folder: Folder, kind: str, partition: str, ids: tuple[U64, U64], starts: I64, lengths: I64
) -> File:
    """Publish `spans/<kind>/<partition>.parquet` (`SPANS`), sorted by document (halves of its id) and start."""
    hi, lo = ids
    order = np.lexsort((starts, lo, hi))
    columns = [shuffle.ids(hi[order], lo[order]), pa.array(starts[order]), pa.array(lengths[order])]
    table = pa.Table.from_arrays(columns, schema=SPANS)
    return File(file=publish_table(folder, f"spans/{kind}/{partition}.parquet", table))


@dataclass(frozen=True)
class Kept:
    """A partition, and what document deduplication left of it.

    `removals` is the folder of the stage's `removals/<name>.parquet` file itself (columns `doc_id` and
    `kept` among others; documents in no cluster are absent, and stay), `xxh3` its checksum. None: all stay.
    """

    index: int
    partition: Partition
    removals: Folder | None = None
    xxh3: str = ""

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The documents that stay, in the order of the partition. Raises `WorkError` for changed bytes."""
        if self.removals is None:
            return self.partition.read(columns)
        found = read_table(self.removals, self.xxh3, ["doc_id", "kept"])
        gone = found["doc_id"].filter(pc.invert(found["kept"]))
        docs = self.partition.read([*dict.fromkeys(["doc_id", *columns])])
        return docs.filter(pc.invert(pc.is_in(docs["doc_id"], value_set=gone))).select(list(columns))
