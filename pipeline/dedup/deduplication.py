"""The deduplication of a corpus, step by step, on the driver: what the stage's `prepare` does.

sketch (per partition) -> heads, edges (per range of keys) -> sets, verify (per partition) -> label (here) ->
route (per partition) -> elect, settle (per range) -> removals (per partition). Every step is resumable by
itself; the driver holds counts, where records lie, and locations of texts in verified pairs (`election.py`):
never a signature or a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup import (
    candidates,
    election,
    exact_similarity,
    key_groups,
    removals,
    sent_sets,
    shingle_sets,
    signatures,
    sketch,
)
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.index.change import Change
from corpusmill.pipeline.dedup.job import (
    MOST_SLICES,
    PEAK,
    PLANTED_PART,
    Job,
    Kept,
    parts,
    parts_of,
    peak_bytes,
    slim,
)
from corpusmill.pipeline.dedup.lines.line_deduplication import find as find_lines
from corpusmill.pipeline.dedup.quality.recall import SAMPLE, draw
from corpusmill.pipeline.dedup.quality.summary import Steps, alarms, all_records, count, publish_json, quality
from corpusmill.pipeline.dedup.substrings.substring_deduplication import find as find_substrings
from corpusmill.pipeline.engine.publish import publish_tables, read_table
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice, Slices, by_part
from corpusmill.pipeline.engine.stage import Context, Partition
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.manifest import PublishedFile, hash_json
from corpusmill.schemas.tables import CLUSTERS

Routed = Mapping[int, Sequence[Slice]]  # partition or range -> records for it


def new_job(
    work: Folder, params: DedupParams, banding: Banding, priorities: dict[str, int], documents: int, version: str
) -> Job:  # fmt: skip
    """What tasks need to know. The number of ranges follows from the documents and the budget, never from the
    workers."""
    ordered = tuple(sorted(priorities.items()))
    job = Job(work, params, banding, 1, 1, ordered, min(1.0, params.planted / max(1, documents)), "")
    bands = -(-documents * banding.bands // candidates.records_per_range(job))
    texts = -(-documents * 4 * job.text.itemsize // job.budget)
    job = replace(job, band_ranges=max(1, bands), text_ranges=max(1, texts))
    own = params.model_dump(mode="json")
    ranges = [job.band_ranges, job.text_ranges]
    return replace(job, key=hash_json([version, own, list(banding), ranges, list(ordered), documents]))


class Deduplication:
    """One run of the stage over `context.partitions`; `named` are documents to be taken out of the index."""

    def __init__(
        self, context: Context, params: DedupParams, banding: Banding, version: str,
        named: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.context, self.params, self.banding = context, params, banding
        priorities = {name: source.priority for name, source in context.recipe.sources.items()}
        self.documents = sum(partition.rows for partition in context.partitions)
        work = context.folder / "scratch"
        self.job = new_job(work, params, banding, priorities, self.documents, version)
        ranges = max(self.job.band_ranges, self.job.text_ranges)
        self.job = replace(self.job, slim=len(context.partitions) * ranges > MOST_SLICES)
        self.partitions: dict[int, Partition] = dict(enumerate(context.partitions))
        self.expected: Any = None
        self.change: Change | None = None
        if params.index is not None:
            self.change = Change(Folder(params.index), self.job, version, list(context.partitions), named)
            self.job, self.partitions = self.change.job, self.change.added

    def map(self, step: Any, items: list[Any], label: str, sizes: list[int] | None = None) -> list[Done]:
        """A step over items, on the scheduler."""
        return self.context.scheduler.map(partial(step, self.job), items, f"dedup {label}", sizes)

    def steps(self, step: Any, items: list[Any], label: str, sizes: list[int] | None = None) -> list[Done]:
        """The same for steps whose files others read by `parts`."""
        return self.map(partial(slim, step), items, label, sizes)

    def parts(self, dones: Sequence[Done], name: str, work: Folder | None = None) -> dict[int, Slices]:
        """Part number -> its slices in the files called `name`."""
        return parts(self.job, work or self.job.work, dones, name, self.map)

    def run(self) -> tuple[list[PublishedFile], dict[str, int]]:
        """Publish plan, clusters, removals and quality; (files, counters).

        Raises `WorkError` if a source loses more than the set share, or a cluster is larger than the set size;
        clusters and quality are there to be looked at.
        """
        if self.change is not None:
            self.change.begin(self.map)
        # A second or two on the driver, beside the first steps.
        promised = self.context.scheduler.beside(partial(self.promise, self.context.scheduler.count))
        sizes = [partition.text_bytes for partition in self.partitions.values()]
        by_url, gone = self.urls(sizes) if self.params.url else ({}, {})
        items = [sketch.Sketched(index, p, gone.get(index, ())) for index, p in self.partitions.items()]
        made = self.steps(sketch.sketch, items, "signatures", sizes)
        sketches = (self.change.sketches() if self.change else {}) | dict(
            zip(self.partitions, made, strict=True)
        )
        texts = self.parts(list(sketches.values()), "texts")
        heads = self.route(key_groups.heads, "text", texts, "exact copies")
        edges = self.edges(sketches)
        sample = draw(all_records(self.job, list(sketches.values()), "sample", SAMPLE), self.params.sample)
        by_first = self.parts(edges, "edges")
        pairs = exact_similarity.groups_of(self.job, by_first)
        pairs = self.load_sets(sketches, edges, sample, heads, by_first, pairs)
        promise = promised()  # by now it is there, and what went wrong in it is known before the costly steps
        files = [publish_json(self.context.folder, "plan.json", promise)]
        verified = self.steps(exact_similarity.verify, pairs, "exact similarity")
        labelled, clusters = exact_similarity.label(self.job, verified)
        elected = self.elect(labelled, verified, heads)
        decided = self.route(key_groups.settle, "text", texts, "survivors", self.parts(elected, "fates"))
        removed = self.removals(sketches, by_url, decided)
        sources = _sources(sketches)
        table, clustered = self.clusters(removed, sources)
        files.append(table)
        steps = Steps(
            self.job, self.context.folder, self.partitions, sources, sketches, edges, verified, elected, removed,
            clustered,
        )  # fmt: skip
        counters = count(steps)
        report = quality(steps, sample, clusters, promise, counters, self.map)
        self.log_actual(counters, [*made, *edges, *verified, *elected, *removed])
        files.append(publish_json(self.context.folder, "quality.json", report))
        alarms(self.params, counters, self.context.folder)
        tables = [done.files["table"].file for done in removed if "table" in done.files]
        if self.params.store_signatures:
            work = [signatures.Signing(index, p, self.context.folder) for index, p in self.partitions.items()]
            stored = self.map(signatures.signatures, work, "stored signatures", sizes)
            files += [done.files["table"].file for done in stored]
        spans, cut = self.spans(tables)
        if self.change is not None:
            files.append(
                self.change.finish(self.map, self.context.folder, dict(zip(sketches, removed, strict=True)))
            )
        return [*files, *tables, *spans], counters | cut

    def promise(self, workers: int) -> dict[str, Any]:
        """The plan and its expected cost: logged, and returned for `plan.json`."""
        from corpusmill.pipeline.dedup.estimate.model import estimate
        from corpusmill.pipeline.dedup.estimate.pilot import pilot
        from corpusmill.pipeline.dedup.estimate.plan_text import show, unpromised
        from corpusmill.pipeline.engine.planning.constants import LOCAL, OBJECT_STORE

        alone = None
        if self.params.minhash and self.documents:
            corpus = pilot(list(self.partitions.values()), self.params)
            store = LOCAL if self.context.folder.local else OBJECT_STORE
            self.expected = estimate(corpus, self.params, self.banding, workers, store)
            # What is published must not know on how many workers it was made.
            alone = estimate(corpus, self.params, self.banding, 1, OBJECT_STORE)
            for text in (show(self.expected), *unpromised(self.params, self.banding)):
                self.context.log(text)
        return {
            "estimate": alone.model_dump(mode="json") if alone else None,
            "bands": self.banding.bands,
            "rows": self.banding.rows,
            "permutations_used": self.banding.bands * self.banding.rows,
            "similarity": self.params.similarity,
            "recall_at_similarity": round(self.banding.found(self.params.similarity), 6),
            "s_curve": self.banding.curve(),
            "documents": self.documents,
            "band_ranges": self.job.band_ranges,
            "text_ranges": self.job.text_ranges,
        }

    def log_actual(self, counters: dict[str, int], dones: list[Done]) -> None:
        """Log the actual figures beside the expected ones: counts, disk, peak memory of the processes."""
        from corpusmill.pipeline.dedup.estimate.plan_text import show_actual

        if self.expected is None:
            return
        scratch = sum(entry.size for entry in self.job.work.list()) if self.change is None else 0
        actual: dict[str, float] = {**counters, **({"shuffled_bytes": scratch} if scratch else {})}
        actual["worker_bytes"] = max((done.counters.get(PEAK, 0) for done in dones), default=0)
        actual["driver_bytes"] = peak_bytes()
        self.context.log(show_actual(self.expected, actual))

    def urls(self, sizes: list[int]) -> tuple[dict[int, removals.UrlRemoval], Routed]:
        """The pass by URL: per partition the documents with what was decided, and the locations that go."""
        items = [sketch.Sketched(index, partition) for index, partition in self.partitions.items()]
        dones = self.steps(sketch.urls, items, "URLs", sizes)
        routed = self.route(key_groups.settle, "url", self.parts(dones, "texts"), "URLs shared")
        work = [
            removals.UrlRemoval(item.index, done.files["docs"], routed.get(item.index, ()))
            for item, done in zip(items, dones, strict=True)
        ]
        gone = self.parts(self.steps(removals.url_gone, work, "URL copies"), "gone")
        return {item.index: item for item in work}, gone

    def route(self, step: Any, kind: str, texts: Routed, label: str, fates: Routed | None = None) -> Routed:
        """Runs a step over ranges of keys: partition -> what it publishes for it."""
        items = [key_groups.Keys(kind, n, slices, (fates or {}).get(n, ())) for n, slices in texts.items()]
        return self.parts(self.steps(step, items, label), "heads" if step is key_groups.heads else "decided")

    def edges(self, sketches: dict[int, Done]) -> list[Done]:
        """Candidate pairs, by range of band keys."""
        if not self.params.minhash:
            return []
        ranges = candidates.ranges(self.job, self.parts(list(sketches.values()), "bands"), self.map)
        found = self.steps(candidates.edges, ranges, "candidates")
        cuts = candidates.cuts(ranges, found)
        return found + (self.steps(candidates.stitch, cuts, "hot buckets") if cuts else [])

    def load_sets(
        self, sketches: dict[int, Done], edges: list[Done], sample: Records, heads: Routed, by_first: Routed,
        pairs: list[exact_similarity.Pairs],
    ) -> list[exact_similarity.Pairs]:  # fmt: skip
        """Have the shingle sets of candidates and of the sample written, for an index those of all texts; returns the
        tasks of comparison with what is sent to them."""
        sends = self.job.sends and bool(pairs)
        wanted = {} if sends else self.parts(edges, "nodes")
        seconds = self.parts(edges, "partners") if sends else {}
        starts = sent_sets.publish_starts(self.job, [item.index for item in pairs]) if sends else None
        drawn = parts_of(sample["location"])
        given = {*wanted, *seconds, *(by_first if sends else ()), *drawn.tolist()}
        items = []
        for index in sorted(self.partitions) if self.change else sorted(given):
            if index >= PLANTED_PART:
                made = sketches[index - PLANTED_PART].files["planted_docs"].file
                partition, docs = shingle_sets.planted_partition(self.job, index, made), None
            else:
                partition, docs = self.partitions[index], sketches[index].files["docs"].file
            if self.change:  # it must not depend on what comes later
                items.append(shingle_sets.Wanted(index, partition, docs, (), (), ()))
                continue
            rows = tuple(np.sort(sample["location"][drawn == index]).tolist())
            to = None
            if starts is not None:
                to = shingle_sets.Partners(by_first.get(index, ()), seconds.get(index, ()), starts)
            nodes = wanted.get(index, ())
            items.append(shingle_sets.Wanted(index, partition, docs, nodes, rows, heads.get(index, ()), to))
        made_sets = self.map(
            shingle_sets.sets, items, "shingle sets", [item.partition.text_bytes for item in items]
        )
        if not sends:
            return pairs
        sent = by_part(sent_sets.files_of(made_sets), sent_sets.SENT)
        return [replace(item, sent=sent[item.index]) for item in pairs]

    def elect(self, labelled: list[File], verified: list[Done], heads: Routed) -> list[Done]:
        """What becomes of the texts in clusters, by range of clusters."""
        mine = by_part([Done(key="", files={"labels": file}) for file in labelled], "labels")
        good = self.parts(verified, "pairs")
        routes = [election.Route(i, slices, good.get(i, ()), heads.get(i, ())) for i, slices in mine.items()]
        routed = self.steps(election.route, routes, "clusters")
        pairs = self.parts(routed, "pairs")
        members = self.parts(routed, "members")
        ranges = [election.Clusters(n, slices, pairs.get(n, ())) for n, slices in members.items()]
        return self.steps(election.elect, ranges, "election")

    def removals(
        self, sketches: dict[int, Done], by_url: dict[int, removals.UrlRemoval], decided: Routed
    ) -> list[Done]:
        """The table of removals, per partition; for partitions of the index that are not at hand, only the records."""
        items = []
        for index, sketched in sketches.items():
            url = by_url.get(index)
            items.append(
                removals.Removal(
                    index, self.partitions[index].name if index in self.partitions else None,
                    self.context.folder, sketched.files["docs"], decided.get(index, ()),
                    url.docs if url else None, url.decided if url else (),
                )
            )  # fmt: skip
        return self.steps(removals.removals, items, "removals")

    def clusters(self, removed: list[Done], sources: dict[int, str]) -> tuple[PublishedFile, list[Done]]:
        """Publish `clusters.parquet`: ranges of clusters are made by tasks, and put together here."""
        named = tuple(sorted(sources.items()))
        items = [
            removals.Clusters(number, self.context.folder, slices, named)
            for number, slices in self.parts(removed, "members", self.context.folder).items()
        ]
        dones = self.map(removals.clusters, items, "table of clusters")

        folder, files = self.context.folder, [done.files["clusters"].file for done in dones]
        tables = (read_table(folder / file.path, file.xxh3) for file in files)
        return publish_tables(folder, "clusters.parquet", tables, CLUSTERS), dones

    def spans(self, tables: list[PublishedFile]) -> tuple[list[PublishedFile], dict[str, int]]:
        """What is cut out of the documents that stay: (files, counters)."""
        files: list[PublishedFile] = []
        counters: dict[str, int] = {}
        if self.params.lines is None and self.params.substrings is None:
            return files, counters
        kept = [
            Kept(index, partition, self.context.folder / table.path, table.xxh3)
            for (index, partition), table in zip(self.partitions.items(), tables, strict=True)
        ]
        rest = (
            dict(self.job.priorities), self.params.remove_only_from, self.context.scheduler,
            self.params.memory_mb, self.job.key,
        )  # fmt: skip
        if self.params.lines is not None:
            files, counters = find_lines(self.context.folder, kept, self.params.lines, *rest)
        if self.params.substrings is not None:
            more = find_substrings(self.context.folder, kept, self.params.substrings, *rest)
            files, counters = files + more[0], counters | more[1]
        return files, counters


def _sources(sketches: dict[int, Done]) -> dict[int, str]:
    """Hash -> name of every source that has documents."""
    counted = {name for done in sketches.values() for name in done.counters if name.startswith("source/")}
    return {sketch.source_hash(name): name for name in sorted(name.split("/")[1] for name in counted)}
