"""The estimator's constants: fitted to runs of the stage, or measured apart where a run here is too small to show
them."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import corpus
from schemas.storage import Folder


def fit(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Seconds for a unit of each step: least squares on relative errors, no constant below 0."""
    from pipeline.dedup.banding import banding
    from pipeline.dedup.estimate.quantities import quantities, widths
    from pipeline.dedup.estimate.steps import loads

    units: dict[str, list[dict[str, float]]] = {}
    seconds: dict[str, list[float]] = {}
    for item in runs:
        params = item["params"]
        q = quantities(item["corpus"], params, banding(params))
        for load in loads(q, widths(params), params):
            units.setdefault(load.name, []).append(load.units)
            seconds.setdefault(load.name, []).append(
                item["steps"].get(load.name, {"seconds": 0.0})["seconds"]
            )
    known = {
        "signatures": {"hashed": seconds_per_permutation(), "bands": seconds_per_band()},
        "exact similarity": {"hashes": seconds_per_hash()},
        "on the driver": driver_seconds(),
    }
    found: dict[str, dict[str, float]] = {}
    for step, rows in units.items():
        apart = known.get(step, {})
        names = [name for name in rows[0] if name not in apart]
        matrix = np.array([[row[name] for name in names] for row in rows])
        rest = np.array(seconds[step]) - [
            sum(price * row[name] for name, price in apart.items()) for row in rows
        ]
        prices = not_negative(matrix, np.maximum(rest, 1e-6), np.maximum(seconds[step], 1e-3))
        found[step] = {**apart, **dict(zip(names, (float(price) for price in prices), strict=True))}
    return found


def not_negative(matrix: Any, wanted: Any, weight: Any) -> Any:
    """x >= 0 with the least sum of ((matrix x - wanted) / weight)^2: the best of all sets of positive ones."""
    scale = np.maximum(matrix.max(axis=0), 1e-12)
    scaled = matrix / scale / weight[:, None]
    best, least = np.zeros(matrix.shape[1]), np.inf
    for chosen in range(1, 1 << matrix.shape[1]):
        some = [i for i in range(matrix.shape[1]) if chosen >> i & 1]
        if len(some) > len(wanted):
            continue
        x = np.zeros(matrix.shape[1])
        x[some] = np.linalg.lstsq(scaled[:, some], wanted / weight, rcond=None)[0]
        error = float(((scaled @ x - wanted / weight) ** 2).sum())
        if (x >= 0).all() and error < least - 1e-12:
            best, least = x, error
    return best / scale


def seconds_per_permutation() -> float:
    """CPU seconds of one permutation for a megabyte of text: 112 against 16 of them."""
    from pipeline.dedup.kernels.shingling import Shingling
    from schemas.dedup import DedupParams

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
    from pipeline.dedup.banding import Banding
    from pipeline.dedup.job import BAND
    from pipeline.dedup.run import new_job
    from pipeline.dedup.sketch import write_bands
    from schemas.dedup import DedupParams

    bands = np.zeros(records, BAND)
    bands["key"] = np.random.default_rng(1).integers(0, 2**63, records)
    with tempfile.TemporaryDirectory() as name:
        job = new_job(Folder(name), DedupParams(), Banding(13, 7), {}, 10 * records, "")
        start = time.process_time()
        write_bands(job, "bands", bands)
        return (time.process_time() - start) / records


def seconds_per_hash(size: int = 500, pairs: int = 2_000) -> float:
    """CPU seconds for a shingle hash of two sets that are compared."""
    from pipeline.dedup.kernels import kernel

    hashes = np.sort(np.random.default_rng(1).integers(0, 2**63, (2, pairs, size)).astype(np.uint64), axis=2)
    bounds, rows = np.arange(pairs + 1, dtype=np.int64) * size, np.arange(pairs, dtype=np.int64)
    sets = [hashes[side].ravel() for side in (0, 1)]
    kernel.jaccard(bounds, sets[0], bounds, sets[1], rows[:1], rows[:1])
    start = time.process_time()
    kernel.jaccard(bounds, sets[0], bounds, sets[1], rows, rows)
    return (time.process_time() - start) / (2 * size * pairs)


