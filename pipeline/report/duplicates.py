"""Duplicates: what was removed, how large the clusters are, and the recall measured against the theory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow.compute as pc

from pipeline.report.sections import loose_json
from pipeline.report.survey import JACCARD_BINS, Survey, read_columns
from schemas.ledger import REMOVED
from schemas.manifest import StageManifest
from schemas.storage import Folder

COUNTERS = ("candidates", "verified", "clusters", "largest_cluster", "largest_bucket")
SIZES = ((2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 50), (51, 100), (101, 1000), (1001, None))


def duplicates(folder: Folder | None, manifest: StageManifest | None, found: Survey) -> dict[str, Any] | None:
    """The section; None without `dedup`. What the stage did not publish is None or left out."""
    if folder is None or manifest is None:
        return None
    quality = loose_json(folder, "quality.json") or {}
    counters = {**manifest.counters, **_mapping(quality.get("counters")), **quality}
    by_rule: Counter[str] = Counter()
    for (rule, outcome, _), count in found.first.items():
        if rule.stage == manifest.stage and outcome == REMOVED:
            by_rule[rule.rule] += count
    exact = sum(count for rule, count in by_rule.items() if "exact" in rule)
    measured = _mapping(quality.get("measured"))
    return {
        "removed": manifest.counts.removed,
        "exact": exact,
        "near": manifest.counts.removed - exact,
        "rules": dict(sorted(by_rule.items())),
        "similarity": quality.get("similarity", manifest.params.get("similarity")),
        "bands": counters.get("bands"),
        "rows": counters.get("rows"),
        **{name: counters.get(name) for name in COUNTERS},
        "recall_expected": quality.get("recall_at_similarity"),
        "recall": _share(measured.get("recall")),
        "precision": _share(quality.get("precision")),
        "sampled_texts": measured.get("texts"),
        "s_curve": _theory(counters.get("bands"), counters.get("rows")),
        "s_curve_measured": [
            {name: point.get(name) for name in ("jaccard", "value", "found", "of", "low", "high")}
            for point in measured.get("curve") or ()
            if isinstance(point, dict) and point.get("value") is not None
        ],
        "cluster_sizes": _cluster_sizes(folder),
        "jaccard": [found.jaccard[b] for b in range(JACCARD_BINS)],
    }


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _share(value: Any) -> dict[str, Any] | None:
    """A measured share with its interval, if something was counted."""
    known = _mapping(value)
    return known if known.get("value") is not None else None


def _theory(bands: int | None, rows: int | None) -> list[list[float]]:
    """(Jaccard s, probability of becoming a candidate): 1 - (1 - s^r)^b for b bands of r rows."""
    if not bands or not rows:
        return []
    return [
        [round(s, 4), round(float(1 - (1 - s**rows) ** bands), 6)] for s in np.linspace(0, 1, 51).tolist()
    ]


def _cluster_sizes(folder: Folder) -> list[dict[str, Any]] | None:
    """How many clusters have how many documents, in ranges; from `clusters.parquet`."""
    try:
        table = read_columns(folder / "clusters.parquet", ["cluster_id"])
    except FileNotFoundError:
        return None
    if "cluster_id" not in table.column_names:
        return None
    sizes = pc.value_counts(table["cluster_id"].combine_chunks()).field("counts").to_numpy()
    rows = []
    for low, high in SIZES:
        inside = sizes[(sizes >= low) & (sizes <= (high or np.iinfo(np.int64).max))]
        rows.append({"from": low, "to": high, "clusters": len(inside), "documents": int(inside.sum())})
    while rows and not rows[-1]["clusters"]:
        rows.pop()
    return rows
