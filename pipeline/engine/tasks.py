"""One fused task: a partition goes through consecutive local stages in memory, each publishing what it made.

Whatever a killed run left is used again when its key says that it is the same: the task starts after the
last stage whose partition is already there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import known, parse
from corpusmill.common.costs import METER
from corpusmill.common.storage import Folder
from corpusmill.common.task_progress import advance, portion
from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table
from corpusmill.pipeline.engine.stage import (
    LocalStage,
    Outcome,
    Partition,
    SourceStage,
    SourceUnit,
    Stage,
    check_conservation,
)
from corpusmill.pipeline.engine.whole_turns import whole_turns
from corpusmill.schemas.manifest import Counts, PartitionManifest, UnitManifest, hash_json
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import KEPT, QUARANTINED, REMOVED


@dataclass(frozen=True)
class Step:
    """One stage of a fused group, as a worker needs it. `key`: of all that a partition's result depends on besides it."""

    name: str
    key: str
    folder: Folder


@dataclass(frozen=True)
class UnitTask:
    """Raw input to partitions, and on through the local stages fused with ingest."""

    recipe_json: str
    steps: tuple[Step, ...]
    unit: SourceUnit


@dataclass(frozen=True)
class PartitionTask:
    """A published partition, on through the local stages of a group."""

    recipe_json: str
    steps: tuple[Step, ...]
    partition: Partition


@lru_cache(maxsize=4)
def _stage(recipe_json: str, name: str) -> Stage:
    with METER.phase("imports"):
        return load_stage(name, Recipe.model_validate_json(recipe_json))


def run_unit(task: UnitTask) -> list[list[PartitionManifest]]:
    """The manifests of every partition of a unit: one list per stage of the group."""
    size = task.unit.size
    with portion(size, size * len(task.steps)):  # a byte of input counts once for each step
        return [list(column) for column in zip(*_chains(task), strict=True)]


def _chains(task: UnitTask) -> list[list[PartitionManifest]]:
    """Of each partition of a unit, its manifest in every stage of the group."""
    ingest, *rest = task.steps
    METER.enter(ingest.name)
    key = unit_key(ingest, task.unit)
    marker = ingest.folder / unit_marker(task.unit)
    unit = parse(UnitManifest, marker)

    def chain(manifest: PartitionManifest, docs: pa.Table | None = None) -> list[PartitionManifest]:
        partition = as_partition(ingest.folder, manifest)
        return [manifest, *run_steps(task.recipe_json, rest, partition, docs, manifest.counts.bytes_in)]

    if unit is not None and unit.key == key:
        manifests = [valid_partition(ingest, name, hash_json([key, name])) for name in unit.partitions]
        found = [manifest for manifest in manifests if manifest is not None]
        if len(found) == len(manifests):
            advance(sum(manifest.counts.bytes_in for manifest in found))
            return [chain(manifest) for manifest in found]
    stage = _stage(task.recipe_json, ingest.name)
    assert isinstance(stage, SourceStage)
    chains: list[list[PartitionManifest]] = []
    clock = time.process_time()
    for name, outcome, raw_bytes in stage.read(task.unit):
        gone = pc.sum(pc.not_equal(outcome.decisions["outcome"], KEPT)).as_py() or 0
        docs_in = len(outcome.kept) + gone
        manifest = publish_outcome(
            ingest,
            name,
            hash_json([key, name]),
            docs_in,
            raw_bytes,
            outcome,
            _ingest_sources(outcome),
            time.process_time() - clock,
        )
        chains.append(chain(manifest, outcome.kept))
        METER.enter(ingest.name)
        clock = time.process_time()
    names = [steps[0].partition for steps in chains]
    done = unit_manifest(ingest, task.unit, names)
    publish_bytes(ingest.folder, unit_marker(task.unit), done.to_json())
    return chains


def unit_key(ingest: Step, unit: SourceUnit) -> str:
    """The key of what a unit of raw input becomes."""
    return hash_json([ingest.key, unit.name, unit.key])


def unit_manifest(ingest: Step, unit: SourceUnit, partitions: list[str]) -> UnitManifest:
    """What is published of a unit that became these partitions."""
    return UnitManifest(key=unit_key(ingest, unit), partitions=partitions)


def unit_marker(unit: SourceUnit) -> str:
    """The file that says which partitions a unit became, below the stage's folder."""
    return f"units/{unit.name}.json"


def run_partition(task: PartitionTask) -> list[PartitionManifest]:
    """The manifest of a partition in each stage of the group."""
    partition = task.partition
    return run_steps(task.recipe_json, task.steps, partition, worth=partition.text_bytes / len(task.steps))


def run_steps(
    recipe_json: str,
    steps: Sequence[Step],
    partition: Partition,
    docs: pa.Table | None = None,
    worth: float = 0,
) -> list[PartitionManifest]:
    """Take a partition through `steps`, skipping those already published; read it only if one is not. `worth`: bytes of
    the task that each step counts as."""
    manifests = []
    for step in steps:
        METER.enter(step.name)
        key = hash_json([step.key, partition.name, partition.xxh3])
        manifest = valid_partition(step, partition.name, key)
        if manifest is None:
            if docs is None:
                with METER.phase("reading"):
                    docs = partition.read()
            stage = _stage(recipe_json, step.name)
            assert isinstance(stage, LocalStage)
            bytes_in = text_bytes(docs)
            clock = time.process_time()
            with portion(worth, bytes_in):
                with METER.phase("models"):
                    transform = stage.transform(step.folder, partition.name)
                with METER.phase("transform"):
                    outcome = transform(docs)
            if stage.recipe.of_conversations:
                outcome = whole_turns(docs, outcome, step.name)
            seconds = time.process_time() - clock
            manifest = publish_outcome(
                step, partition.name, key, len(docs), bytes_in, outcome, _sources(docs, outcome), seconds
            )
            docs = outcome.kept
        else:
            docs = None
            advance(worth)
        partition = as_partition(step.folder, manifest)
        manifests.append(manifest)
    return manifests


