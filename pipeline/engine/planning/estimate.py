"""The plan of a run: the forecasts of its stages in a row, with time, cost, memory and disk, the bottleneck, and what will go
wrong at that size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corpusmill.common.format import count, plain_size, quantity, span
from corpusmill.pipeline.engine.planned import Planned
from corpusmill.pipeline.engine.planning.constants import (
    ALONE,
    LOCAL,
    OBJECT_STORE,
    Constants,
    Store,
    measured,
)
from corpusmill.pipeline.engine.planning.forecast import Flow, Shape, Work
from corpusmill.pipeline.engine.stage import SourceStage, Stage
from corpusmill.schemas.manifest import Figures, StageManifest
from corpusmill.schemas.planning import RunPlan, StagePlan, StepPlan
from corpusmill.schemas.recipe import is_local

SUMMED = ("tasks", "seconds", "cpu_seconds", "read_bytes", "written_bytes", "gets", "puts", "lists")
LONG = 3600.0  # seconds from which it is worth saying that a step runs on one core
SHORT = 60.0  # seconds up to which idle workers are not worth a line
MANY_TARS = 100_000


@dataclass(frozen=True)
class Terms:
    """On what a run runs, and what is assumed of the text."""

    workers: int
    object_store: bool
    worker_memory: float = 0.0  # bytes; 0: not known
    driver_memory: float = 64e9
    requests: float = 1e9
    price: float | None = None  # of a core for an hour
    copies: float = 0.3
    duplicates: float = 0.5

    @property
    def store(self) -> Store:
        return OBJECT_STORE if self.object_store else LOCAL


def scaled(shape: Shape, input_bytes: float) -> Shape:
    """More of the same files."""
    times = input_bytes / shape.input_bytes if shape.input_bytes else 0.0
    return Shape(*(amount * times for amount in shape))


def plan(
    stages: Sequence[Stage], shape: Shape, terms: Terms, sources: int,
    bytes_per_document: float | None = None, known: Constants | None = None,
    finished: Sequence[StageManifest] = (),
) -> RunPlan:  # fmt: skip
    """What the stages, in their order, the ledger among them, will do with the input; pure.

    `finished` are stages that need not run: they have no part in it, and what they left is what the next ones find. What text
    and documents the others leave is that of the corpus on which the constants were measured.
    """
    known = known or measured()
    least = float(sources)  # a unit is of one source
    shape = shape._replace(units=max(least, shape.units), partitions=max(least, shape.partitions))
    done = {manifest.stage: manifest for manifest in finished}
    documents = shape.text_bytes / (bytes_per_document or known.bytes_per_document)
    flow = Flow(
        documents, shape.text_bytes, shape, documents, sources, max(1, terms.workers), terms.object_store, terms.copies,
        terms.duplicates,
    )  # fmt: skip
    found: list[StagePlan] = []
    held = 0.0  # on disk so far
    for stage in stages:
        if stage.looks_across:
            flow = replace(flow, in_memory=False)
        works, after = stage.forecast(flow, known)
        if isinstance(stage, SourceStage):
            flow = replace(flow, documents=after.documents, text_bytes=after.text_bytes)
        manifest = done.get(stage.name)
        if manifest is not None:
            after = _as_it_was(replace(after, in_memory=False), manifest)
            if isinstance(stage, SourceStage):
                read = after.shape._replace(text_bytes=after.text_bytes)
                after = replace(after, records=float(manifest.counts.docs_in), shape=read)
        elif works:
            one = _stage(stage.name, works, flow, terms, known, held)
            found.append(one)
            held += one.kept_bytes
        flow = after
    return _whole(found, shape, documents, terms, held, known)


def of_run(
    planned: Sequence[Planned], sources: int, workers: Callable[[float], int], object_store: bool
) -> RunPlan:
    """What the stages that must run will do with the present input. `workers`: how many so many bytes of text have."""
    source = planned[0].stage
    shape = source.shape() if isinstance(source, SourceStage) else Shape(0.0, 0.0, 0.0, 0.0, 0.0)
    finished = [entry.done for entry in planned if entry.done is not None]
    terms = Terms(workers(shape.text_bytes), object_store)
    stages = [entry.stage for entry in planned] if len(finished) < len(planned) else []
    return plan(stages, shape, terms, sources, finished=finished)


def _as_it_was(flow: Flow, manifest: StageManifest) -> Flow:
    if not is_local(manifest.stage) or not manifest.partitions:
        return flow
    counts = manifest.counts
    shape = flow.shape._replace(partitions=float(len(manifest.partitions)))
    return replace(flow, documents=float(counts.kept), text_bytes=float(counts.bytes_kept), shape=shape)


def _stage(
    name: str, works: Sequence[Work], flow: Flow, terms: Terms, known: Constants, held: float
) -> StagePlan:
    prices = known.of(name).seconds
    started = prices.get("process", 0.0) * min(terms.workers, max(1.0, max(work.tasks for work in works)))
    steps = []
    widest = max(works, key=lambda work: work.tasks)
    for work in works:
        cpu = work.cpu_seconds + sum(prices.get(unit, 0.0) * amount for unit, amount in work.units.items())
        if work is widest:
            cpu += started
        steps.append(_step(work, cpu, known.of(name).driver_base, terms, known))
    written, kept = sum(work.written_bytes for work in works), sum(work.kept_bytes for work in works)
    return StagePlan(
        name=name, documents=flow.documents, text_bytes=flow.text_bytes, partitions=math.ceil(flow.partitions),
        kept_bytes=kept, disk_bytes=held + written, steps=tuple(steps), **_sums(steps),
    )  # fmt: skip


def _step(work: Work, cpu: float, driver: float, terms: Terms, known: Constants) -> StepPlan:
    """Time counts whole waves of tasks, and the requests of a task as it makes them: writes and the first `ALONE` reads one
    after the other, further reads `at_once` at a time."""
    store, tasks = terms.store, max(1, math.ceil(work.tasks - 1e-9))
    seconds = work.seconds
    if seconds is None:
        alone = min(work.gets, ALONE * tasks)
        waiting = (
            work.puts + work.lists + alone + (work.gets - alone) / store.at_once
        ) * store.request_seconds
        waiting += (work.read_bytes + work.written_bytes) / store.bytes_per_second
        waves = tasks if work.one_core else math.ceil(tasks / terms.workers)
        seconds = (cpu + waiting) / tasks * waves + (0 if work.one_core else tasks * known.dispatch_seconds)
    return StepPlan(
        name=work.name, tasks=tasks, seconds=seconds, cpu_seconds=cpu, worker_bytes=work.worker_bytes,
        driver_bytes=driver + work.driver_bytes, read_bytes=work.read_bytes, written_bytes=work.written_bytes,
        kept_bytes=work.kept_bytes, gets=work.gets, puts=work.puts, lists=work.lists, one_core=work.one_core,
    )  # fmt: skip


def _sums(parts: Sequence[Figures]) -> dict[str, Any]:
    """Of amounts the sum, of memory the most."""
    sums = {name: sum(getattr(part, name) for part in parts) for name in SUMMED}
    return sums | {
        name: max((getattr(part, name) for part in parts), default=0.0)
        for name in ("worker_bytes", "driver_bytes")
    }


def _whole(
    found: list[StagePlan], shape: Shape, documents: float, terms: Terms, kept: float, known: Constants
) -> RunPlan:
    total = Figures.model_validate(_sums(found))
    slowest = max(
        ((one, step) for one in found for step in one.steps), key=lambda pair: pair[1].seconds, default=None
    )
    return RunPlan(
        workers=terms.workers, object_store=terms.object_store, input_bytes=shape.input_bytes,
        text_bytes=shape.text_bytes, documents=documents, stages=tuple(found), total=total, kept_bytes=kept,
        disk_bytes=max((one.disk_bytes for one in found), default=0.0),
        cost=None if terms.price is None else terms.price * terms.workers * total.seconds / 3600,
        bottleneck="" if slowest is None else _named(*slowest),
        warnings=tuple(warnings(found, total, terms, known)),
    )  # fmt: skip


def _named(stage: StagePlan, step: StepPlan) -> str:
    return stage.name if step.name == stage.name else f"{stage.name}, {step.name}"


def warnings(found: Sequence[StagePlan], total: Figures, terms: Terms, known: Constants) -> list[str]:
    """What goes wrong, or is wasted, at this size, with what to change."""
    lines = []
    unknown = [one.name for one in found if one.name not in known.stages]
    if unknown:
        lines.append(
            f"not measured: CPU time and memory of {', '.join(unknown)}; the plan counts their reads, writes and tasks alone"
        )
    every = [(one, step) for one in found for step in one.steps]
    if total.driver_bytes > terms.driver_memory:
        worst = max(every, key=lambda pair: pair[1].driver_bytes)
        lines.append(
            f"driver: {plain_size(total.driver_bytes)} of memory in {_named(*worst)}, {plain_size(terms.driver_memory)} are there;"
            f" {LIGHTER.get(worst[0].name, FEWER)}"
        )
    if terms.worker_memory and total.worker_bytes > terms.worker_memory:
        worst = max(every, key=lambda pair: pair[1].worker_bytes)
        lines.append(
            f"workers: {plain_size(total.worker_bytes)} of memory in {_named(*worst)}, {plain_size(terms.worker_memory)} are there;"
            " lower ingest.partition_mb or dedup.memory_mb"
        )
    if terms.object_store and total.requests > terms.requests:
        worst = max(every, key=lambda pair: pair[1].requests)
        lines.append(
            f"requests: {count(total.requests)} of {count(terms.requests)}, {count(worst[1].requests)} of them in {_named(*worst)};"
            f" {FEWER}"
        )
    for one, step in every:
        if step.one_core and step.seconds > LONG:
            lines.append(
                f"one core: {_named(one, step)} takes {span(step.seconds)} however many workers there are"
                f"{ONE_CORE.get(one.name, '')}"
            )
    for one in found:
        if is_local(one.name) and one.partitions < terms.workers and total.seconds > SHORT:
            idle = terms.workers - one.partitions
            lines.append(
                f"partitions: {one.name} has {one.partitions:,} for {quantity(terms.workers, 'worker')}, so"
                f" {quantity(idle, 'worker is idle', 'workers are idle')}; lower ingest.partition_mb"
            )
            break
    for step in (step for one, step in every if one.name == "shard" and step.name == "write"):
        if step.tasks > MANY_TARS:
            lines.append(f"shards: {count(step.tasks)} tars; raise shard.shard_mb")
    return lines


FEWER = "fewer, larger partitions and ranges: raise ingest.partition_mb, dedup.memory_mb and shard.shard_mb"
LIGHTER = {
    "split": "set split.validation_mb, and raise ingest.partition_mb",
    "shard": "raise shard.shard_mb, shard.block_tokens and ingest.partition_mb",
    "report": "raise ingest.partition_mb",
    "ingest": "fewer, larger input files, and raise ingest.partition_mb",
}  # fmt: skip
ONE_CORE = {"tokenizer": "; lower tokenizer.sample_mb"}
