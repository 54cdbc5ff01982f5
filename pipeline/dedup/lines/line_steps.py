"""The tasks of line deduplication: what each reads, and the records that travel between them.

A partition is read as earlier rounds leave its texts (`texts_of`), and its units are grouped by key (`grouped`). Of each
key a partition sends its best occurrence alone, with the number of all, so that a line in ten million places makes no
more records than there are partitions. Order: documents that lose nothing first, then source priority, doc_id, offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup import span_edges
from corpusmill.pipeline.dedup.job import Kept, publish_spans
from corpusmill.pipeline.dedup.lines import line_kernels
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, Records, Slice
from corpusmill.pipeline.text import buffers as cuts
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.buffers import one_array, view
from corpusmill.schemas.dedup import LineParams
from corpusmill.schemas.manifest import PublishedFile, hash_json

I64 = npt.NDArray[np.int64]

SPAN = np.dtype([("row", "<i8"), ("start", "<i8"), ("stop", "<i8")])  # in the texts that the stage received
# The best occurrence of a key in a partition: `order` is the rank of its source, `location` is `partition index
# << 32 | row`, `count` the occurrences there. The offset decides inside a document alone, so it is not sent.
UNIT = np.dtype(
    [("hi", "<u8"), ("lo", "<u8"), ("id_hi", "<u8"), ("id_lo", "<u8"), ("location", "<i8"), ("order", "<u4"),
     ("count", "<u4")]
)  # fmt: skip
LOST = np.dtype([("hi", "<u8"), ("lo", "<u8")])  # a key whose best occurrence lies in another partition
RECORD_BYTES = 272  # that a range task holds at most for each `UNIT` record: itself, copies, the hash table


@dataclass(frozen=True)
class Job:
    """What every task needs: small, and the same for all of them."""

    folder: Folder  # the stage's
    params: LineParams
    ranges: int  # of keys
    orders: tuple[tuple[str, int], ...]  # rank of each named source; others have that of ""
    removable: tuple[str, ...] | None
    key: str

    @property
    def work(self) -> Folder:
        return self.folder / "scratch/lines"


class Scan(NamedTuple):
    """A partition, and what earlier rounds have found in it."""

    kept: Kept
    round_number: int
    before: PublishedFile | None


class Texts(NamedTuple):
    """A partition with its texts as earlier rounds leave them."""

    id_hi: npt.NDArray[np.uint64]
    id_lo: npt.NDArray[np.uint64]
    sources: list[str]
    source: I64  # of each document, in `sources`
    order: I64  # of each document
    fixed: npt.NDArray[np.bool_]  # the document loses nothing
    original: I64  # offsets of the texts as the stage received them
    before: Records  # `SPAN` records of earlier rounds
    pieces: I64  # what cutting them takes away, as `span_edges.settle` gives it
    offsets: I64
    data: npt.NDArray[np.uint8]


def texts_of(job: Job, item: Scan) -> Texts:
    """Read a partition; raises `WorkError` if it has more documents than a location can number."""
    docs = item.kept.read(["doc_id", "source", "text"])
    if len(docs) >= 2**31 or item.kept.index >= 2**31:
        raise WorkError(f"partition {item.kept.partition.name}: more documents than a location can number")
    names = one_array(docs["source"]).dictionary_encode()
    sources = names.dictionary.to_pylist()
    source = names.indices.to_numpy().astype(np.int64)
    orders = dict(job.orders)
    fixed = np.array([job.removable is not None and name not in job.removable for name in sources], bool)
    order = np.array([orders.get(name, orders[""]) for name in sources], np.int64)
    order += np.where(fixed, 0, len(orders))  # documents that lose nothing are first, whatever their source
    offsets, data = view(one_array(docs["text"]))
    original = offsets
    before, pieces = np.empty(0, SPAN), np.empty((0, 5), np.int64)
    if item.before is not None and item.before.rows:
        before = shuffle.read(job.work, item.before, SPAN)
        columns = [np.ascontiguousarray(before[name], np.int64) for name in ("row", "start", "stop")]
        pieces = span_edges.settle(offsets, data, word_rule.rule(), *columns)
        data, offsets = map(cuts.frozen, cuts.splice(data, offsets, pieces))
    hi, lo = shuffle.words(one_array(docs["doc_id"]))
    return Texts(
        hi, lo, sources, source, order[source], fixed[source], original, before, pieces, offsets, data
    )


class Grouped(NamedTuple):
    """The units of a partition, grouped by key."""

    table: npt.NDArray[np.uint64]  # uint64[units, 5], from `line_kernels.scan`
    hi: npt.NDArray[np.uint64]
    lo: npt.NDArray[np.uint64]
    row: I64
    groups: I64
    firsts: I64
    slots: I64
    best: I64  # of each group


def grouped(job: Job, found: Texts) -> Grouped:
    """The units of the texts, and the best occurrence of each key here: by order, then id, then offset."""
    params = job.params
    unit = line_kernels.UNITS[params.unit]
    table = line_kernels.scan(
        found.offsets, found.data, line_kernels.rule(), unit, params.sentences, params.min_words
    )
    hi, lo = table[:, line_kernels.KEY_HI].copy(), table[:, line_kernels.KEY_LO].copy()
    row = table[:, line_kernels.ROW].astype(np.int64)
    groups, firsts, slots = line_kernels.group(hi, lo)
    rank = np.empty(len(found.order), np.int64)
    rank[np.lexsort((found.id_lo, found.id_hi, found.order))] = np.arange(len(rank))
    best = line_kernels.best(groups, len(firsts), rank[row])
    return Grouped(table, hi, lo, row, groups, firsts, slots, best)


def span_records(rows: I64, starts: I64, stops: I64) -> Records:
    """`SPAN` records."""
    records = np.empty(len(rows), SPAN)
    records["row"], records["start"], records["stop"] = rows, starts, stops
    return records


def as_received(found: Texts, rows: I64, starts: I64, stops: I64) -> Records:
    """Spans of the texts that earlier rounds left, as spans of the texts that the stage received: they take in
    what was cut inside them."""
    pieces, original = found.pieces, found.original
    gone = np.concatenate([[0], np.cumsum(pieces[:, 2] - pieces[:, 1])])
    # Where in the shortened texts, one after the other, each piece was.
    places = original[pieces[:, 0]] - original[0] + pieces[:, 1] - gone[:-1]

    def received(position: I64) -> I64:
        at = found.offsets[rows] - found.offsets[0] + position
        before: I64 = at + gone[np.searchsorted(places, at, side="right")] - (original[rows] - original[0])
        return before

    return span_records(rows, received(starts), received(stops - 1) + 1)


class Range(NamedTuple):
    """A share of a range of keys: as much as a task may hold."""

    number: int
    share: int
    shares: int
    round_number: int
    slices: Sequence[Slice]


class Mark(NamedTuple):
    """A partition, and the keys that it lost to others."""

    scan: Scan
    slices: Sequence[Slice]


def _key(job: Job, step: str, item: Scan, *more: object) -> str:
    before = item.before.xxh3 if item.before else ""
    kept = item.kept
    return hash_json(
        [job.key, step, kept.index, kept.partition.name, kept.partition.xxh3, kept.xxh3, before, *more]
    )


def units(job: Job, item: Scan) -> Done:
    """Publishes a `UNIT` record per distinct key of the partition (`units`), cut by ranges of the key.

    Counters: `units` of them; `repeats`: units that go because another one in the partition stays.
    """
    key = _key(job, "units", item)
    name = f"units/{item.round_number:02d}/{item.kept.index:06d}"
    return shuffle.once(job.work, name, key, lambda: _units(job, item, name, key))


def _units(job: Job, item: Scan, name: str, key: str) -> Done:
    found = texts_of(job, item)
    by_key = grouped(job, found)
    chosen = by_key.best
    order = np.argsort(by_key.hi[chosen], kind="stable")
    high = by_key.hi[chosen[order]]
    if (high[1:] == high[:-1]).any():  # rarely, so that most need one key to sort by
        order = np.lexsort((by_key.lo[chosen], by_key.hi[chosen]))
    counts = np.bincount(by_key.groups, minlength=len(chosen))[order]
    chosen = chosen[order]
    row = by_key.row[chosen]
    records = np.empty(len(chosen), UNIT)
    records["hi"], records["lo"] = by_key.hi[chosen], by_key.lo[chosen]
    records["id_hi"], records["id_lo"] = found.id_hi[row], found.id_lo[row]
    records["location"] = (item.kept.index << 32) + row
    records["order"], records["count"] = found.order[row], counts
    file = shuffle.write(job.work, f"{name}.units", records, shuffle.in_range(records["hi"], job.ranges))
    going = int((~found.fixed[by_key.row]).sum() - (~found.fixed[row]).sum())
    return Done(key=key, files={"units": file}, counters={"units": len(records), "repeats": going})


def compare(job: Job, item: Range) -> Done:
    """Publishes the keys of the range that occur in several partitions (`lost`), cut by partition: for each
    partition those whose best occurrence is not there.

    Counters: `repeated` keys with more than one occurrence, `most` occurrences of one of them.
    """
    key = hash_json([job.key, "compare", *item[:3], [part.xxh3 for part in item.slices]])
    name = f"compare/{item.round_number:02d}/{item.number:06d}-{item.share:03d}"
    return shuffle.once(job.work, name, key, lambda: _compare(job, item, name, key))


def _compare(job: Job, item: Range, name: str, key: str) -> Done:
    records = _share(job, item)
    hi, lo = records["hi"].copy(), records["lo"].copy()
    groups, firsts, _ = line_kernels.group(hi, lo)
    totals = np.zeros(len(firsts), np.int64)
    np.add.at(totals, groups, records["count"])
    members = np.bincount(groups, minlength=len(firsts))
    shared = np.flatnonzero(members[groups] > 1)
    some = records[shared]
    rank = np.empty(len(some), np.int64)
    rank[np.lexsort((some["id_lo"], some["id_hi"], some["order"]))] = np.arange(len(some))
    best = line_kernels.best(groups[shared], len(firsts), rank)
    losers = some[best[groups[shared]] != np.arange(len(some))]
    part = losers["location"] >> 32
    order = np.lexsort((losers["lo"], losers["hi"], part))
    lost = np.empty(len(losers), LOST)
    lost["hi"], lost["lo"] = losers["hi"][order], losers["lo"][order]
    counters = {"repeated": int((totals > 1).sum()), "most": int(totals.max(initial=0))}
    file = shuffle.write(job.work, f"{name}.lost", lost, part[order])
    return Done(key=key, files={"lost": file}, counters=counters)


def _share(job: Job, item: Range) -> Records:
    """The records of the share, a slice at a time: a range with more than a task may hold is read again for
    each of its shares."""
    if item.shares == 1:
        return shuffle.read_slices(job.work, item.slices, UNIT)
    wanted = item.number * item.shares + item.share
    found = [np.empty(0, UNIT)]
    for part in item.slices:
        records = shuffle.read_slices(job.work, [part], UNIT)
        found.append(records[shuffle.in_range(records["hi"], job.ranges * item.shares) == wanted])
    return np.concatenate(found)


def mark(job: Job, item: Mark) -> Done:
    """Publishes what is cut from the partition (`spans`): `SPAN` records of this and earlier rounds, sorted.

    Counters: `lines` cut in this round; of all rounds `bytes`, `documents` and `source/<name>/bytes`.
    """
    key = _key(job, "mark", item.scan, [part.xxh3 for part in item.slices])
    name = f"mark/{item.scan.round_number:02d}/{item.scan.kept.index:06d}"
    return shuffle.once(job.work, name, key, lambda: _mark(job, item, name, key))


def _mark(job: Job, item: Mark, name: str, key: str) -> Done:
    found = texts_of(job, item.scan)
    by_key = grouped(job, found)
    keys = shuffle.read_slices(job.work, item.slices, LOST)
    places = line_kernels.look_up(
        by_key.slots, by_key.firsts, by_key.hi, by_key.lo, keys["hi"].copy(), keys["lo"].copy()
    )
    assert (places >= 0).all(), "a partition receives its own keys only"
    lost = np.zeros(len(by_key.firsts), bool)
    lost[places] = True
    best = np.zeros(len(by_key.row), bool)
    best[by_key.best] = True
    going = (lost[by_key.groups] | ~best) & ~found.fixed[by_key.row]
    rows = by_key.row[going]
    starts = by_key.table[going, line_kernels.OFFSET].astype(np.int64)
    stops = starts + by_key.table[going, line_kernels.LENGTH].astype(np.int64)
    new = as_received(found, *line_kernels.union(rows, starts, stops))
    both = np.concatenate([found.before, new])
    both = both[np.lexsort((both["start"], both["row"]))]
    rows, starts, stops = line_kernels.union(*(both[field].copy() for field in ("row", "start", "stop")))
    records = span_records(rows, starts, stops)
    sizes = np.zeros(len(found.sources), np.int64)
    np.add.at(sizes, found.source[rows], stops - starts)
    counters = Counter({"lines": int(going.sum()), "bytes": int(sizes.sum())})
    counters["documents"] = len(np.unique(rows))
    counters.update({f"source/{found.sources[i]}/bytes": int(sizes[i]) for i in np.flatnonzero(sizes)})
    file = shuffle.write(job.work, f"{name}.spans", records)
    return Done(key=key, files={"spans": file}, counters=dict(counters))


def publish(job: Job, item: Scan) -> Done:
    """Publishes `spans/lines/<partition>.parquet` under the stage's folder: what `item.before` holds."""
    key = _key(job, "publish", item)
    name = f"scratch/lines/publish/{item.kept.index:06d}"
    return shuffle.once(job.folder, name, key, lambda: _publish(job, item, key))


def _publish(job: Job, item: Scan, key: str) -> Done:
    found = shuffle.read(job.work, item.before, SPAN) if item.before else np.empty(0, SPAN)
    hi, lo = shuffle.words(one_array(item.kept.read(["doc_id"])["doc_id"]))
    ids, starts = (hi[found["row"]], lo[found["row"]]), found["start"]
    name = item.kept.partition.name
    file = publish_spans(job.folder, "lines", name, ids, starts, found["stop"] - starts)
    return Done(key=key, files={"spans": file})
