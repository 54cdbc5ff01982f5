"""The steps of a run: tasks, bytes, requests and memory of each, from the expected numbers of records.

The same steps, in the order in which `run.py` maps them; the measured step names of `bench/scale.py` are
these names.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pipeline.dedup.candidates import SORTING
from pipeline.dedup.estimate.pilot import READ as PILOT_READ
from pipeline.dedup.estimate.pilot import SAMPLE as PILOT_SAMPLE
from pipeline.dedup.estimate.pilot import TEXT as PILOT_TEXT
from pipeline.dedup.estimate.quantities import SAMPLE_BYTES, Quantities, Widths, cells, runs
from pipeline.dedup.sets import GAP
from schemas.dedup import DedupParams

SLICE_JSON, FILE_JSON = 90, 150  # bytes in the marker of a task
PILOT_HELD = 6  # times the text of the documents that the pilot compares
TABLE_ROW = 50  # bytes of a document in removals/ and clusters.parquet
MEMBER_ROW = 80  # bytes of a document on its way to clusters.parquet


class Load(NamedTuple):
    """One step. `units` decide its CPU seconds; `entries` are the slices whose places the driver holds."""

    name: str
    tasks: float
    units: dict[str, float]
    read: float = 0.0
    written: float = 0.0
    gets: float = 0.0
    puts: float = 0.0
    entries: float = 0.0
    worker: float = 0.0  # bytes that its largest task holds
    on_driver: bool = False


def loads(q: Quantities, w: Widths, params: DedupParams) -> list[Load]:
    """All steps, in order."""
    found = [sketch(q, w), heads(q, w)]
    if params.minhash:
        found += [edges(q, w), sets(q, w), verify(q, w, params)]
        found += [route(q, w), elect(q, w, params)]
    found += [settle(q, w), removals(q, w), driver(q, w)]
    if params.minhash:
        found.append(quality(q, w, params))
    return [_with_markers(load) for load in (*found, transform(q))]


def _with_markers(load: Load) -> Load:
    """Each task's marker names its files and their slices."""
    return load._replace(written=load.written + load.entries * SLICE_JSON + load.puts * FILE_JSON)


def sketch(q: Quantities, w: Widths) -> Load:
    """Per partition: records of documents, texts, bands."""
    written = q.documents * w.doc + q.sent * w.text + q.bands * w.band
    written += min(q.sample * q.partitions, q.sent) * SAMPLE_BYTES
    written += q.planted * q.stored / max(1.0, q.documents)
    planted_mb = q.planted * q.megabytes / max(1.0, q.documents)
    text = q.megabytes * 1e6 / q.partitions
    records = (q.documents * w.doc + q.sent * w.text + 3 * q.bands * w.band) / q.partitions
    return Load(
        "signatures", q.partitions,
        {"mb": q.megabytes, "hashed": q.megabytes * q.permutations, "bands": q.bands, "planted_mb": planted_mb},
        read=q.stored, written=written, gets=2 * q.partitions, puts=6 * q.partitions + q.planted_in,
        entries=cells(q.sent, q.partitions, q.text_ranges) + cells(q.bands, q.partitions, q.band_ranges),
        worker=2.5 * text + records,
    )  # fmt: skip


def heads(q: Quantities, w: Widths) -> Load:
    """Per range of text keys: which document leads each group of copies."""
    slices = cells(q.sent, q.partitions, q.text_ranges)
    return Load(
        "exact copies", q.text_ranges, {"texts": q.sent}, read=q.sent * w.text, written=q.grouped * w.text,
        gets=slices + q.text_ranges, puts=2 * q.text_ranges,
        entries=cells(q.grouped, q.partitions, q.text_ranges), worker=4 * q.sent * w.text / q.text_ranges,
    )  # fmt: skip


def edges(q: Quantities, w: Widths) -> Load:
    """Per range of band keys: candidate pairs."""
    slices = cells(q.bands, q.partitions, q.band_ranges)
    out = cells(q.edges, q.band_ranges, q.partitions) + cells(q.edge_nodes, q.band_ranges, q.partitions)
    held = (SORTING * q.bands * w.band + 3 * q.edges * w.edge) / q.band_ranges
    return Load(
        "candidates", q.band_ranges, {"records": q.bands + q.edges}, read=q.bands * w.band,
        written=q.edges * w.edge + q.edge_nodes * w.location, gets=slices + q.band_ranges,
        puts=4 * q.band_ranges, entries=out, worker=held,
    )  # fmt: skip


