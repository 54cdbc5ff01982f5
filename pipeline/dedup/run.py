"""The deduplication of a corpus, step by step, on the driver: what the stage's `prepare` does.

sketch (per partition) -> edges, copies (per range) -> sets, verify (per partition) -> clusters (here) ->
removals (per partition). Every step is resumable by itself; the driver holds counts, verified pairs and
clustered documents, never signatures or texts.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.dedup import candidates, members, quality, sketch, verify
from pipeline.dedup.banding import Banding
from pipeline.dedup.clusters import F64, I64
from pipeline.dedup.members import MEMBER, Clustering
from pipeline.dedup.records import (
    NODE,
    SAMPLE,
    SIMILARITY,
    TEXT,
    Done,
    Job,
    Records,
    Slice,
    by_part,
    ids,
    parts_of,
    read,
    write,
)
from pipeline.publish import publish_bytes, publish_table
from pipeline.stage import Context
from schemas.dedup import DedupParams
from schemas.errors import WorkError
from schemas.manifest import PublishedFile, hash_json

# Records that a range task sorts at once: about half a GB. The corpus decides how many ranges, the workers
# never.
BANDS_PER_RANGE = 6_000_000
TEXTS_PER_RANGE = 2_000_000
SMALL_SOURCE = 20  # documents: a source with fewer may lose all of them to copies
NO_SLICES: tuple[Slice, ...] = ()

REMOVALS = pa.schema(
    [
        pa.field("doc_id", pa.binary(16), nullable=False),
        pa.field("cluster_id", pa.binary(16), nullable=False),
        pa.field("survivor", pa.binary(16), nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("rule", pa.string()),
        pa.field("jaccard", pa.float64(), nullable=False),
    ]
)


class Deduplication:
    """One run of the stage over `context.partitions`."""

    def __init__(self, context: Context, params: DedupParams, banding: Banding, version: str) -> None:
        rows = sum(partition.rows for partition in context.partitions)
        priorities = tuple(sorted((name, source.priority) for name, source in context.recipe.sources.items()))
        ranges = (max(1, -(-rows * banding.bands // BANDS_PER_RANGE)), max(1, -(-rows // TEXTS_PER_RANGE)))
        key = hash_json(
            [version, params.model_dump(mode="json"), list(banding), list(ranges), list(priorities)]
        )
        self.context, self.params, self.banding = context, params, banding
        self.rows = rows
        self.job = Job(context.folder / "scratch", params, banding, *ranges, priorities, key)
        self.names = {index: partition.name for index, partition in enumerate(context.partitions)}

    def map(self, step: Any, items: list[Any], label: str, sizes: list[int] | None = None) -> list[Done]:
        return self.context.scheduler.map(partial(step, self.job), items, f"dedup {label}", sizes)

    def run(self) -> tuple[list[PublishedFile], dict[str, int]]:
        """Publish plan, clusters, removals and quality; (files, counters).

        Raises `WorkError` if a source loses more than the set share; clusters and quality are there to be
        looked at.
        """
        plan = publish_bytes(self.context.folder, "plan.json", _json(self.plan()))
        sizes = [partition.text_bytes for partition in self.context.partitions]
        sketches = self.map(sketch.sketch, list(enumerate(self.context.partitions)), "signatures", sizes)
        texts = by_part(sketches, "texts")
        copies = self.map(
            candidates.copies, [candidates.Range(*item) for item in texts.items()], "exact copies"
        )
        edges = []
        if self.params.minhash:
            bands = by_part(sketches, "bands")
            edges = self.map(
                candidates.edges, [candidates.Range(*item) for item in bands.items()], "candidates"
            )
        sample = self.draw(sketches)
        nodes = self.load_sets(sketches, edges, sample)
        verified = self.verify("verify", by_part(edges, "edges"))
        pairs = self.records(verified, "pairs", SIMILARITY)
        found = members.cluster(
            nodes, pairs, self.records(copies, "copies", TEXT), list(self.params.keep_order),
            self.params.similarity, self.compare,
        )  # fmt: skip
        counters = self.count(sketches, edges, verified, found)
        table = members.clusters_table(found.members, self.sources(sketches))
        files = [plan, publish_table(self.context.folder, "clusters.parquet", table)]
        report = self.quality(sample, found, counters)
        files.append(publish_bytes(self.context.folder, "quality.json", _json(report)))
        self.check_losses(counters, found, self.sources(sketches))
        return [*files, *self.removals(found.members)], counters

    def plan(self) -> dict[str, Any]:
        """What is promised before the work begins."""
        return {
            "bands": self.banding.bands,
            "rows": self.banding.rows,
            "permutations_used": self.banding.bands * self.banding.rows,
            "similarity": self.params.similarity,
            "recall_at_similarity": round(self.banding.found(self.params.similarity), 6),
            "s_curve": self.banding.curve(),
            "documents": self.rows,
            "band_ranges": self.job.band_ranges,
            "text_ranges": self.job.text_ranges,
        }

    def records(self, dones: list[Done], name: str, dtype: np.dtype[Any]) -> Records:
        """All the records called `name` of several steps."""
        found = [read(self.job.work, done.files[name].file, dtype) for done in dones]
        return np.concatenate(found) if found else np.empty(0, dtype)

    def draw(self, sketches: list[Done]) -> Records:
        """The sample of the corpus, out of the partitions' samples."""
        return sketch.draw(
            self.records([done for done in sketches if "sample" in done.files], "sample", SAMPLE)
        )

    def load_sets(self, sketches: list[Done], edges: list[Done], sample: Records) -> Records:
        """Have the sets of candidates and of the sample written; the candidate texts, by location."""
        wanted = by_part(edges, "nodes")
        drawn = parts_of(sample["location"])
        items = []
        for index, partition in enumerate(self.context.partitions):
            rows = tuple(sample["location"][drawn == index].tolist())
            if index in wanted or rows:
                texts = sketches[index].files["texts"].file
                items.append(verify.Wanted(index, partition, texts, wanted.get(index, NO_SLICES), rows))
        sizes = [item.partition.text_bytes for item in items]
        return self.records(self.map(verify.sets, items, "shingle sets", sizes), "nodes", NODE)

    def verify(self, step: str, pairs: dict[int, tuple[Slice, ...]]) -> list[Done]:
        """The exact similarity of candidate pairs, a step per partition of their first texts."""
        items = [verify.Pairs(index, step, slices) for index, slices in pairs.items()]
        return self.map(verify.verify, items, "exact similarity")

    def compare(self, turn: int, a: I64, b: I64) -> F64:
        """Similarity of further pairs, by location: members of a cluster with a text that stays."""
        low, high = np.minimum(a, b), np.maximum(a, b)
        pairs = candidates.unique_edges(low, high)
        step = f"round{turn:02d}"
        file = write(self.job.work, f"{step}/pairs", pairs, parts_of(pairs["a"]))
        done = self.verify(step, by_part([Done(key="", files={"edges": file})], "edges"))
        similar = self.records(done, "pairs", SIMILARITY)
        # Both are sorted by (a, b), as the partitions of `a` ascend with the parts.
        return similar["jaccard"][_position(low, high)]

    def sources(self, sketches: list[Done]) -> dict[int, str]:
        """Hash -> name of every source that has documents."""
        names = {
            name.split("/")[1] for done in sketches for name in done.counters if name.startswith("source/")
        }
        return {sketch.source_hash(name): name for name in sorted(names)}

    def count(
        self, sketches: list[Done], edges: list[Done], verified: list[Done], found: Clustering
    ) -> dict[str, int]:
        """The stage's counters."""
        total: Counter[str] = Counter()
        for done in [*sketches, *verified]:
            total.update(done.counters)
        gone = found.members[~found.members["kept"]]
        exact = gone["copy"] & self.params.exact
        sizes = _group_sizes(found.members)
        counters = {
            "bands": self.banding.bands,
            "rows": self.banding.rows,
            "candidates": total["candidates"],
            "verified": total["verified"],
            "exact_removed": int(exact.sum()),
            "near_removed": int((~exact).sum()),
            "clusters": len(sizes),
            "largest_cluster": int(sizes.max()) if len(sizes) else 0,
            "without_words": total["short"],
            "buckets": sum(done.counters["buckets"] for done in edges),
            "largest_bucket": max((done.counters["largest_bucket"] for done in edges), default=0),
            "cut_short": found.cut_short,
        }
        for value, name in sorted(self.sources(sketches).items(), key=lambda item: item[1]):
            of_source = gone["source"] == value
            counters[f"source/{name}/docs"] = total[f"source/{name}/docs"]
            counters[f"source/{name}/removed"] = int(of_source.sum())
            counters[f"source/{name}/near_removed"] = int((of_source & ~exact).sum())
        return counters

    def quality(self, sample: Records, found: Clustering, counters: dict[str, int]) -> dict[str, Any]:
        """What `quality.json` holds: the promise, what was found, and the recall measured on the sample."""
        measured = None
        if len(sample):
            file = write(self.job.work, "sample", sample, np.zeros(len(sample), np.int64))
            [[part]] = by_part([Done(key="", files={"sample": file})], "sample").values()
            [done] = self.map(quality.measure, [quality.Sample(part)], "measured recall")
            pairs = self.records([done], "pairs", quality.PAIR)
            rows = members.text_rows(found.texts, self.records([done], "texts", SAMPLE))
            labels = np.where(rows >= 0, np.r_[found.labels, -1][rows], -1)
            measured = quality.summary(pairs, labels, self.banding, self.params.similarity)
        gone = found.members[~found.members["kept"]]
        right = int((gone["jaccard"] >= self.params.similarity).sum())
        return {
            **self.plan(),
            "precision": quality.share(right, len(gone)),
            "measured": measured,
            "counters": counters,
        }

    def check_losses(self, counters: dict[str, int], found: Clustering, sources: dict[int, str]) -> None:
        """Stop if near-copies would empty a source."""
        for name in sources.values():
            docs, lost = counters[f"source/{name}/docs"], counters[f"source/{name}/near_removed"]
            if docs >= SMALL_SOURCE and lost > self.params.max_source_loss * docs:
                raise WorkError(
                    f"dedup: source '{name}' would lose {lost} of {docs} documents ({lost / docs:.0%}) as"
                    f" near-copies, more than dedup.max_source_loss {self.params.max_source_loss:g}; see"
                    f" {self.context.folder / 'clusters.parquet'}, then raise dedup.similarity"
                    f" (now {self.params.similarity:g}) or dedup.max_source_loss"
                )

    def removals(self, found: Records) -> list[PublishedFile]:
        """Publish a table per partition of its documents in clusters, sorted by document."""
        parts = parts_of(found["location"])
        order = np.lexsort((found["id_lo"], found["id_hi"], parts))
        found, parts = found[order], parts[order]
        files = []
        for index, name in self.names.items():
            first, last = np.searchsorted(parts, [index, index + 1])
            table = removals_table(found[first:last], self.params.exact)
            files.append(publish_table(self.context.folder, f"removals/{name}.parquet", table))
        return files


