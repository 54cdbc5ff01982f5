"""The estimator's constants that are measured apart: a run here is too small to show them."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import corpus
from corpusmill.common.storage import Folder


def prices() -> dict[str, dict[str, float]]:
    """Step -> unit -> CPU seconds; `every step`: of each that reads slices."""
    a_slice, together = seconds_per_slice()
    signed = {"hashed": seconds_per_permutation(), "bands": seconds_per_band()}
    return {
        "signatures": {**signed, "winnowed": seconds_per_winnowed_mb()},
        "exact similarity": {"hashes": seconds_per_hash()},
        "on the driver": driver_seconds(),
        "files together": together,
        "every step": {"slices": a_slice},
    }


def seconds_per_permutation() -> float:
    """CPU seconds of one permutation for a megabyte of text: 112 against 16 of them."""
    from corpusmill.pipeline.text.shingling import Shingling
    from corpusmill.schemas.dedup import DedupParams

    text = corpus.texts(corpus.plan(4_000, 3000))
    rows = np.arange(len(text), dtype=np.int64)
    params = DedupParams()
    times = {}
    for used in (16, 112):
        shingling = Shingling(params, used)
        shingling.sign(text.slice(0, 10), rows[:10])
        spent = []
        for _ in range(3):
            start = time.process_time()
            shingling.sign(text, rows)
            spent.append(time.process_time() - start)
        times[used] = min(spent)
    return max(0.0, times[112] - times[16]) / 96 / (text.nbytes / 1e6)


def seconds_per_band(records: int = 1_000_000) -> float:
    """CPU seconds of a band record: sorted and published."""
    from corpusmill.pipeline.dedup.banding import Banding
    from corpusmill.pipeline.dedup.deduplication import new_job
    from corpusmill.pipeline.dedup.job import BAND
    from corpusmill.pipeline.dedup.sketch import write_bands
    from corpusmill.schemas.dedup import DedupParams

    bands = np.zeros(records, BAND)
    bands["key"] = np.random.default_rng(1).integers(0, 2**63, records)
    with tempfile.TemporaryDirectory() as name:
        job = new_job(Folder(name), DedupParams(), Banding(13, 7), {}, 10 * records, "")
        start = time.process_time()
        write_bands(job, "bands", bands)
        return (time.process_time() - start) / records


def seconds_per_winnowed_mb() -> float:
    """CPU seconds of the fingerprints of a megabyte of text."""
    from corpusmill.pipeline.dedup.sketch import WINNOW
    from corpusmill.pipeline.text.shingling import Shingling
    from corpusmill.schemas.dedup import DedupParams

    text = corpus.texts(corpus.plan(2_000, 3000))
    rows = np.arange(len(text), dtype=np.int64)
    shingling = Shingling(DedupParams(), 1)
    shingling.winnow(text.slice(0, 10), rows[:10], WINNOW)
    start = time.process_time()
    shingling.winnow(text, rows, WINNOW)
    return (time.process_time() - start) / (text.nbytes / 1e6)


def seconds_per_slice(files: int = 8, parts: int = 2_000) -> tuple[float, dict[str, float]]:
    """(CPU seconds of a step that reads a slice, prices of putting files together): both on made band records,
    local files."""
    from corpusmill.pipeline.dedup.banding import Banding
    from corpusmill.pipeline.dedup.deduplication import new_job
    from corpusmill.pipeline.dedup.job import BAND, Compact, compact
    from corpusmill.pipeline.engine.shuffle import Done, by_part, hashes_of, once, read_slices
    from corpusmill.pipeline.engine.shuffle import write as publish
    from corpusmill.schemas.dedup import DedupParams

    def spent(size: int, width: int) -> tuple[float, float]:
        """CPU seconds of reading every slice, and of putting the files together: records of `width` a slice."""
        with tempfile.TemporaryDirectory() as name:
            job = new_job(Folder(name), DedupParams(), Banding(13, 7), {}, files * size * width, "")
            numbers = np.repeat(np.arange(size), width)

            def make(number: int) -> Done:
                bands = np.zeros(len(numbers), BAND)
                bands["key"] = np.arange(len(bands))
                return Done(
                    key="", files={"bands": publish(job.work, f"made/{number}.bands", bands, numbers)}
                )

            dones = [once(job.work, f"made/{n}", "", lambda n=n: make(n)) for n in range(files)]  # type: ignore[misc]
            start = time.process_time()
            for slices in by_part(dones, "bands").values():
                hashes_of(slices)
                read_slices(job.work, slices, BAND)
            one = time.process_time()
            seals = tuple(done.files["bands"].file.xxh3 for done in dones)
            compact(job, Compact(0, job.work, "made", "bands", tuple(done.name for done in dones), seals))
            return one - start, time.process_time() - one

    spent(10, 1)
    many, few = spent(parts, 1), spent(parts, 100)
    megabytes = files * parts * 99 * BAND.itemsize / 1e6
    per_mb = max(0.0, few[1] - many[1]) / megabytes
    places = files * parts + parts  # read from markers, and made
    per_place = max(0.0, many[1] - per_mb * megabytes / 99) / places
    return many[0] / (files * parts), {"mb": per_mb, "slices": per_place}


def seconds_per_hash(size: int = 500, pairs: int = 2_000) -> float:
    """CPU seconds for a shingle hash of two sets that are compared."""
    from corpusmill.pipeline.text import minhash

    hashes = np.sort(np.random.default_rng(1).integers(0, 2**63, (2, pairs, size)).astype(np.uint64), axis=2)
    bounds, rows = np.arange(pairs + 1, dtype=np.int64) * size, np.arange(pairs, dtype=np.int64)
    sets = [hashes[side].ravel() for side in (0, 1)]
    minhash.jaccard(bounds, sets[0], bounds, sets[1], rows[:1], rows[:1])
    start = time.process_time()
    minhash.jaccard(bounds, sets[0], bounds, sets[1], rows, rows)
    return (time.process_time() - start) / (2 * size * pairs)


def driver_seconds(texts: int = 300_000) -> dict[str, float]:
    """CPU seconds of the driver for a text in a verified pair, a row of clusters.parquet and a slice, on so many
    made ones: at the sizes that are run here they are lost in the rest."""
    from distributed.protocol import serialize

    from corpusmill.pipeline.dedup import exact_similarity, removals
    from corpusmill.pipeline.dedup.banding import Banding
    from corpusmill.pipeline.dedup.candidates import ranges
    from corpusmill.pipeline.dedup.deduplication import new_job
    from corpusmill.pipeline.engine.publish import publish_table, publish_tables, read_table
    from corpusmill.pipeline.engine.shuffle import Done, by_part
    from corpusmill.pipeline.engine.shuffle import write as publish
    from corpusmill.schemas.dedup import DedupParams

    generator = np.random.default_rng(1)
    rows = np.zeros(texts, removals.MEMBER)
    for name in ("id_hi", "id_lo", "survivor_hi", "survivor_lo"):
        rows[name] = generator.integers(0, 2**63, texts)
    rows["cluster_hi"] = rows["cluster_lo"] = np.arange(texts) // 2
    with tempfile.TemporaryDirectory() as name:
        job = new_job(Folder(name), DedupParams(), Banding(13, 7), {}, texts, "")
        done = Done(key="", files={"forest": publish(job.work, "forest", pairs_of(texts))})
        exact_similarity.label(job, [done])
        start = time.process_time()
        exact_similarity.label(job, [done])
        labelled = time.process_time() - start
        table = publish_table(job.work, "part.parquet", removals.clusters_table(rows, {0: "web"}))
        schema = removals.clusters_table(rows[:0], {}).schema
        start = time.process_time()
        part = read_table(job.work / table.path, table.xxh3)
        publish_tables(job.work, "clusters.parquet", iter([part]), schema)
        copied = time.process_time() - start
        made = results(100, 2_000)
        start = time.process_time()
        routed = ranges(job, by_part(made, "bands"), lambda *_: [])
        for item in routed:
            serialize(item)
        sent = time.process_time() - start
    return {"linked": labelled / texts, "clustered": copied / texts, "slices": sent / 200_000}


def pairs_of(texts: int) -> Any:
    """`EDGE` records of clusters of two texts."""
    from corpusmill.pipeline.dedup.job import EDGE

    forest = np.zeros(texts // 2, EDGE)
    forest["a"] = np.arange(0, texts // 2 * 2, 2)
    forest["b"] = forest["a"] + 1
    return forest


def results(tasks: int, parts: int, files: int = 1) -> list[Any]:
    """Results of tasks, each of `files` files and so many slices in the first, as the driver gets them."""
    from distributed.protocol import deserialize, serialize

    from corpusmill.pipeline.engine.shuffle import Done, File, Part
    from corpusmill.schemas.manifest import PublishedFile

    made = []
    for number in range(tasks):
        slices = [Part(i, i, 1, f"{number * parts + i:032x}") for i in range(parts)]
        named = {}
        for place in range(files):
            path = f"sketch/{number:06d}.{place}"
            published = PublishedFile(path=path, bytes=1, xxh3=f"{number:032x}", rows=1)
            named["bands" if place == 0 else str(place)] = File.of(published, slices if place == 0 else [])
        done = Done(key=f"{number:032x}", name=f"sketch/{number:06d}", files=named)
        made.append(deserialize(*serialize(done)))
    return made


def driver_constants() -> dict[str, float]:
    """Bytes that the driver holds for slices, files, results and tasks, as `deduplication.py` keeps them; seconds for a
    task."""
    from distributed.protocol import serialize

    from corpusmill.pipeline.dedup import exact_similarity
    from corpusmill.pipeline.dedup.banding import Banding
    from corpusmill.pipeline.dedup.deduplication import new_job
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.shuffle import Done, by_part
    from corpusmill.pipeline.engine.shuffle import write as publish
    from corpusmill.schemas.dedup import DedupParams
    from corpusmill.schemas.recipe import Cluster

    def held(make: Callable[[], Any]) -> tuple[float, float]:
        """(bytes that stay, bytes at most)"""
        tracemalloc.start()
        kept = make()
        found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del kept
        return found

    def of_results(*size: int) -> float:
        return held(lambda: results(*size))[0]

    place = (of_results(20, 20_000) - of_results(20, 10_000)) / 200_000
    one, two = of_results(1_000, 0, 1) / 1_000, of_results(1_000, 0, 2) / 1_000
    made = results(100, 5_000)
    stay, peak = (size / 500_000 for size in held(lambda: by_part(made, "bands")))
    sent = sum(sum(map(len, serialize(slices)[1])) for slices in by_part(made, "bands").values()) / 500_000
    with tempfile.TemporaryDirectory() as name:
        # Small forests and a small budget: what is held of one at a time is no part of what grows with the texts.
        job = new_job(Folder(name), DedupParams(memory_mb=16), Banding(13, 7), {}, 2_000_000, "")
        forests = np.array_split(pairs_of(2_000_000), 100)
        made = [
            Done(key="", files={"forest": publish(job.work, f"{number}.forest", forest)})
            for number, forest in enumerate(forests)
        ]
        label = held(lambda: exact_similarity.label(job, made))[1] / 2_000_000
    spent = []
    with Workers(Cluster(workers=1)) as scheduler:
        scheduler.map(abs, [1] * 10, "warm")
        for _ in range(3):
            start = time.perf_counter()
            scheduler.map(abs, list(range(500)), "nothing")
            spent.append(time.perf_counter() - start)
        task = held(lambda: scheduler.map(abs, list(range(400)), "nothing"))[1] / 400
    return {
        "place_bytes": place, "slice_bytes": stay, "routing_bytes": max(peak - stay, sent),
        "done_bytes": max(0.0, 2 * one - two), "file_bytes": two - one, "task_bytes": task,
        "label_bytes": label, "dispatch_seconds": min(spent) / 500,
    }  # fmt: skip