def sets(q: Quantities, w: Widths) -> Load:
    """Per partition: the shingle sets of candidates and of the sample; planted texts have partitions of their
    own."""
    tasks = q.partitions + q.planted_in
    slices = cells(q.edge_nodes, q.band_ranges, tasks) + cells(q.grouped, q.partitions, q.text_ranges)
    hashes = q.nodes * q.shingles * w.hash
    read = q.stored + q.documents * w.doc + q.edge_nodes * w.location + q.grouped * w.text
    set_mb = q.megabytes * q.nodes / max(1.0, q.documents)
    return Load(
        "shingle sets", tasks, {"mb": q.megabytes, "set_mb": set_mb}, read=read,
        written=q.nodes * w.node + hashes, gets=2 * tasks + q.partitions + slices, puts=3 * tasks,
        worker=(2.5e6 * q.megabytes + q.documents * w.doc + 2 * hashes) / q.partitions,
    )  # fmt: skip


class Compared(NamedTuple):
    """What one task asks of storage to compare pairs."""

    opened: float  # indexes of partitions, read as a whole
    runs: float  # ranges of sets
    hashes: float  # bytes of them


def comparison(q: Quantities, w: Widths, params: DedupParams, pairs: float, first_in: float) -> Compared:
    """Of one task. Sets come by range, one request a run of neighbours, after the whole index of their partition. The first
    texts of a task's pairs lie in `first_in` partitions; a quarter of the budget is held of either side."""
    in_file = q.nodes / q.partitions
    gap = GAP / max(1.0, q.shingles)
    own = min(pairs, q.nodes * first_in / q.partitions)
    rounds = max(1.0, math.ceil(own * q.shingles * w.hash / ((params.memory_mb << 20) / 4)))
    homes, others = cells(own, 1, first_in), cells(pairs, 1, q.partitions)
    each = min(in_file, pairs / max(1e-9, others))
    mine, theirs = runs(own / max(1e-9, homes), in_file, gap), runs(each, in_file, gap)
    requests, texts = (homes * a + rounds * others * b for a, b in zip(mine, theirs, strict=True))
    return Compared(homes + rounds * others, requests, texts * q.shingles * w.hash)


def verify(q: Quantities, w: Widths, params: DedupParams) -> Load:
    """Per partition: exact similarity of the pairs whose first text is there."""
    pairs = q.candidates / q.partitions
    one = comparison(q, w, params, pairs, 1)
    index = q.nodes * w.node / q.partitions
    slices = cells(q.edges, q.band_ranges, q.partitions)
    held = min((params.memory_mb << 20) / 2, 2 * one.hashes) + 4 * q.edges * w.pair / q.partitions + 2 * index
    return Load(
        "exact similarity", q.partitions,
        {"hashes": 2 * q.candidates * q.shingles, "opened": q.partitions * one.opened},
        read=q.edges * w.edge + q.partitions * (one.hashes + one.opened * index),
        written=q.verified * w.pair + q.linked * w.edge,
        gets=slices + q.partitions * (one.runs + 2 * one.opened + 1), puts=4 * q.partitions, worker=held,
    )  # fmt: skip


def route(q: Quantities, w: Widths) -> Load:
    """Per partition: clustered texts and their pairs, to the ranges of clusters."""
    slices = cells(q.grouped, q.partitions, q.text_ranges)
    return Load(
        "clusters", q.partitions, {"nodes": q.nodes, "tasks": q.partitions},
        read=q.nodes * w.node + q.linked * w.label + q.verified * w.pair + q.grouped * w.text,
        written=q.linked * w.member + q.verified * w.pair, gets=5 * q.partitions + slices,
        puts=3 * q.partitions, entries=2 * cells(q.linked, q.partitions, q.cluster_ranges),
        worker=(2 * q.nodes * w.node + 3 * q.verified * w.pair) / q.partitions,
    )  # fmt: skip


def elect(q: Quantities, w: Widths, params: DedupParams) -> Load:
    """Per range of clusters: which texts stay; pairs not yet compared are, from the sets."""
    slices = 2 * cells(q.linked, q.partitions, q.cluster_ranges)
    one = comparison(q, w, params, q.compared / q.cluster_ranges, q.partitions)
    index = q.nodes * w.node / q.partitions
    return Load(
        "election", q.cluster_ranges,
        {"linked": q.linked, "opened": q.cluster_ranges * one.opened},
        read=q.linked * w.member + q.verified * w.pair + q.cluster_ranges * (one.hashes + one.opened * index),
        written=q.linked * w.fate, gets=slices + q.cluster_ranges * (one.runs + 2 * one.opened + 1),
        puts=2 * q.cluster_ranges, entries=cells(q.linked, q.cluster_ranges, q.text_ranges),
        worker=8 * q.linked * w.member / q.cluster_ranges,
    )  # fmt: skip


