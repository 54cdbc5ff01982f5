"""The sections of the report that come from one stage's files (among them what `decontaminate` found of each evaluation
set), or straight from the survey; and the section on duplicates: what was
removed and from where, the largest clusters, recall and precision as measured, and what the plan had expected."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.storage import Folder
from corpusmill.pipeline.report.survey import JACCARD_BINS, Survey, read_columns
from corpusmill.schemas.manifest import StageManifest
from corpusmill.schemas.shards import INDEX, ShardSet
from corpusmill.schemas.tables import KEPT, REMOVED


def loose_json(folder: Folder | None, name: str) -> dict[str, Any] | None:
    """A JSON object that another stage published; None when there is none."""
    if folder is None:
        return None
    try:
        value = json.loads((folder / name).read())
    except FileNotFoundError:
        return None
    return value if isinstance(value, dict) else None


def pii(manifest: StageManifest | None, found: Survey) -> dict[str, Any] | None:
    """Spans that `redact` replaced, by kind and source."""
    if manifest is None:
        return None
    spans = {(source, kind): n for (stage, source, kind), n in found.edits.items() if stage == manifest.stage}
    kinds: Counter[str] = Counter()
    for (_, kind), count in spans.items():
        kinds[kind] += count
    wanted = manifest.params.get("kinds") or []
    return {
        "spans": sum(kinds.values()),
        "documents": sum(n for (stage, _), n in found.edited.items() if stage == manifest.stage),
        "replacement": manifest.params.get("replacement"),
        "kinds": [{"kind": kind, "spans": kinds[kind]} for kind in dict.fromkeys([*wanted, *sorted(kinds)])],
        "sources": [
            {"source": source, **{kind: spans.get((source, kind), 0) for kind in sorted(kinds)}}
            for source in sorted({source for source, _ in spans})
        ],
    }


def cuts(found: Survey) -> list[dict[str, Any]]:
    """Spans that the filter's rules on lines cut out of kept documents, those that cut most characters first."""
    spans: Counter[str] = Counter()
    chars: Counter[str] = Counter()
    sources: dict[str, dict[str, int]] = {}
    for (stage, source, kind), count in sorted(found.edits.items()):
        if stage == "filter":
            spans[kind] += count
            chars[kind] += found.edit_chars[stage, source, kind]
            sources.setdefault(kind, {})[source] = count
    rows = [
        {"rule": kind, "spans": n, "characters": chars[kind], "sources": sources[kind]}
        for kind, n in spans.items()
    ]
    return sorted(rows, key=lambda row: (-row["characters"], row["rule"]))


def languages(found: Survey) -> list[dict[str, Any]] | None:
    """Documents by language, as the filter identified it, most frequent first."""
    codes = sorted({code for _, code in found.languages})
    rows = [
        {
            "language": code,
            "documents": found.languages["in", code] or None,
            "kept": found.languages["kept", code],
            "kept_bytes": found.language_bytes[code],
        }
        for code in codes
    ]
    return sorted(rows, key=lambda r: (-(r["documents"] or 0), -r["kept"], r["language"])) or None


def lengths(found: Survey) -> dict[str, Any]:
    """Documents per power of two of their UTF-8 bytes, as ingested: all, and those kept in the end."""
    bins = sorted({place for _, place in found.lengths})
    span = range(bins[0], bins[-1] + 1) if bins else range(0)
    every: Counter[int] = Counter()
    for (_, place), count in found.lengths.items():
        every[place] += count
    return {
        "from_bytes": [2**place for place in span],
        "documents": [every[place] for place in span],
        "kept": [found.lengths[KEPT, place] for place in span],
    }


def tokenizer(folder: Folder | None, manifest: StageManifest | None) -> dict[str, Any] | None:
    """`stats.json` as the stage published it, with the vocabulary's size."""
    if folder is None or manifest is None:
        return None
    stats = loose_json(folder, "stats.json") or {}
    return {"vocab_size": manifest.params.get("vocab_size"), **stats}


def shards(folder: Folder | None) -> dict[str, Any] | None:
    """The shard set, a row per source and split; None when no shards were written."""
    if folder is None:
        return None
    try:
        index = ShardSet.model_validate_json((folder / INDEX).read())
    except FileNotFoundError:
        return None
    value: dict[str, Any] = index.model_dump(exclude={"kind"})
    return value


TABLE = "contamination.json"
DONE = {"remove": "removed", "cut": "cut", "report": "reported"}


