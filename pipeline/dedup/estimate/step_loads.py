"""The steps of a run: tasks, bytes, requests and memory of each, from the expected numbers of records.

The same steps, in the order in which `deduplication.py` maps them; the measured step names of `bench/scale.py` are
these names. All copies of files for other tasks (`job.compact`) are one step, `files together`.
"""

from __future__ import annotations

from typing import NamedTuple

from corpusmill.common.storage import IN_FLIGHT
from corpusmill.pipeline.dedup.candidates import CHUNK, SORTING
from corpusmill.pipeline.dedup.estimate.corpus import measured
from corpusmill.pipeline.dedup.estimate.pilot import READ as PILOT_READ
from corpusmill.pipeline.dedup.estimate.pilot import SAMPLE as PILOT_SAMPLE
from corpusmill.pipeline.dedup.estimate.pilot import TEXT as PILOT_TEXT
from corpusmill.pipeline.dedup.estimate.quantities import (
    FILE_JSON,
    MARKER,
    PLACE_JSON,
    SAMPLE_BYTES,
    Exchange,
    Quantities,
    Widths,
    cells,
    comparison,
    copying_bytes,
    exchanges,
    known_of,
    places_of,
    received,
)
from corpusmill.pipeline.dedup.exact_similarity import PAIR_COST
from corpusmill.pipeline.dedup.removals import MEMBER
from corpusmill.pipeline.dedup.sent_sets import WRITING
from corpusmill.schemas.dedup import DedupParams

PILOT_HELD = 6  # times the text of the documents that the pilot compares
QUALITY_REQUESTS = 40  # requests for what quality.json holds: examples of hot buckets, results of the sample
TABLE_ROW = 50  # bytes of a document in removals/ and in clusters.parquet
Exchanges = dict[str, Exchange]


class Load(NamedTuple):
    """One step. `units` decide its CPU seconds; `entries` are the slices whose places the driver holds."""

    name: str
    tasks: float
    units: dict[str, float]
    read: float = 0.0
    written: float = 0.0
    gets: float = 0.0
    puts: float = 0.0
    files: float = 0.0  # that the driver knows to the end
    entries: float = 0.0
    worker: float = 0.0  # bytes that its largest task holds
    on_driver: bool = False


def loads(q: Quantities, w: Widths, params: DedupParams) -> list[Load]:
    """All steps, in order."""
    x = exchanges(q, w, params)
    found = [sketch(q, w, params), heads(q, w, x)]
    if params.minhash:
        found += [edges(q, w, x), sets(q, w, params, x), verify(q, w, params, x)]
        found += [route(q, w, x), elect(q, w, params, x)]
    found += [settle(q, w, x), removals(q, w, x), tables(q, x)]
    if q.slim:
        found.append(together(x))
    found.append(driver(q, w, x))
    if params.minhash:
        found.append(quality(q, w, params))
    return [_with_markers(load, x) for load in (*found, transform(q))]


def _with_markers(load: Load, x: Exchanges) -> Load:
    """Each task's marker names its files and their slices."""
    places = load.entries if load.name == "files together" else places_of(x, load.name)
    written = load.written + places * PLACE_JSON + load.puts * FILE_JSON
    return load._replace(written=written, entries=load.entries + known_of(x, load.name))


def sketch(q: Quantities, w: Widths, params: DedupParams) -> Load:
    """Per partition: records of documents, texts, bands."""
    written = q.documents * w.doc + q.sent * w.text + q.bands * w.band
    written += min(q.sample * q.partitions, q.sent) * SAMPLE_BYTES
    written += q.planted * q.stored / max(1.0, q.documents)
    planted_mb = q.planted * q.megabytes / max(1.0, q.documents)
    text = q.megabytes * 1e6 / q.partitions
    records = (q.documents * w.doc + q.sent * w.text + 3 * q.bands * w.band) / q.partitions
    return Load(
        "signatures", q.partitions,
        {"mb": q.megabytes, "hashed": q.megabytes * q.permutations, "bands": q.bands, "planted_mb": planted_mb,
         "winnowed": q.megabytes if q.fingerprints else 0.0},
        read=q.stored, written=written, gets=2 * q.partitions, puts=6 * q.partitions + q.planted_in,
        files=5 * q.partitions + q.planted_in if params.minhash else 2 * q.partitions, worker=2.5 * text + records,
    )  # fmt: skip


def heads(q: Quantities, w: Widths, x: Exchanges) -> Load:
    """Per range of text keys: which document leads each group of copies."""
    slices = x["texts"].slices
    return Load(
        "exact copies", q.text_ranges, {"texts": q.sent, "slices": slices}, read=q.sent * w.text,
        written=q.grouped * w.text, gets=slices + q.text_ranges, puts=2 * q.text_ranges,
        worker=4 * q.sent * w.text / q.text_ranges,
    )  # fmt: skip