def removals_table(found: Records, exact: bool) -> pa.Table:
    """`MEMBER` records as `REMOVALS`."""
    rule = np.where(found["copy"] & exact, "dedup.exact", "dedup.minhash")
    columns = [
        ids(found["id_hi"], found["id_lo"]),
        ids(found["cluster_hi"], found["cluster_lo"]),
        ids(found["survivor_hi"], found["survivor_lo"]),
        pa.array(found["kept"]),
        pa.array(rule.tolist(), pa.string(), mask=found["kept"]),
        pa.array(found["jaccard"]),
    ]
    return pa.Table.from_arrays(columns, schema=REMOVALS)


def _position(a: I64, b: I64) -> I64:
    """Row of each pair (a, b) among the distinct ones, sorted."""
    order = np.lexsort((b, a))
    new = np.r_[True, (a[order][1:] != a[order][:-1]) | (b[order][1:] != b[order][:-1])][: len(a)]
    row = np.empty(len(a), np.int64)
    row[order] = np.cumsum(new) - 1
    return row


def _group_sizes(found: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Documents in each cluster; `MEMBER` records sorted by cluster."""
    assert found.dtype == MEMBER
    new = (found["cluster_hi"][1:] != found["cluster_hi"][:-1]) | (
        found["cluster_lo"][1:] != found["cluster_lo"][:-1]
    )
    starts = np.flatnonzero(np.r_[True, new][: len(found)])
    sizes: I64 = np.diff(np.r_[starts, len(found)])
    return sizes


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