def contamination(folder: Folder | None) -> dict[str, Any] | None:
    """`contamination.json` as the stage published it, with totals; None when the stage did not run."""
    table = loose_json(folder, TABLE)
    if table is None:
        return None
    sets = sorted(table["sets"], key=lambda row: (-row["documents"], -row["contaminated"], row["set"]))
    sources = sorted({source["source"] for row in sets for source in row["sources"]})
    for row in sets:
        row["by_source"] = {entry["source"]: entry["documents"] for entry in row["sources"]}
        row["share"] = row["contaminated"] / row["items"] if row["items"] else 0.0
    return {
        **table,
        "sets": sets,
        "sources": sources,
        "done": DONE.get(table["action"], table["action"]),
        "total": sum(table["documents"].values()),
        "contaminated": sum(row["contaminated"] for row in sets),
        "items": sum(row["items"] for row in sets),
    }


Facts = dict[str, Any]

COUNTERS = ("candidates", "verified", "clusters", "largest_cluster", "largest_bucket")
SIZES = ((2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 50), (51, 100), (101, 1000), (1001, None))
LARGEST = 10  # clusters shown
HOT = 10  # buckets shown
POINT = ("jaccard", "mean", "expected", "value", "found", "of", "low", "high")
# What the plan may estimate: its name there, that on the page, and its unit.
PLANNED = (
    ("candidates", "candidate pairs", "count"),
    ("verified", "pairs at the similarity", "count"),
    ("exact_removed", "exact copies removed", "count"),
    ("near_removed", "near-copies removed", "count"),
    ("shuffled_bytes", "intermediate files", "bytes"),
    ("scratch_bytes", "intermediate files", "bytes"),
    ("worker_bytes", "memory of a worker", "bytes"),
    ("memory_mb", "memory of a worker", "MiB"),
    ("driver_bytes", "memory of the driver", "bytes"),
    ("cpu_seconds", "CPU time", "seconds"),
    ("seconds", "wall time", "seconds"),
)
AUDITED: Facts = {"least": None, "disagree": 0, "too_long": 0}
EXACT = ("exact", "normalized")
NEAR = ("minhash", "containment")


def duplicates(folder: Folder | None, manifest: StageManifest | None, found: Survey) -> Facts | None:
    """The section; None without `dedup`. What the stage did not publish is None or left out."""
    if folder is None or manifest is None:
        return None
    quality = loose_json(folder, "quality.json") or {}
    plan = loose_json(folder, "plan.json") or {}
    counters = {**manifest.counters, **_mapping(quality.get("counters")), **quality}
    by_rule: Counter[str] = Counter()
    for (rule, outcome, _), count in found.first.items():
        if rule.stage == manifest.stage and outcome == REMOVED:
            by_rule[rule.rule] += count
    measured = _mapping(quality.get("measured"))
    planted = _mapping(measured.get("planted"))
    precision = _share(measured.get("precision"))
    clusters = _clusters(folder)
    return {
        "removed": manifest.counts.removed,
        "exact": _named(by_rule, EXACT),
        "near": _named(by_rule, NEAR),
        "rules": dict(sorted(by_rule.items())),
        "similarity": quality.get("similarity", manifest.params.get("similarity")),
        "promised": _promised(manifest.params),
        "bands": counters.get("bands"),
        "rows": counters.get("rows"),
        **{name: counters.get(name) for name in COUNTERS},
        "recall_expected": quality.get("recall_at_similarity"),
        "recall": _share(measured.get("recall")),
        "lsh_recall": _share(measured.get("lsh_recall")),
        "planted_recall": _share(planted.get("recall")),
        "planted_lsh_recall": _share(planted.get("lsh_recall")),
        "precision": None if precision is None else {**AUDITED, **precision},
        "sampled_texts": measured.get("texts"),
        "planted_texts": planted.get("texts"),
        "strata": [row for row in measured.get("strata") or () if isinstance(row, dict)],
        "s_curve": _theory(counters.get("bands"), counters.get("rows")),
        "s_curve_measured": _points(measured.get("curve")),
        "s_curve_planted": _points(planted.get("curve")),
        "planned": _planned(plan, quality, counters),
        "losses": _losses(counters),
        "max_source_loss": manifest.params.get("max_source_loss"),
        "cluster_sizes": None if clusters is None else _cluster_sizes(clusters),
        "largest_clusters": None if clusters is None else _largest(clusters),
        "hot_buckets": [row for row in quality.get("hot_buckets") or () if isinstance(row, dict)][:HOT],
        "cuts": _cuts(manifest.stage, found),
        "jaccard": [found.jaccard[b] for b in range(JACCARD_BINS)],
    }


def _mapping(value: Any) -> Facts:
    return value if isinstance(value, dict) else {}


def _named(by_rule: Counter[str], parts: tuple[str, ...]) -> int:
    return sum(count for rule, count in by_rule.items() if any(part in rule for part in parts))


def _share(value: Any) -> Facts | None:
    """A measured share with its interval, if something was counted."""
    known = _mapping(value)
    return known if known.get("value") is not None else None


def _promised(params: Facts) -> float | None:
    """The recall that was asked for at `similarity`; None where bands and rows were given instead."""
    by_hand = params.get("bands") is not None or params.get("preset") == "datatrove"
    return None if by_hand else params.get("recall")


