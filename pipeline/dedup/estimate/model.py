"""The estimate: what a deduplication reads, writes, asks for, holds and finds, step by step."""

from __future__ import annotations

import math

from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.estimate.corpus import Corpus, Measured, measured
from corpusmill.pipeline.dedup.estimate.quantities import exchanges, quantities, slices_bytes, widths
from corpusmill.pipeline.dedup.estimate.step_loads import Load, loads
from corpusmill.pipeline.engine.planning.constants import ALONE, OBJECT_STORE, Store
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.dedup_results import Estimate, EstimatedStep


def estimate(
    corpus: Corpus,
    params: DedupParams,
    banding: Banding,
    workers: int,
    store: Store = OBJECT_STORE,
    constants: Measured | None = None,
) -> Estimate:
    """What the stage will do with the corpus on so many workers; pure. `constants`: those measured.

    Time counts whole waves of tasks, and the requests of a task as it makes them: writes and the first `ALONE`
    reads one after the other, further reads `store.at_once` at a time.
    """
    constants = constants or measured()
    q, wide = quantities(corpus, params, banding), widths(params)
    found = loads(q, wide, params)
    steps = tuple(_step(load, constants, workers, store) for load in found)
    output = next(step for step in steps if step.name == "transform").written_bytes
    held = max(load.worker for load in found if load.on_driver)
    results = max(load.tasks for load in found) * constants.task_bytes
    results += sum(load.files * constants.file_bytes for load in found)
    results += sum(load.tasks for load in found if load.files) * constants.done_bytes
    places = slices_bytes(exchanges(q, wide, params), constants)
    return Estimate(
        documents=corpus.documents,
        text_bytes=corpus.text_bytes,
        partitions=corpus.partitions,
        workers=workers,
        bands=banding.bands,
        rows=banding.rows,
        similarity=params.similarity,
        memory_mb=params.memory_mb,
        curve=banding.curve(),
        candidates=q.candidates,
        verified=q.verified,
        exact_removed=q.exact_removed,
        near_removed=q.near_removed,
        similar=corpus.similar,
        band_ranges=q.band_ranges,
        text_ranges=q.text_ranges,
        steps=steps,
        tasks=sum(step.tasks for step in steps),
        read_bytes=sum(step.read_bytes for step in steps),
        shuffled_bytes=sum(step.written_bytes for step in steps) - output,
        output_bytes=output,
        requests=sum(step.gets + step.puts for step in steps),
        cpu_seconds=sum(step.cpu_seconds for step in steps),
        seconds=sum(step.seconds for step in steps),
        worker_bytes=constants.worker_bytes + max(load.worker for load in found if not load.on_driver),
        driver_bytes=constants.worker_bytes + held + places + results,
        union_bytes=held,
        places_bytes=places,
        results_bytes=results,
        entries=sum(step.entries for step in steps),
        not_counted=_not_counted(params),
    )


def _not_counted(params: DedupParams) -> tuple[str, ...]:
    asked = {
        "pairs that dedup.containment finds": params.minhash and params.containment is not None,
        "dedup.url": params.url,
        "dedup.lines": params.lines is not None,
        "dedup.substrings": params.substrings is not None,
        "dedup.store_signatures": params.store_signatures,
        "texts already in dedup.index": params.index is not None,
    }
    return tuple(name for name, wanted in asked.items() if wanted)


def cpu_seconds(load: Load, constants: Measured) -> float:
    """CPU seconds of a step; raises `KeyError` if one of its units was not measured."""
    prices = constants.seconds[load.name]
    return sum(prices[unit] * amount for unit, amount in load.units.items())


def _step(load: Load, constants: Measured, workers: int, store: Store) -> EstimatedStep:
    tasks = max(1, math.ceil(load.tasks - 1e-9))
    cpu = cpu_seconds(load, constants)
    alone = min(load.gets, ALONE * tasks)
    waiting = (load.puts + alone + (load.gets - alone) / store.at_once) * store.request_seconds
    waiting += (load.read + load.written) / store.bytes_per_second
    waves = tasks if load.on_driver else math.ceil(tasks / workers)
    return EstimatedStep(
        name=load.name,
        tasks=tasks,
        read_bytes=load.read,
        written_bytes=load.written,
        gets=load.gets,
        puts=load.puts,
        cpu_seconds=cpu,
        worker_bytes=load.worker,
        entries=load.entries,
        seconds=(cpu + waiting) / tasks * waves + tasks * constants.dispatch_seconds,
    )
