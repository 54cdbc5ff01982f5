"""What a run reports about itself: its counters, `quality.json` (shares with their confidence intervals, curves and strata),
and the alarms that stop it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup import candidates
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.exact_similarity import Labels
from corpusmill.pipeline.dedup.job import PAIR, Job, parts_of
from corpusmill.pipeline.dedup.quality.planted import PLANTED, mark_found
from corpusmill.pipeline.dedup.quality.precision import AUDIT, audit, measure_precision, share
from corpusmill.pipeline.dedup.quality.recall import LEAST, SAMPLE, Sample, measure
from corpusmill.pipeline.dedup.quality.recall import PAIR as SAMPLE_PAIR
from corpusmill.pipeline.dedup.removals import RULES
from corpusmill.pipeline.dedup.shingle_sets import load_nodes
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.shuffle import Done, Records, by_part, ids, read, starts_of, write
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.engine.unionfind import components
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.manifest import PublishedFile

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Facts = dict[str, Any]
Count = Callable[[Flags, Flags], Facts]  # (which things are meant, which are found) -> their share
BINS = tuple(round(LEAST + 0.05 * step, 2) for step in range(11))
SMALL_SOURCE = 20  # documents: a source with fewer may lose all of them to copies


def summary(
    banding: Banding, similarity: float, texts: Records, pairs: Records, labels: I64, planted: Records,
    precision: Facts,
) -> Facts:  # fmt: skip
    """Recall, the empirical S-curve and precision.

    `texts` (SAMPLE) and `pairs` (recall.PAIR) are what `measure` published, `labels` the clusters of the
    texts, -1 for none; `planted` are PLANTED records, their `found` set. `recall` counts pairs at least as
    similar as asked that ended in one cluster (planted copies that met a text as similar), `lsh_recall` those
    that shared a band; `expected` is the mean of the theoretical probability over the same pairs.

    Intervals are Wilson's, at 95 %. Pairs of one cluster of the sample are not independent: theirs count as
    Kish's effective number of clusters, which is on the safe side.
    """
    a, b = labels[pairs["a"]], labels[pairs["b"]]
    together = (a == b) & (a >= 0)
    groups = components(len(texts), pairs["a"], pairs["b"])[pairs["a"]]
    near = pairs["jaccard"] >= similarity
    grouped = _counter(groups)
    alone = _counter(np.arange(len(planted)))
    meant = planted["jaccard"] >= similarity
    jaccards = np.r_[pairs["jaccard"], planted["jaccard"]]
    both = _counter(np.r_[groups, len(texts) + np.arange(len(planted))])
    hits = np.r_[pairs["hit"], planted["hit"]]
    return {
        "texts": len(texts),
        "strata": _strata(texts, pairs, near, together, grouped),
        "recall": grouped(near, together),
        "lsh_recall": {**grouped(near, pairs["hit"]), "expected": _expected(banding, pairs["jaccard"][near])},
        "curve": _curve(banding, pairs["jaccard"], pairs["hit"], grouped),
        "planted": {
            "texts": len(planted),
            "recall": alone(meant, planted["found"]),
            "lsh_recall": {
                **alone(meant, planted["hit"]),
                "expected": _expected(banding, planted["jaccard"][meant]),
            },
            "curve": _curve(banding, planted["jaccard"], planted["hit"], alone),
        },
        "combined_curve": _curve(banding, jaccards, hits, both),
        "precision": precision,
    }


def _counter(groups: I64) -> Count:
    """Shares of things that belong to groups of dependent ones."""

    def count(meant: Flags, found: Flags) -> Facts:
        of = int(meant.sum())
        sizes = np.unique(groups[meant], return_counts=True)[1].astype(np.float64)
        independent = of * of / float((sizes**2).sum()) if of else 0.0
        return share(int((meant & found).sum()), of, independent)

    return count


def _expected(banding: Banding, jaccards: npt.NDArray[np.float64]) -> float | None:
    if len(jaccards) == 0:
        return None
    distinct, counts = np.unique(jaccards, return_counts=True)
    terms = (banding.found(j) * n for j, n in zip(distinct.tolist(), counts.tolist(), strict=True))
    return round(math.fsum(terms) / len(jaccards), 6)


def _curve(banding: Banding, jaccards: npt.NDArray[np.float64], hits: Flags, count: Count) -> list[Facts]:
    """Share of pairs that share a band, by bins of 0.05 from 0.5 on; the last is 1 alone."""
    curve = []
    for low, high in zip(BINS, [*BINS[1:], 2.0], strict=True):
        some = (jaccards >= low) & (jaccards < high)
        expected = _expected(banding, jaccards[some])
        middle = round(math.fsum(jaccards[some]) / int(some.sum()), 6) if some.any() else None
        curve.append({"jaccard": low, "mean": middle, "expected": expected, **count(some, hits)})
    return curve


def _strata(texts: Records, pairs: Records, near: Flags, together: Flags, count: Count) -> list[Facts]:
    """Texts of the sample by powers of two of their shingles, and the recall of pairs by the shorter text."""
    size = np.frexp(np.maximum(texts["shingles"], 1).astype(np.float64))[1] - 1
    shorter = np.minimum(size[pairs["a"]], size[pairs["b"]])
    return [
        {
            "from": 1 << step,
            "to": (2 << step) - 1,
            "texts": int((size == step).sum()),
            "recall": count(near & (shorter == step), together),
        }
        for step in np.unique(size).tolist()
    ]


@dataclass(frozen=True)
class Steps:
    """What the steps of a run published, by partition or by range; `stage` is the stage's folder, `partitions`
    those whose texts are at hand, `sources` the name of each hash."""

    job: Job
    stage: Folder
    partitions: dict[int, Partition]
    sources: dict[int, str]
    sketches: dict[int, Done]
    edges: list[Done]
    verified: list[Done]
    elected: list[Done]
    removed: list[Done]
    clustered: list[Done]


def all_records(job: Job, dones: list[Done], name: str, dtype: np.dtype[Any]) -> Records:
    """All the records called `name` that these steps published."""
    found = [read(job.work, done.files[name].file, dtype) for done in dones if name in done.files]
    return np.concatenate(found) if found else np.empty(0, dtype)


def publish_json(folder: Folder, path: str, value: dict[str, Any]) -> PublishedFile:
    """Publish a JSON object, keys sorted."""
    return publish_bytes(folder, path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def count(steps: Steps) -> dict[str, int]:
    """The stage's counters."""
    total: Counter[str] = Counter()
    for done in (*steps.sketches.values(), *steps.edges, *steps.verified, *steps.elected, *steps.removed):
        total.update(done.counters)
    hot = candidates.hottest(steps.job, steps.edges)
    counters = {
        "bands": steps.job.banding.bands,
        "rows": steps.job.banding.rows,
        "candidates": total["candidates"],
        "compared": total["compared"],
        "verified": total["verified"],
        "exact_removed": total["dedup.exact"] + total["dedup.normalized"],
        "near_removed": total["dedup.minhash"] + total["dedup.containment"],
        "url_removed": total["dedup.url"],
        "contained_removed": total["dedup.containment"],
        "clusters": sum(done.counters["clusters"] for done in steps.clustered),
        "largest_cluster": max((done.counters["largest_cluster"] for done in steps.clustered), default=0),
        "most_texts_in_a_cluster": max((done.counters["most_texts"] for done in steps.elected), default=0),
        "without_words": total["short"],
        "capped": total["capped"],
        "buckets": total["buckets"],
        "largest_bucket": int(hot["texts"].max()) if len(hot) else 0,
        "cut_short": total["cut_short"],
        "compared_in_election": total["compared_in_election"],
    }
    for value, name in sorted(steps.sources.items(), key=lambda item: item[1]):
        rules = {rule: total[f"{value}/{rule}"] for rule in RULES}
        counters[f"source/{name}/docs"] = total[f"source/{name}/docs"]
        counters[f"source/{name}/removed"] = sum(rules.values())
        counters[f"source/{name}/near_removed"] = rules["dedup.minhash"] + rules["dedup.containment"]
    return counters


