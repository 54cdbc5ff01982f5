"""The search for repeated substrings, step by step, on the driver, which holds counts and where records lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Kept
from corpusmill.pipeline.dedup.substrings import anchor_kernels
from corpusmill.pipeline.dedup.substrings.anchor_kernels import Winnow
from corpusmill.pipeline.dedup.substrings.substring_job import (
    ANCHOR_COST,
    BLOCK_COST,
    WINDOW_COST,
    Job,
    ranges_of,
)
from corpusmill.pipeline.dedup.substrings.substring_steps import (
    CHUNKS,
    Elected,
    Scanned,
    Settled,
    blocks,
    cut,
    elect,
    repeats,
    scan,
    settle,
    windows,
)
from corpusmill.pipeline.engine.shuffle import Done, File, Slice, by_part
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.schemas.dedup import SubstringParams
from corpusmill.schemas.manifest import PublishedFile, hash_json

VERSION = "1"  # raised with every change that may change a byte
BYTES_PER_TOKEN = 3  # at least, in any language; for the number of ranges


def find(
    folder: Folder, kept: Sequence[Kept], params: SubstringParams, priorities: Mapping[str, int],
    remove_only_from: Sequence[str] | None, scheduler: Scheduler, memory_mb: int, key: str,
) -> tuple[list[PublishedFile], dict[str, int]]:  # fmt: skip
    """Publish `spans/substrings/<partition>.parquet` (`SPANS`) for every partition; (files, counters).

    Which occurrence of a run stays is described in the package's docstring: that in a source outside of
    `remove_only_from` (None: all may be cut), then of the highest of `priorities`, then of the lowest doc_id,
    then the first in the text. `memory_mb` bounds the records that a task holds beside its partition. `key`
    stands for whatever the documents depend on. Resumable: intermediate files lie in `scratch/substrings`.
    """
    winnow = Winnow.of(params.min_tokens)
    order = tuple(sorted(priorities.items()))
    own = None if remove_only_from is None else tuple(sorted(remove_only_from))
    size = sum(item.partition.text_bytes for item in kept)
    budget = memory_mb << 20
    ranges = _ranges(size * 2 // (BYTES_PER_TOKEN * (winnow.w + 1)), ANCHOR_COST, budget)
    whole = hash_json([VERSION, anchor_kernels.RULE, key, list(winnow), order, own, budget, ranges])
    job = Job(folder, winnow, order, own, budget, ranges, whole)

    def run(step: Any, items: Sequence[Any], label: str, weights: list[int] | None = None) -> list[Done]:
        return scheduler.map(partial(step, job), items, f"dedup {label}", weights)

    weights = [item.partition.text_bytes for item in kept]
    dones = run(scan, kept, "anchors", weights)
    anchors = {index: done.files["anchors"] for index, done in _by_index(kept, dones).items()}
    answers = run(repeats, ranges_of(anchors), "repeated anchors")
    flags = by_part(answers, "flags")
    # Of a repeated anchor a partition sends two different blocks on average, at most.
    block_ranges = _ranges(2 * _count(answers, "flagged"), BLOCK_COST, budget)
    scanned = [Scanned(item, anchors[item.index], flags.get(item.index, ()), block_ranges) for item in kept]
    found = _by_index(kept, run(blocks, scanned, "repeated runs", weights))
    answers = run(settle, ranges_of(_records(found)), "first runs")
    # A block has (w + 1) / 2 windows on average.
    ranges = _ranges(_count(answers, "contested") * winnow.w, WINDOW_COST, budget)
    fates = _by_chunk(by_part(answers, "flags"), found)
    settled = [
        Settled(item, _files(found[item.index], "units"), fates[item.index], block_ranges, ranges)
        for item in kept
    ]
    made = _by_index(kept, run(windows, settled, "windows at their ends", weights))
    answers = run(elect, ranges_of(_records(made)), "first windows")
    lost = _by_chunk(by_part(answers, "flags"), made)
    dones = run(
        cut, [Elected(item, lost[item.kept.index]) for item in settled], "repeated substrings", weights
    )
    return [done.files["spans"].file for done in dones], _counters(dones, priorities)


def _ranges(records: int, cost: int, budget: int) -> int:
    return max(1, -(-records * cost // budget))


def _count(dones: Sequence[Done], name: str) -> int:
    return sum(done.counters[name] for done in dones)


def _by_index(kept: Sequence[Kept], dones: Sequence[Done]) -> dict[int, Done]:
    return {item.index: done for item, done in zip(kept, dones, strict=True)}


def _files(done: Done, kind: str) -> tuple[File, ...]:
    """A step's files of one kind, chunk by chunk."""
    return tuple(file for name, file in sorted(done.files.items()) if name.startswith(kind))


def _records(dones: Mapping[int, Done]) -> dict[int, File]:
    """Origin of the records of each chunk -> the records."""
    return {
        index * CHUNKS + chunk: file
        for index, done in dones.items()
        for chunk, file in enumerate(_files(done, "records"))
    }


def _by_chunk(
    answers: Mapping[int, Sequence[Slice]], dones: Mapping[int, Done]
) -> dict[int, tuple[Sequence[Slice], ...]]:
    """The answers to the records of each chunk of each partition."""
    return {
        index: tuple(answers[index * CHUNKS + chunk] for chunk in range(len(_files(done, "records"))))
        for index, done in dones.items()
    }


def _counters(dones: Sequence[Done], sources: Mapping[str, int]) -> dict[str, int]:
    total = {f"source/{name}/substring_bytes_cut": 0 for name in sorted(sources)}
    for done in dones:
        for name, count in done.counters.items():
            if name.startswith("source/"):
                name = f"{name.removesuffix('/bytes')}/substring_bytes_cut"
                total[name] = total.get(name, 0) + count
    return {
        "substrings_cut": sum(done.counters["spans"] for done in dones),
        "substring_bytes_cut": sum(done.counters["bytes"] for done in dones),
        "documents_with_cut_substrings": sum(done.counters["documents"] for done in dones),
        "longest_repeat": max((done.counters["longest"] for done in dones), default=0),
    } | dict(sorted(total.items()))
