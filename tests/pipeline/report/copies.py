"""What a `dedup` publishes of itself, made by hand, for the section that shows it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.quality.precision import share
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table

BANDING = Banding(13, 7)


def curve(pairs: int, miss: int = 0) -> list[dict[str, Any]]:
    """A measured curve with `pairs` pairs a bin, none in the last."""
    found = []
    for step in range(11):
        low = round(0.5 + 0.05 * step, 2)
        expected = BANDING.found(min(1.0, low + 0.025))
        of = pairs if step < 10 else 0
        hits = max(0, round(expected * of) - miss)
        mean = round(low + 0.02, 3) if of else None
        found.append(
            {"jaccard": low, "mean": mean, "expected": round(expected, 6), **share(hits, of, of / 2)}
        )
    return found


def quality() -> dict[str, Any]:
    """`quality.json` of a run with everything to show."""
    return {
        "similarity": 0.8,
        "recall_at_similarity": round(BANDING.found(0.8), 6),
        "measured": {
            "texts": 1_987,
            "strata": [
                {"from": 64, "to": 127, "texts": 900, "recall": share(80, 84)},
                {"from": 1024, "to": 2047, "texts": 1_087, "recall": share(0, 0)},
            ],
            "recall": share(310, 320, 200.0),
            "lsh_recall": {**share(309, 320, 200.0), "expected": 0.98},
            "curve": curve(40),
            "planted": {
                "texts": 497, "recall": share(228, 231), "lsh_recall": share(228, 231), "curve": curve(50, 1),
            },
            "combined_curve": curve(90),
            "precision": {
                **share(998, 1_000), "least": 0.41, "disagree": 2, "too_long": 1,
            },
        },
        "hot_buckets": [{"documents": 48_211, "example": "ab" * 16}, {"documents": 12, "example": "cd" * 16}],
        "actual": {"scratch_bytes": 912_345_678},
        "counters": {
            "bands": 13, "rows": 7, "clusters": 3, "largest_cluster": 4, "candidates": 123_456, "verified": 4_321,
            "memory_mb": 401, "source/web/docs": 8, "source/web/removed": 0, "source/web/near_removed": 0,
            "source/books/docs": 6, "source/books/removed": 6, "source/books/near_removed": 5,
        },
    }  # fmt: skip


def plan() -> dict[str, Any]:
    return {
        "estimate": {"candidates": 110_000, "memory_mb": 512, "scratch_bytes": 900_000_000, "seconds": 81.0}
    }


def clusters() -> pa.Table:
    """Clusters of 4, 2 and 2 documents."""
    ids = [b"a" * 16] * 4 + [b"b" * 16] * 2 + [b"c" * 16] * 2
    return pa.table(
        {
            "cluster_id": pa.array(ids, pa.binary(16)),
            "doc_id": pa.array([bytes([i]) * 16 for i in range(8)], pa.binary(16)),
            "source": ["web", "web", "books", "web", "books", "web", "web", "web"],
            "survivor": pa.array(ids, pa.binary(16)),
            "kept": [True, False, False, False, True, False, True, True],
            "rule": pa.array([None, "dedup.exact"] + [None] * 6, pa.string()),
            "jaccard": [1.0, 1.0, 0.83, 0.97, 1.0, 0.9, None, None],
        }
    )


def publish(folder: Folder) -> None:
    """All of it, as `dedup` would."""
    publish_bytes(folder, "quality.json", json.dumps(quality()).encode())
    publish_bytes(folder, "plan.json", json.dumps(plan()).encode())
    publish_table(folder, "clusters.parquet", clusters())