def quality(
    steps: Steps, sample: Records, clusters: Labels, promise: dict[str, Any], counters: dict[str, int],
    map_: Callable[..., list[Done]],
) -> dict[str, Any]:  # fmt: skip
    """What `quality.json` holds: the promise, what was found, and how well, measured."""
    job = steps.job
    texts, pairs = np.empty(0, SAMPLE), np.empty(0, SAMPLE_PAIR)
    if len(sample):
        file = write(job.work, "sample", sample, np.zeros(len(sample), np.int64))
        [[part]] = by_part([Done(key="", files={"sample": file})], "sample").values()
        measured = map_(measure, [Sample(part)], "measured recall")
        texts = all_records(job, measured, "texts", SAMPLE)
        pairs = all_records(job, measured, "pairs", SAMPLE_PAIR)
    planted = mark_found(
        all_records(job, list(steps.sketches.values()), "planted", PLANTED),
        all_records(job, steps.verified, "planted", PAIR), job.params.similarity,
    )  # fmt: skip
    planted = _once_a_text(planted)
    precision = measure_precision(job, steps.partitions, _audits(steps), map_)
    labels = clusters.of(texts["location"])
    return {
        **promise,
        "measured": summary(job.banding, job.params.similarity, texts, pairs, labels, planted, precision),
        "hot_buckets": [
            {"documents": int(bucket["texts"]), "example": _id_of(job, int(bucket["location"]))}
            for bucket in candidates.hottest(job, steps.edges)
        ],
        "counters": counters,
    }