def publish_outcome(
    step: Step, name: str, key: str, docs_in: int, bytes_in: int, outcome: Outcome,
    per_source: dict[str, Counts], seconds: float,
) -> PartitionManifest:  # fmt: skip
    """Write a stage's files of one partition, its manifest last."""
    with METER.phase("publishing"):
        return _publish_outcome(step, name, key, docs_in, bytes_in, outcome, per_source, seconds)


def _publish_outcome(
    step: Step, name: str, key: str, docs_in: int, bytes_in: int, outcome: Outcome,
    per_source: dict[str, Counts], seconds: float,
) -> PartitionManifest:  # fmt: skip
    removed, quarantined = check_conservation(f"{step.name}, partition {name}", docs_in, outcome)
    files = [
        publish_table(step.folder, f"documents/{name}.parquet", outcome.kept),
        publish_table(step.folder, f"decisions/{name}.parquet", outcome.decisions),
    ]
    if outcome.signals is not None:
        files.append(publish_table(step.folder, f"signals/{name}.parquet", outcome.signals))
    manifest = PartitionManifest(
        partition=name,
        key=key,
        counts=Counts(
            docs_in=docs_in, kept=len(outcome.kept), removed=removed, quarantined=quarantined,
            bytes_in=bytes_in, bytes_kept=text_bytes(outcome.kept),
        ),
        per_source=per_source,
        files=files,
        counters=dict(sorted(outcome.counters.items())),
        seconds=round(seconds, 6),
    )  # fmt: skip
    publish_bytes(step.folder, f"parts/{name}.json", manifest.to_json())
    return manifest


def valid_partition(step: Step, name: str, key: str) -> PartitionManifest | None:
    """The manifest of a published partition, if its key is the wanted one and its files are all there."""
    return known(PartitionManifest, step.folder / f"parts/{name}.json", key, step.folder)


def as_partition(folder: Folder, manifest: PartitionManifest) -> Partition:
    """The document partition that a manifest describes."""
    documents = next(f for f in manifest.files if f.path.startswith("documents/"))
    return Partition(
        manifest.partition, folder, manifest.counts.kept, manifest.counts.bytes_kept, documents.xxh3
    )


def text_bytes(docs: pa.Table) -> int:
    """UTF-8 bytes of a table's texts."""
    return pc.sum(pc.binary_length(docs["text"])).as_py() or 0


def _ingest_sources(outcome: Outcome) -> dict[str, Counts]:
    kept = _by_source(outcome.kept)
    gone = _by_outcome(outcome.decisions["source"], outcome.decisions["outcome"])
    return _counts(kept, gone, {})


def _sources(docs: pa.Table, outcome: Outcome) -> dict[str, Counts]:
    """Counts per source: the decisions name documents, the incoming table knows their sources."""
    sources = docs["source"].take(pc.index_in(outcome.decisions["doc_id"], docs["doc_id"]))
    return _counts(
        _by_source(outcome.kept), _by_outcome(sources, outcome.decisions["outcome"]), _by_source(docs)
    )


def _by_source(docs: pa.Table) -> dict[str, tuple[int, int]]:
    """source -> (documents, bytes of text)."""
    names, codes = _codes(docs["source"])
    sizes = pc.binary_length(docs["text"]).to_numpy().astype(np.int64)
    found = {}
    for code, name in enumerate(names):
        mine = sizes[codes == code]
        found[name] = (len(mine), int(mine.sum()))
    return found


def _by_outcome(sources: pa.ChunkedArray, outcomes: pa.ChunkedArray) -> dict[tuple[str, str], int]:
    """(source, outcome) -> documents, of those removed or quarantined."""
    names, codes = _codes(sources)
    kinds, kind_codes = _codes(outcomes)
    found = {
        (name, kind): int(np.count_nonzero((codes == code) & (kind_codes == kind_code)))
        for code, name in enumerate(names)
        for kind_code, kind in enumerate(kinds)
        if kind in (REMOVED, QUARANTINED)
    }
    return {pair: count for pair, count in found.items() if count}


def _codes(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The distinct values of a column, and for each row the number of its value."""
    encoded = pc.dictionary_encode(
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
    )
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _counts(
    kept: dict[str, tuple[int, int]], gone: dict[tuple[str, str], int], incoming: dict[str, tuple[int, int]]
) -> dict[str, Counts]:
    result = {}
    for source in sorted({*kept, *incoming, *(name for name, _ in gone)}):
        documents, size = kept.get(source, (0, 0))
        removed, quarantined = gone.get((source, REMOVED), 0), gone.get((source, QUARANTINED), 0)
        result[source] = Counts(
            docs_in=documents + removed + quarantined, kept=documents, removed=removed, quarantined=quarantined,
            bytes_in=incoming.get(source, (0, 0))[1], bytes_kept=size,
        )  # fmt: skip
    return result