def edges(q: Quantities, w: Widths, x: Exchanges) -> Load:
    """Per range of band keys: candidate pairs. A range with too many records is read once to be cut, then by each
    part of it as a whole, some records at a time."""
    cut = q.sub_ranges > 1
    slices = x["bands"].slices
    passes = q.sub_ranges + cut
    reads = slices + (q.bands / CHUNK if cut else 0.0)
    tasks = q.band_ranges * (2 * q.sub_ranges - 1 + cut)
    held = (SORTING * q.bands * w.band + 3 * q.edges * w.edge) / q.band_ranges / q.sub_ranges
    return Load(
        "candidates", tasks, {"records": passes * q.bands + q.edges, "slices": passes * reads},
        read=passes * q.bands * w.band,
        written=q.edges * w.edge + (q.edges * w.partner if q.slim else q.edge_nodes * w.location),
        gets=passes * reads + tasks, puts=(6 if cut else 4) * tasks, files=3 * tasks, worker=held,
    )  # fmt: skip


def sets(q: Quantities, w: Widths, params: DedupParams, x: Exchanges) -> Load:
    """Per partition: the shingle sets of candidates and of the sample; planted texts have partitions of their own.
    Sets that are sent are written once more for each task that compares them."""
    tasks = q.partitions + q.planted_in
    asked = ("edges", "partners") if q.slim else ("nodes",)
    slices = sum(x[name].slices for name in asked) + x["heads"].slices
    hashes = q.nodes * q.shingles * w.hash
    sent = x["sent"].records * x["sent"].width if q.slim else 0.0
    read = q.stored + q.documents * w.doc + q.grouped * w.text
    read += sum(x[name].records * x[name].width for name in asked)
    set_mb = q.megabytes * q.nodes / max(1.0, q.documents)
    return Load(
        "shingle sets", tasks, {"mb": q.megabytes, "set_mb": set_mb, "slices": slices}, read=read,
        written=q.nodes * w.node + hashes + sent, gets=(3 if q.slim else 2) * tasks + q.partitions + slices,
        puts=(4 if q.slim else 3) * tasks,
        worker=(2.5e6 * q.megabytes + q.documents * w.doc + 2 * hashes) / q.partitions
        + min(3 * sent / tasks, 3 * (params.memory_mb << 20) / WRITING),
    )  # fmt: skip


def verify(q: Quantities, w: Widths, params: DedupParams, x: Exchanges) -> Load:
    """Per group of partitions: exact similarity of the pairs whose first text is there. The index of each partition
    whose sets it fetches is read once."""
    tasks = max(1.0, q.verify_tasks)
    fetch = received if q.slim else comparison
    one = fetch(q, w, params, q.candidates / tasks, cells(q.edges, 1, q.partitions) / tasks)
    index = q.nodes * w.node / q.partitions
    slices = x["edges"].slices + (x["sent"].slices if q.slim else 0.0)
    held = min((params.memory_mb << 20) / 2, 2 * one.hashes) + PAIR_COST * q.edges / tasks + IN_FLIGHT * index
    return Load(
        "exact similarity", tasks,
        {"hashes": 2 * q.candidates * q.shingles, "opened": tasks * one.opened, "slices": slices + tasks * one.runs},
        read=q.edges * w.edge + tasks * (one.hashes + one.opened * (index + MARKER)),
        written=q.verified * w.pair + q.linked * w.edge,
        gets=slices + tasks * (one.runs + 2 * one.opened + 1), puts=4 * tasks, files=3 * tasks, worker=held,
    )  # fmt: skip


def route(q: Quantities, w: Widths, x: Exchanges) -> Load:
    """Per partition: clustered texts and their pairs, to the ranges of clusters."""
    slices = x["heads"].slices + x["pairs"].slices
    return Load(
        "clusters", q.partitions, {"nodes": q.nodes, "tasks": q.partitions, "slices": slices},
        read=q.nodes * w.node + q.linked * w.label + q.verified * w.pair + q.grouped * w.text,
        written=q.linked * w.member + q.verified * w.pair, gets=4 * q.partitions + slices,
        puts=3 * q.partitions, worker=(2 * q.nodes * w.node + 3 * q.verified * w.pair) / q.partitions,
    )  # fmt: skip