def _points(curve: Any) -> list[Facts]:
    """The bins of a measured curve in which there was something to count."""
    return [
        {name: point.get(name) for name in POINT}
        for point in curve or ()
        if isinstance(point, dict) and point.get("value") is not None
    ]


def _theory(bands: int | None, rows: int | None) -> list[list[float]]:
    """(Jaccard s, probability of becoming a candidate): 1 - (1 - s^r)^b for b bands of r rows."""
    if not bands or not rows:
        return []
    return [
        [round(s, 4), round(float(1 - (1 - s**rows) ** bands), 6)] for s in np.linspace(0, 1, 51).tolist()
    ]


def _planned(plan: Facts, quality: Facts, counters: Facts) -> list[Facts]:
    """What the plan expected beside what came of it: `actual` of quality.json, or its counters."""
    expected, actual = _mapping(plan.get("estimate")), _mapping(quality.get("actual"))
    rows: dict[str, Facts] = {}
    for name, what, unit in PLANNED:
        if expected.get(name) is not None and what not in rows:
            came = actual.get(name, counters.get(name))
            rows[what] = {"what": what, "unit": unit, "expected": expected[name], "actual": came}
    return list(rows.values())


def _losses(counters: Facts) -> list[Facts]:
    """Documents that each source had and lost to `dedup`, those that lost the largest share first."""
    rows = []
    for key in counters:
        if key.startswith("source/") and key.endswith("/docs"):
            source = key.removeprefix("source/").removesuffix("/docs")
            removed, near = (counters.get(f"source/{source}/{what}") for what in ("removed", "near_removed"))
            rows.append({"source": source, "documents": counters[key], "removed": removed, "near": near or 0})
    return sorted(rows, key=lambda row: (-row["near"] / max(1, row["documents"]), row["source"]))


def _clusters(folder: Folder) -> pa.Table | None:
    """What the page needs of `clusters.parquet`."""
    names = ["cluster_id", "source", "kept", "jaccard"]
    try:
        table = read_columns(folder / "clusters.parquet", names)
    except FileNotFoundError:
        return None
    return table if "cluster_id" in table.column_names else None


def _cluster_sizes(table: pa.Table) -> list[Facts]:
    """How many clusters have how many documents, in ranges."""
    sizes = pc.value_counts(table["cluster_id"].combine_chunks()).field("counts").to_numpy()
    rows = []
    for low, high in SIZES:
        inside = sizes[(sizes >= low) & (sizes <= (high or np.iinfo(np.int64).max))]
        rows.append({"from": low, "to": high, "clusters": len(inside), "documents": int(inside.sum())})
    while rows and not rows[-1]["clusters"]:
        rows.pop()
    return rows


def _largest(table: pa.Table) -> list[Facts]:
    """The clusters with the most documents: how many of them stay, from which sources, and the least
    similarity of one to that which stays for it. Of equally large ones those that stand first, by id."""
    counts = pc.value_counts(table["cluster_id"].combine_chunks())
    most = np.argsort(-counts.field("counts").to_numpy(), kind="stable")[:LARGEST]
    members = table.filter(
        pc.is_in(table["cluster_id"], value_set=counts.field("values").take(pa.array(most)))
    )
    found = {
        counts.field("values")[place].as_py(): {"documents": counts.field("counts")[place].as_py()}
        for place in most.tolist()
    }
    for name, how in (("kept", "sum"), ("jaccard", "min")):
        if name in members.column_names:
            for row in members.group_by("cluster_id", use_threads=False).aggregate([(name, how)]).to_pylist():
                found[row["cluster_id"]][name] = row[f"{name}_{how}"]
    if "source" in members.column_names:
        rows = members.group_by(["cluster_id", "source"], use_threads=False).aggregate([([], "count_all")])
        for row in sorted(rows.to_pylist(), key=lambda row: (-row["count_all"], row["source"])):
            one = {"source": row["source"], "documents": row["count_all"]}
            found[row["cluster_id"]].setdefault("sources", []).append(one)
    empty: Facts = {"kept": None, "jaccard": None, "sources": []}
    return [{"cluster": key.hex(), **empty, **fact} for key, fact in found.items()]


def _cuts(stage: str, found: Survey) -> Facts | None:
    """Spans that were cut from documents that stay, or were left with too little, by kind and source."""
    rows: Counter[str] = Counter()
    for (where, _, kind), count in found.edits.items():
        if where == stage:
            rows[kind] += count
    if not rows:
        return None
    return {
        "spans": sum(rows.values()),
        "documents": sum(count for (where, _), count in found.edited.items() if where == stage),
        "kinds": [
            {
                "kind": kind,
                "spans": count,
                "sources": {
                    source: n
                    for (where, source, of), n in sorted(found.edits.items())
                    if (where, of) == (stage, kind)
                },
            }
            for kind, count in sorted(rows.items())
        ],
    }
