"""A partition as line deduplication sees it: its texts as earlier turns leave them, and their units by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup import span_edges
from corpusmill.pipeline.dedup.lines import line_kernels
from corpusmill.pipeline.dedup.spans import Kept
from corpusmill.pipeline.engine.shuffle import Records, read, words
from corpusmill.pipeline.text import splicing as cuts
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.shingles import one_array, view
from corpusmill.schemas.dedup import LineParams
from corpusmill.schemas.manifest import PublishedFile

I64 = npt.NDArray[np.int64]

SPAN = np.dtype([("row", "<i8"), ("start", "<i8"), ("stop", "<i8")])  # in the texts that the stage received


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
    """A partition, and what earlier turns have found in it."""

    kept: Kept
    turn: int
    before: PublishedFile | None


class Texts(NamedTuple):
    """A partition with its texts as earlier turns leave them."""

    id_hi: npt.NDArray[np.uint64]
    id_lo: npt.NDArray[np.uint64]
    sources: list[str]
    source: I64  # of each document, in `sources`
    order: I64  # of each document
    fixed: npt.NDArray[np.bool_]  # the document loses nothing
    original: I64  # offsets of the texts as the stage received them
    before: Records  # `SPAN` records of earlier turns
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
        before = read(job.work, item.before, SPAN)
        columns = [np.ascontiguousarray(before[name], np.int64) for name in ("row", "start", "stop")]
        pieces = span_edges.settle(offsets, data, word_rule.rule(), *columns)
        data, offsets = cuts.splice(data, offsets, pieces)
    hi, lo = words(one_array(docs["doc_id"]))
    return Texts(
        hi, lo, sources, source, order[source], fixed[source], original, before, pieces, offsets, data
    )


class Grouped(NamedTuple):
    """The units of a partition, grouped by key."""

    table: npt.NDArray[np.uint64]  # uint64[units, 5], as `kernel.scan` gives them
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
    return Grouped(
        table, hi, lo, row, groups, firsts, slots, line_kernels.best(groups, len(firsts), rank[row])
    )


def span_records(rows: I64, starts: I64, stops: I64) -> Records:
    """`SPAN` records."""
    records = np.empty(len(rows), SPAN)
    records["row"], records["start"], records["stop"] = rows, starts, stops
    return records


def as_received(found: Texts, rows: I64, starts: I64, stops: I64) -> Records:
    """Spans of the texts that earlier turns left, as spans of the texts that the stage received: they take in
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