def driver_seconds(texts: int = 300_000) -> dict[str, float]:
    """CPU seconds of the driver for a text in a verified pair and for a row of clusters.parquet, on so many made
    ones: at the sizes that are run here they are lost in the rest."""
    from pipeline.dedup import elect, removals
    from pipeline.dedup.banding import Banding
    from pipeline.dedup.job import EDGE
    from pipeline.dedup.records import Done
    from pipeline.dedup.records import write as publish
    from pipeline.dedup.run import new_job
    from pipeline.publish import publish_table
    from schemas.dedup import DedupParams

    generator = np.random.default_rng(1)
    forest = np.zeros(texts // 2, EDGE)
    forest["a"] = np.arange(0, texts // 2 * 2, 2)
    forest["b"] = forest["a"] + 1
    rows = np.zeros(texts, removals.MEMBER)
    for name in ("id_hi", "id_lo", "survivor_hi", "survivor_lo"):
        rows[name] = generator.integers(0, 2**63, texts)
    rows["cluster_hi"] = rows["cluster_lo"] = np.arange(texts) // 2
    with tempfile.TemporaryDirectory() as name:
        job = new_job(Folder(name), DedupParams(), Banding(13, 7), {}, texts, "")
        done = Done(key="", files={"forest": publish(job.work, "forest", forest)})
        elect.label(job, [done])
        start = time.process_time()
        elect.label(job, [done])
        labelled = time.process_time()
        np.unique(np.stack([rows["cluster_hi"], rows["cluster_lo"]], axis=1), axis=0)
        publish_table(job.work, "clusters.parquet", removals.clusters_table(rows, {0: "web"}))
        end = time.process_time()
    return {"linked": (labelled - start) / texts, "told": (end - labelled) / texts}


def driver_constants() -> dict[str, float]:
    """Bytes that the driver holds for a slice and for a file, as `run.py` keeps them; seconds for a task."""
    from pipeline.cluster import Workers
    from pipeline.dedup.records import Done, File, Part, by_part
    from schemas.manifest import PublishedFile
    from schemas.recipe import Cluster

    def dones(files: int, parts: int) -> list[Done]:
        made = []
        for number in range(files):
            published = PublishedFile(path=f"sketch/{number:06d}.bands", bytes=1, xxh3=f"{number:032x}")
            slices = [
                Part(number=i, start=i, count=1, xxh3=f"{number * parts + i:032x}") for i in range(parts)
            ]
            made.append(Done(key=f"{number:032x}", files={"bands": File(file=published, parts=slices)}))
        return made

    def weigh(files: int, parts: int) -> int:
        tracemalloc.start()
        kept = dones(files, parts)
        routed = by_part(kept, "bands")
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(routed) == parts
        return size

    entry = (weigh(20, 2_000) - weigh(20, 1_000)) / 20_000
    file = (weigh(2_000, 1) - weigh(1_000, 1)) / 1_000 - entry
    with Workers(Cluster(workers=1)) as scheduler:
        scheduler.map(abs, [1] * 10, "warm")
        spent = []
        for _ in range(4):
            start = time.perf_counter()
            scheduler.map(abs, list(range(500)), "nothing")
            spent.append(time.perf_counter() - start)
        dispatch = min(spent) / 500
    return {"entry_bytes": entry, "file_bytes": max(0.0, file), "dispatch_seconds": dispatch}


def alike(mean_bytes: int = 3000) -> dict[str, tuple[float, ...]]:
    """How alike the passages of the real text are, none edited: `background` and `siblings` of `Measured`.

    The background is measured as far as it goes; from there it is taken to fall tenfold from bin to bin.
    """
    from pipeline.dedup.estimate.compare import compare, index
    from pipeline.dedup.kernels.shingling import Shingling
    from schemas.dedup import DedupParams

    rows = corpus.plan(int(1.2 * len(corpus.real_text().data) / mean_bytes), mean_bytes)
    whole = (rows["base_rate"] == 0) & (rows["rate"] == 0) & (rows["inserted"] == 0) & (rows["frame"] < 0)
    rows = rows[whole]
    rows = rows[np.unique(rows["first"], return_index=True)[1]]
    shingling = Shingling(DedupParams(), 1)

    def pairs(some: Any) -> Any:
        bounds, hashes = shingling.sets(corpus.texts(some), np.arange(len(some), dtype=np.int64))
        draws = np.zeros(len(some), np.uint64)
        return compare(index(bounds, hashes), draws, 1.0, 0.8).pairs[:50]

    sizes = np.bincount(rows["source"])
    within = sum(pairs(rows[rows["source"] == source]) for source in np.flatnonzero(sizes))
    across = np.maximum(0, pairs(rows) - within)
    shares = across / ((len(rows) ** 2 - (sizes**2).sum()) / 2)
    seen = int(np.flatnonzero(across >= 5)[-1]) + 1 if (across >= 5).any() else 1
    shares[seen:] = shares[seen - 1] * 10.0 ** -np.arange(1, 51 - seen)
    siblings = 2 * within / len(rows)
    return {
        "background": tuple(float(f"{share:.3g}") for share in shares[:10]),
        "siblings": tuple(float(f"{count:.3g}") for count in siblings),
    }