def settle(q: Quantities, w: Widths) -> Load:
    """Per range of text keys: what becomes of each document's key."""
    slices = cells(q.sent, q.partitions, q.text_ranges) + cells(q.linked, q.cluster_ranges, q.text_ranges)
    told = q.grouped + q.linked
    return Load(
        "survivors", q.text_ranges, {"records": q.sent + told},
        read=q.sent * w.text + q.linked * w.fate, written=told * w.decided, gets=slices + q.text_ranges,
        puts=2 * q.text_ranges, entries=cells(told, q.partitions, q.text_ranges),
        worker=(4 * q.sent * w.text + q.sent * w.decided) / q.text_ranges,
    )  # fmt: skip


def removals(q: Quantities, w: Widths) -> Load:
    """Per partition: a row for each document of a group or cluster."""
    told = q.grouped + q.linked
    slices = cells(told, q.partitions, q.text_ranges)
    return Load(
        "removals", q.partitions, {"records": q.documents + told, "tasks": q.partitions},
        read=q.documents * w.doc + told * w.decided, written=told * (TABLE_ROW + MEMBER_ROW),
        gets=slices + 2 * q.partitions, puts=4 * q.partitions, entries=slices,
        worker=(2 * q.documents * w.doc + 4 * told * w.decided) / q.partitions,
    )  # fmt: skip


def driver(q: Quantities, w: Widths) -> Load:
    """On the driver: the pilot; union-find over forests (the pairs, their sorted ends and labels at once);
    clusters.parquet, a range at a time."""
    told = q.grouped + q.linked
    members = cells(told, q.partitions, q.text_ranges)
    seen = min(1.0, PILOT_READ / max(1.0, 1e6 * q.megabytes))
    looked = min(PILOT_TEXT / 1e6, q.megabytes, PILOT_SAMPLE * q.megabytes / max(1.0, q.documents))
    return Load(
        "on the driver", 1, {"pilot_mb": looked, "partitions": q.partitions, "linked": q.linked, "told": told},
        read=q.stored * seen + q.linked * w.edge + 2 * told * MEMBER_ROW,
        written=q.linked * w.label + told * TABLE_ROW, gets=(6 + seen) * q.partitions + 2 * members, puts=6,
        entries=q.partitions,
        worker=max(
            PILOT_HELD * 1e6 * looked, q.linked * (4 * w.edge + 2 * w.label),
            4 * told * MEMBER_ROW / q.text_ranges,
        ),
        on_driver=True,
    )  # fmt: skip


def quality(q: Quantities, w: Widths, params: DedupParams) -> Load:
    """What a run measures of itself: the sample compared with itself, some removals compared anew. One task
    compares the sample; others read the partitions of audited texts."""
    audited = cells(2 * q.audits, 1, q.partitions)
    one = comparison(q, w, params, q.sample, q.partitions)
    homes = cells(q.sample, 1, q.partitions)
    share = audited / q.partitions
    audited_mb = 2 * q.audits * q.megabytes / max(1.0, q.documents)
    return Load(
        "quality", audited + 21,
        {"texts": q.sample + q.audits, "audited_mb": audited_mb},
        read=q.stored * share + homes * q.nodes * w.node / q.partitions + one.hashes / 2
        + 1e6 * audited_mb,
        written=1e6 * audited_mb + q.sample * SAMPLE_BYTES,
        gets=2 * audited + 2 * homes + one.runs / 2 + 2 * q.audits, puts=2 * audited + 45,
    )  # fmt: skip


def transform(q: Quantities) -> Load:
    """Per partition: the documents that stay, Parquet to Parquet."""
    kept = 1 - (q.exact_removed + q.near_removed) / max(1.0, q.documents)
    return Load(
        "transform", q.partitions, {"mb": q.megabytes, "documents": q.documents}, read=q.stored,
        written=q.stored * kept, gets=3 * q.partitions, puts=3 * q.partitions,
        worker=3.5e6 * q.megabytes / q.partitions,
    )  # fmt: skip
