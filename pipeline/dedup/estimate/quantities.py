"""How many records of each kind a run will have, and how they travel between tasks: slices, files put together before they
are read, and sets fetched for comparison.

Each `Exchange` is one call of `Deduplication.parts`. Records cut by `columns` in so many files are so many slices, whose
places the driver holds and which are read one by one. Beyond `MOST_SLICES` of the largest exchange the files of
neighbours are first copied together (`job.compact`): then the slices are those of the groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.candidates import SORTING, WINDOW
from corpusmill.pipeline.dedup.estimate.corpus import BINS, Corpus, Measured, at_least, in_bins, left
from corpusmill.pipeline.dedup.exact_similarity import PAIR_COST, TASKS, WIDTH
from corpusmill.pipeline.dedup.job import (
    BAND,
    COPIES,
    EDGE,
    HASH,
    LABEL,
    LOCATION,
    MOST_SLICES,
    NUMBERS,
    PAIR,
    PARTNER,
    Job,
)
from corpusmill.pipeline.dedup.quality.precision import SIZE as AUDITS
from corpusmill.pipeline.dedup.removals import MEMBER
from corpusmill.pipeline.dedup.shingle_sets import DENSE_GAP, GAP, RUN
from corpusmill.pipeline.dedup.sketch import WINNOW
from corpusmill.schemas.dedup import DedupParams

SAMPLE_BYTES = 40  # of a sampled text, at most
KEYS_HELD = 4  # times the records of a range of keys that `heads` and `settle` hold
MARKER = 600  # bytes of the marker of a partition's sets
PLACE_JSON = 54  # bytes of a slice in the marker of a task
FILE_JSON = 150  # and of a file


@dataclass(frozen=True)
class Widths:
    """Bytes of each kind of record, those of the code that writes them."""

    doc: int
    text: int
    node: int
    member: int
    fate: int
    decided: int
    band: int = BAND.itemsize
    edge: int = EDGE.itemsize
    pair: int = PAIR.itemsize
    label: int = LABEL.itemsize
    location: int = LOCATION.itemsize
    partner: int = PARTNER.itemsize
    hash: int = HASH.itemsize


def widths(params: DedupParams) -> Widths:
    """Record sizes; some hold the survivor order, which the parameters decide."""
    job: Any = Job(Folder("memory://estimate"), params, Banding(1, 1), 1, 1, (), 0.0, "")
    names = ("doc", "text", "node", "member", "fate", "decided")
    return Widths(**{name: getattr(job, name).itemsize for name in names})


@dataclass(frozen=True)
class Quantities:
    """Expected counts, over the whole corpus."""

    partitions: float
    documents: float
    megabytes: float  # of text
    stored: float  # bytes of the Parquet partitions
    shingles: float  # distinct ones of a document
    permutations: int  # that a signature has
    texts: float  # different texts
    sent: float  # different texts of each partition, summed
    grouped: float  # documents whose text another has
    bands: float  # band records, and fingerprints where containment is asked for
    fingerprints: float
    band_ranges: int
    sub_ranges: int  # that each of them is cut in, since fingerprints do not count for their number
    text_ranges: int
    cluster_ranges: int
    candidates: float  # distinct pairs
    edges: float  # pairs as written: distinct within a range
    edge_nodes: float  # candidate texts as written: distinct within a range
    nodes: float  # texts whose shingle sets are written
    verify_tasks: float
    verified: float
    linked: float  # texts in a verified pair
    exact_removed: float
    near_removed: float
    compared: float  # pairs of a cluster that only the election compares, at most
    planted: float
    planted_in: float  # partitions with planted texts
    sample: float
    audits: float

    @property
    def slim(self) -> bool:
        """Whether files are put together before they are read, and shingle sets sent to the tasks that compare them,
        since slices and requests would be too many."""
        return self.partitions * max(self.band_ranges, self.text_ranges) > MOST_SLICES


def quantities(corpus: Corpus, params: DedupParams, banding: Banding) -> Quantities:
    """The counts to expect of the corpus with these parameters.

    A text has so many candidates or duplicates as its pairs, spread over the texts at random, make: a Poisson
    number; real copies lie closer together, so fewer texts are linked, and fewer stay. Of `containment` the
    fingerprints are counted (of random hashes the least of `WINNOW` neighbours is picked 2 / (WINNOW + 1) times a
    shingle), not the pairs that they lead to. A candidate pair is written once by each range that finds it; a text at most `WINDOW` times a band.
    """
    wide = widths(params)
    budget = params.memory_mb << 20
    documents, partitions = float(corpus.documents), float(max(1, corpus.partitions))
    texts = corpus.texts
    sent = documents * left(corpus.copies / partitions)
    grouped = documents * -math.expm1(-corpus.copies)
    contained = params.minhash and params.containment is not None
    fingerprints = sent * corpus.shingles * 2 / (WINNOW + 1) if contained else 0.0
    bands = sent * banding.bands + fingerprints if params.minhash else 0.0
    planted = min(float(params.planted), texts) if params.minhash else 0.0
    sample = min(float(params.sample), texts) if params.minhash else 0.0
    in_range = max(1, budget // (SORTING * wide.band))
    band_ranges = max(1, math.ceil(documents * banding.bands / in_range))
    of_one = bands / band_ranges / in_range
    sub_ranges = math.ceil(of_one) if of_one > 2 else 1
    text_ranges = max(1, math.ceil(documents * KEYS_HELD * wide.text / budget))
    candidates = edges = verified = 0.0
    if params.minhash and texts > 1:
        found, meetings = in_bins(banding)
        by_range = in_bins_of_ranges(banding, band_ranges)
        most = WINDOW * texts * banding.bands  # edges that the window lets through
        candidates = min(corpus.expected(found), most)
        edges = max(candidates, min(corpus.expected(np.minimum(by_range, meetings)), most))
        verified = min(corpus.expected(found * at_least(params.similarity)), candidates)
    ends = 2 * edges / max(1.0, texts * band_ranges)
    edge_nodes = texts * band_ranges * -math.expm1(-ends) + 2 * planted
    nodes = texts * -math.expm1(-2 * candidates / max(1.0, texts)) + sample + 2 * planted
    linked = texts * -math.expm1(-2 * verified / max(1.0, texts))
    near_removed = texts * (1 - left(2 * verified / max(1.0, texts)))
    exact = documents - texts if params.exact or params.normalized else 0.0
    return Quantities(
        partitions=partitions, documents=documents, megabytes=corpus.text_bytes / 1e6,
        stored=float(corpus.stored_bytes), shingles=corpus.shingles,
        permutations=banding.bands * banding.rows, texts=texts, sent=sent, grouped=grouped,
        bands=bands, fingerprints=fingerprints, band_ranges=band_ranges, sub_ranges=sub_ranges,
        text_ranges=text_ranges,
        cluster_ranges=max(1, math.ceil(linked * WIDTH * wide.member / budget)),
        candidates=candidates, edges=edges + planted, edge_nodes=edge_nodes, nodes=min(nodes, texts + planted),
        verify_tasks=verify_tasks(edges + planted, partitions, budget), verified=verified, linked=linked, exact_removed=exact, near_removed=near_removed,
        compared=near_removed * max(0.0, 2 * verified / max(1.0, linked) - 1), planted=planted,
        planted_in=cells(planted, 1, partitions), sample=sample,
        audits=min(float(AUDITS), near_removed + exact) if params.minhash else 0.0,
    )  # fmt: skip


def verify_tasks(edges: float, partitions: float, budget: int) -> float:
    """Tasks of exact comparison, as `verify.groups_of` joins the partitions that have candidate pairs."""
    homes = cells(edges, 1, partitions)
    if homes <= 0:
        return 0.0
    together = min(max(1.0, homes // TASKS), max(1.0, budget / PAIR_COST // (edges / homes)))
    return homes / together


def in_bins_of_ranges(banding: Banding, ranges: int) -> Any:
    """Number of ranges that find a pair, mean over each bin: the bands are spread over the ranges at random."""
    x = (np.arange(BINS * 10) + 0.5) / (BINS * 10)
    per_range = banding.bands / ranges
    found = -ranges * np.expm1(per_range * np.log1p(-(x**banding.rows)))
    return found.reshape(BINS, 10).mean(axis=1)


def cells(records: float, rows: float, columns: float) -> float:
    """How many of rows x columns slices are not empty, if so many records are spread over them at random."""
    slots = rows * columns
    return min(records, slots * -math.expm1(-records / slots)) if slots > 0 else 0.0


def runs(wanted: float, of: float, gap: float) -> tuple[float, float]:
    """(requests, neighbours read) for `wanted` of `of` neighbours in a file at random places, if gaps of up to
    `gap` neighbours are read over."""
    if wanted <= 1 or of <= wanted:
        return min(1.0, wanted), wanted
    p, q = wanted / of, 1 - wanted / of
    longest = math.floor(gap)
    power = q**longest
    # Gaps are geometric; those read over are at most `longest`.
    between = max(0.0, q * (1 - (longest + 1) * power + longest * power * q) / p)
    return 1 + (wanted - 1) * power * q, min(of, wanted + (wanted - 1) * between)


class Compared(NamedTuple):
    """Of one task."""

    opened: float  # partitions that have sets of it: of each the index is read once
    runs: float  # ranges of sets, one request each
    hashes: float  # bytes of them
    rounds: float  # fillings of the memory for the second texts


def comparison(q: Quantities, w: Widths, params: DedupParams, pairs: float, first_in: float) -> Compared:
    """Of a task with so many pairs whose first texts lie in `first_in` partitions, if it fetches all sets.

    A quarter of the budget is held of the second texts' sets, fetched from wherever they lie; for each such filling
    the first texts of their pairs are fetched, also a quarter at a time. Sets come by range, neighbours in one
    request. A pair's second text lies in its first text's partition or after it: of p pairs a task, spread at random,
    the task at place u of 1 has 2 p (1 - u), with partners in (1 - u) of the partitions; the mean is that of p pairs
    over half of them.
    """
    in_file = q.nodes / q.partitions
    others = cells(pairs, 1, (q.partitions + 1) / 2)
    each = min(in_file, pairs / max(1e-9, others))
    requests, texts = (others * x for x in runs(each, in_file, GAP / max(1.0, q.shingles)))
    mine = first_sets(q, w, params, pairs, first_in, GAP)
    opened = min(q.partitions, mine.opened + others)
    return Compared(opened, requests + mine.runs, texts * q.shingles * w.hash + mine.hashes, mine.rounds)


def first_sets(
    q: Quantities, w: Widths, params: DedupParams, pairs: float, first_in: float, gap: int
) -> Compared:
    """Of the same task, what it fetches for the first texts alone, gaps of `gap` hashes read over."""
    in_file = q.nodes / q.partitions
    rounds = max(1.0, math.ceil(pairs * q.shingles * w.hash / ((params.memory_mb << 20) / 4)))
    own = min(pairs / rounds, q.nodes * first_in / q.partitions)
    homes = cells(own, 1, first_in)
    requests, texts = runs(own / max(1e-9, homes), in_file, gap / max(1.0, q.shingles))
    cuts = texts * q.shingles / RUN
    return Compared(
        homes, rounds * homes * (requests + cuts), rounds * homes * texts * q.shingles * w.hash, rounds
    )


def received(q: Quantities, w: Widths, params: DedupParams, pairs: float, first_in: float) -> Compared:
    """Of the same task, if the sets of the second texts are sent to it; their slices are counted by the exchange."""
    mine = first_sets(q, w, params, pairs, first_in, DENSE_GAP)
    return mine._replace(hashes=mine.hashes + pairs * q.shingles * w.hash)


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
    if q.slim:
        # A task is sent sets from its own partitions and those after them, half of them in the mean.
        receivers, width = (q.verify_tasks + 1) / 2, round(q.shingles * w.hash) + 2 * w.hash
        found["partners"] = Exchange("candidates", q.edges, w.partner, edge_files, homes, False, True, most)
        found["sent"] = Exchange("shingle sets", q.candidates, width, homes, receivers, False, True, 0.0)
    else:
        found["nodes"] = Exchange("candidates", q.edge_nodes, w.location, edge_files, homes, False, True, 0.0)
    return found | {
        "bands": Exchange("signatures", q.bands, w.band, q.partitions, q.band_ranges, False, True, most),
        "edges": Exchange("candidates", q.edges, w.edge, edge_files, q.partitions, True, True, most),
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
