"""Records that travel between tasks: slices, files put together before they are read, and sets fetched for comparison.

Each exchange is one call of `Deduplication.parts`. Records cut by `columns` in so many files are so many slices, whose
places the driver holds and which are read one by one. Beyond `MOST_SLICES` of the largest exchange the files of
neighbours are first copied together (`compaction.py`): then the slices are those of the groups.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from corpusmill.pipeline.dedup.compaction import COPIES, NUMBERS
from corpusmill.pipeline.dedup.estimate.measured import Measured
from corpusmill.pipeline.dedup.estimate.quantities import Quantities, Widths, cells, runs
from corpusmill.pipeline.dedup.removals import MEMBER
from corpusmill.pipeline.dedup.shingle_sets import GAP
from corpusmill.schemas.dedup import DedupParams

MARKER = 600  # bytes of the marker of a partition's sets

PLACE_JSON = 54  # bytes of a slice in the marker of a task
FILE_JSON = 150  # and of a file


class Compared(NamedTuple):
    """Of one task."""

    opened: float  # partitions that have sets of it: of each the index is read once
    runs: float  # ranges of sets, one request each
    hashes: float  # bytes of them
    rounds: float  # fillings of the memory for the first texts


def comparison(q: Quantities, w: Widths, params: DedupParams, pairs: float, first_in: float) -> Compared:
    """Of a task with so many pairs whose first texts lie in `first_in` partitions.

    A quarter of the budget is held of the first texts' sets; for each such filling the partners in it are fetched
    from wherever they lie, also a quarter at a time. Sets come by range, neighbours in one request. A pair's second
    text lies in its first text's partition or after it: of p pairs a task, spread at random, the task at place u of
    1 has 2 p (1 - u), with partners in (1 - u) of the partitions; the mean is that of p pairs over half of them.
    """
    in_file = q.nodes / q.partitions
    gap = GAP / max(1.0, q.shingles)
    own = min(pairs, q.nodes * first_in / q.partitions)
    rounds = max(1.0, math.ceil(own * q.shingles * w.hash / ((params.memory_mb << 20) / 4)))
    homes, others = cells(own, 1, first_in), cells(pairs / rounds, 1, (q.partitions + 1) / 2)
    each = min(in_file, pairs / rounds / max(1e-9, others))
    mine, theirs = runs(own / max(1e-9, homes), in_file, gap), runs(each, in_file, gap)
    requests, texts = (homes * a + rounds * others * b for a, b in zip(mine, theirs, strict=True))
    opened = min(q.partitions, homes + cells(pairs, 1, (q.partitions + 1) / 2))
    return Compared(opened, requests, texts * q.shingles * w.hash, rounds)


class Exchange(NamedTuple):
    """Records of `width` bytes in `files` files of one step, cut by `columns`."""

    step: str  # that writes them
    records: float
    width: int
    files: float
    columns: float
    kept: bool  # the driver holds the slices to the end of the run, not only for one step
    marked: bool  # and the results of the step that wrote them
    together: float  # bytes that a task holds which puts files together; 0: the files are read as they are
    apart: bool = False  # each part is in one file only

    @property
    def copying(self) -> int:
        """Bytes that a task holds for each record which it puts together."""
        return COPIES * self.width + NUMBERS

    @property
    def places(self) -> float:
        """Slices in the files as they are written."""
        return cells(self.records, 1 if self.apart else self.files, self.columns)

    @property
    def groups(self) -> float:
        """Files that are read: as they are, or groups of neighbours, one file at least."""
        if not self.together:
            return self.files
        each = self.records * self.copying / max(1.0, self.files)
        return math.ceil(self.files / max(1, math.floor(self.together / max(1.0, each))))

    @property
    def slices(self) -> float:
        """Slices that the driver knows and that are read."""
        return cells(self.records, 1 if self.apart else self.groups, self.columns)


def exchanges(q: Quantities, w: Widths, params: DedupParams) -> dict[str, Exchange]:
    """All of them, by name: what is exchanged, if two steps use one name with the step that writes it."""
    most = float(params.memory_mb << 20) if q.slim else 0.0
    routed = q.grouped + q.linked
    found = {
        "texts": Exchange("signatures", q.sent, w.text, q.partitions, q.text_ranges, True, True, most),
        "heads": Exchange("exact copies", q.grouped, w.text, q.text_ranges, q.partitions, True, False, most),
        "decided": Exchange("survivors", routed, w.decided, q.text_ranges, q.partitions, True, False, most),
        "members": Exchange(
            "removals", routed, MEMBER.itemsize, q.partitions, q.text_ranges, False, True, most
        ),
    }
    if not params.minhash:
        return found
    edge_files = q.band_ranges * (2 * q.sub_ranges - 1)
    homes = q.partitions + q.planted_in
    return found | {
        "bands": Exchange("signatures", q.bands, w.band, q.partitions, q.band_ranges, False, True, most),
        "edges": Exchange("candidates", q.edges, w.edge, edge_files, q.partitions, True, True, most),
        "nodes": Exchange("candidates", q.edge_nodes, w.location, edge_files, homes, False, True, most),
        "pairs": Exchange(
            "exact similarity", q.verified, w.pair, q.verify_tasks, q.partitions, False, True, most, True
        ),
        "clustered pairs": Exchange(
            "clusters", q.verified, w.pair, q.partitions, q.cluster_ranges, False, False, most
        ),
        "clustered texts": Exchange(
            "clusters", q.linked, w.member, q.partitions, q.cluster_ranges, False, False, most
        ),
        "fates": Exchange("election", q.linked, w.fate, q.cluster_ranges, q.text_ranges, False, True, most),
    }


def places_of(found: dict[str, Exchange], step: str) -> float:
    """Slices in the markers of a step."""
    return sum(exchange.places for exchange in found.values() if exchange.step == step)


def known_of(found: dict[str, Exchange], step: str) -> float:
    """Slices of a step's files that the driver knows as they were written."""
    return sum(e.places for e in found.values() if e.step == step and not e.together)


def copying_bytes(found: dict[str, Exchange]) -> float:
    """What the largest task holds that puts files together."""
    each = [e.records / max(1.0, e.groups) * e.copying for e in found.values() if e.together]
    return max(each, default=0.0)


def slices_bytes(found: dict[str, Exchange], constants: Measured) -> float:
    """What the driver holds at most for places: of all that it keeps, and of the largest exchange under way."""
    kept = sum(e.slices * constants.slice_bytes for e in found.values() if e.kept)
    marked = sum(e.places * constants.place_bytes for e in found.values() if e.marked and not e.together)
    return kept + marked + max((e.slices for e in found.values()), default=0.0) * constants.routing_bytes