def elect(q: Quantities, w: Widths, params: DedupParams, x: Exchanges) -> Load:
    """Per range of clusters: which texts stay; pairs not yet compared are, from the sets, whose places the members
    know themselves."""
    slices = x["clustered texts"].slices + x["clustered pairs"].slices
    one = comparison(q, w, params, q.compared / q.cluster_ranges, q.partitions)
    return Load(
        "election", q.cluster_ranges,
        {"linked": q.linked, "slices": slices + q.cluster_ranges * one.runs},
        read=q.linked * w.member + q.verified * w.pair + q.cluster_ranges * one.hashes,
        written=q.linked * w.fate, gets=slices + q.cluster_ranges * (one.runs + 1),
        puts=2 * q.cluster_ranges, files=q.cluster_ranges, worker=8 * q.linked * w.member / q.cluster_ranges,
    )  # fmt: skip


def settle(q: Quantities, w: Widths, x: Exchanges) -> Load:
    """Per range of text keys: what becomes of each document's key."""
    slices = x["texts"].slices + (x["fates"].slices if "fates" in x else 0.0)
    routed = q.grouped + q.linked
    return Load(
        "survivors", q.text_ranges, {"records": q.sent + routed, "slices": slices},
        read=q.sent * w.text + q.linked * w.fate, written=routed * w.decided, gets=slices + q.text_ranges,
        puts=2 * q.text_ranges, worker=(4 * q.sent * w.text + q.sent * w.decided) / q.text_ranges,
    )  # fmt: skip


def removals(q: Quantities, w: Widths, x: Exchanges) -> Load:
    """Per partition: a row for each document of a group or cluster."""
    routed, slices = q.grouped + q.linked, x["decided"].slices
    return Load(
        "removals", q.partitions, {"records": q.documents + routed, "tasks": q.partitions, "slices": slices},
        read=q.documents * w.doc + routed * w.decided, written=routed * (TABLE_ROW + MEMBER.itemsize),
        gets=slices + 2 * q.partitions, puts=4 * q.partitions, files=3 * q.partitions,
        worker=(2 * q.documents * w.doc + 4 * routed * w.decided) / q.partitions,
    )  # fmt: skip


def tables(q: Quantities, x: Exchanges) -> Load:
    """Per range of clusters: its part of clusters.parquet."""
    routed, slices = q.grouped + q.linked, x["members"].slices
    tasks = cells(routed, 1, q.text_ranges)
    return Load(
        "table of clusters", tasks, {"clustered": routed, "tasks": tasks, "slices": slices},
        read=routed * MEMBER.itemsize, written=routed * TABLE_ROW, gets=slices + tasks, puts=2 * tasks, files=tasks,
        worker=4 * routed * MEMBER.itemsize / max(1.0, tasks),
    )  # fmt: skip


def together(x: Exchanges) -> Load:
    """Per group of neighbouring files: they are copied into one. Each task reads the markers of the steps that
    wrote them, with the slices of all their files."""
    copied = [e for e in x.values() if e.together]
    size = sum(e.records * e.width for e in copied)
    groups, slices = sum(e.groups for e in copied), sum(e.slices for e in copied)
    markers = sum(places_of(x, e.step) * PLACE_JSON + e.files * MARKER for e in copied)
    places = sum(e.places for e in copied)
    return Load(
        "files together", groups, {"mb": size / 1e6, "slices": places + slices}, read=size + markers,
        written=size, gets=groups + 2 * sum(e.files for e in copied), puts=2 * groups, entries=slices,
        worker=copying_bytes(x),
    )  # fmt: skip


def driver(q: Quantities, w: Widths, x: Exchanges) -> Load:
    """On the driver: the pilot; where slices lie; union-find over forests; clusters.parquet, a part at a time."""
    routed = q.grouped + q.linked
    seen = min(1.0, PILOT_READ / max(1.0, 1e6 * q.megabytes))
    looked = min(PILOT_TEXT / 1e6, q.megabytes, PILOT_SAMPLE * q.megabytes / max(1.0, q.documents))
    hot = 2 * q.band_ranges * q.sub_ranges if "bands" in x else 0.0
    return Load(
        "on the driver", 1,
        {"pilot_mb": looked, "partitions": q.partitions, "linked": q.linked, "clustered": routed,
         "slices": sum(e.slices for e in x.values())},
        read=q.stored * seen + q.linked * w.edge + routed * TABLE_ROW,
        written=q.linked * w.label + routed * TABLE_ROW,
        gets=(2 + seen) * q.partitions + q.planted_in + 2 * q.verify_tasks + q.text_ranges + hot + (QUALITY_REQUESTS if hot else 0),
        puts=6,
        entries=q.partitions,
        worker=max(
            PILOT_HELD * 1e6 * looked, q.linked * measured().label_bytes,
            4 * routed * MEMBER.itemsize / q.text_ranges,
        ),
        on_driver=True,
    )  # fmt: skip


def quality(q: Quantities, w: Widths, params: DedupParams) -> Load:
    """What a run measures of itself: the sample compared with itself, some removals compared again. One task
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