def _once_a_text(planted: Records) -> Records:
    """One record for each text that was planted: partitions with the same text each planted the same copy."""
    planted = planted[np.lexsort((planted["planted"], planted["key"]))]
    new = starts_of(planted["key"])
    whole: Records = planted[new].copy()
    if len(planted):
        whole["found"] = np.logical_or.reduceat(planted["found"], np.flatnonzero(new))
    return whole


def _audits(steps: Steps) -> Records:
    """The removals to look at again, of those whose two texts are at hand."""
    found = [read(steps.stage, done.files["audit"].file, AUDIT) for done in steps.removed]
    audits = np.concatenate(found) if found else np.empty(0, AUDIT)
    here = np.array(sorted(steps.partitions), np.int64)
    known = np.isin(parts_of(audits["location"]), here) & np.isin(parts_of(audits["survivor"]), here)
    return audit(audits[known])


def _id_of(job: Job, location: int) -> str:
    """doc_id (hex) of the best document with a candidate text."""
    nodes = load_nodes(job, location >> 32)
    row = nodes[nodes["location"] == location]
    return str(ids(row["id_hi"], row["id_lo"])[0].as_py().hex())


def alarms(params: DedupParams, counters: dict[str, int], folder: Folder) -> None:
    """Raise `WorkError` if near-copies would empty a source, or a cluster is too large to be copies of one
    document. What was found is published: it is there to be looked at."""
    for name in [key.split("/")[1] for key in counters if key.endswith("/docs")]:
        docs, lost = counters[f"source/{name}/docs"], counters[f"source/{name}/near_removed"]
        if docs >= SMALL_SOURCE and lost > params.max_source_loss * docs:
            raise WorkError(
                f"dedup: source '{name}' would lose {lost} of {docs} documents ({lost / docs:.0%}) as"
                f" near-copies, more than dedup.max_source_loss {params.max_source_loss:g}; see"
                f" {folder / 'clusters.parquet'}, then raise dedup.similarity"
                f" (now {params.similarity:g}) or dedup.max_source_loss"
            )
    if counters["most_texts_in_a_cluster"] > params.max_cluster:
        raise WorkError(
            f"dedup: a cluster holds {counters['most_texts_in_a_cluster']} different texts, more than"
            f" dedup.max_cluster {params.max_cluster}: a template rather than copies of one document; see"
            f" {folder / 'clusters.parquet'}, then raise dedup.similarity (now {params.similarity:g}),"
            " dedup.ngram or dedup.max_cluster"
        )
