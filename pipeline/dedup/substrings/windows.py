"""The last three steps: single windows where blocks leave it open, which come first, and the spans to cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.dedup.spans import SPANS, Kept
from corpusmill.pipeline.dedup.substrings import anchor_kernels, equal_units, token_runs
from corpusmill.pipeline.dedup.substrings.blocks import CHUNKS, FATE, FLAG, Chunk, grouped
from corpusmill.pipeline.dedup.substrings.substring_job import (
    I64,
    UNIT_COST,
    WINDOW,
    Docs,
    Job,
    Range,
    answer,
    load,
)
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.shuffle import (
    Done,
    File,
    Records,
    Slice,
    hashes_of,
    ids,
    once,
    read,
    read_slices,
    starts_of,
    write,
)
from corpusmill.schemas.manifest import hash_json

Fates = npt.NDArray[np.uint32]


class Settled(NamedTuple):
    """A partition, and for each chunk of it the blocks, and what becomes of them."""

    kept: Kept
    units: tuple[File, ...]
    flags: tuple[Sequence[Slice], ...]
    block_ranges: int
    ranges: int  # of windows

    def key(self, job: Job, name: str) -> list[object]:
        """What a step called `name` depends on."""
        made = [
            [file.file.xxh3, hashes_of(slices)] for file, slices in zip(self.units, self.flags, strict=True)
        ]
        return [
            job.key,
            name,
            self.kept.index,
            self.kept.partition.name,
            made,
            self.block_ranges,
            self.ranges,
        ]


class Elected(NamedTuple):
    """A partition, and for each chunk of its windows whether they come first."""

    settled: Settled
    flags: tuple[Sequence[Slice], ...]


def settled_blocks(job: Job, item: Settled) -> Iterator[tuple[Records, Fates]]:
    """The blocks of each chunk, and what becomes of them."""
    for file, slices in zip(item.units, item.flags, strict=True):
        chunk = grouped(read(job.work, file.file, token_runs.UNIT), "key", item.block_ranges)
        yield chunk.units, chunk.spread(read_slices(job.work, slices, FATE), job.winnow.tokens)


def open_windows(job: Job, item: Settled, docs: Docs) -> Iterator[tuple[Chunk, Fates]]:
    """The windows of contested blocks, of as many documents as the budget allows at a time, one at least, and
    the order of their blocks."""
    room = max(1, job.budget // UNIT_COST)
    for found, fates in settled_blocks(job, item):
        contested = fates >= equal_units.CONTESTED
        found, fates = found[contested], fates[contested]
        heads = np.flatnonzero(starts_of(found["row"]))
        ends = (
            np.cumsum(found["count"], dtype=np.int64)[np.r_[heads[1:], len(found)] - 1]
            if len(heads)
            else heads
        )
        first = 0
        while first < len(heads):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + room, side="right")))
            some = slice(heads[first], heads[last] if last < len(heads) else len(found))
            texts, size = (docs.offsets, docs.data), job.winnow.tokens
            made = token_runs.windows(*texts, found[some], anchor_kernels.classes(), size)
            yield grouped(made, "check", item.ranges), np.repeat(fates[some], found["count"][some])
            first = last


def windows(job: Job, item: Settled) -> Done:
    """Publishes the first of equal windows in each chunk (`records.<chunk>`), cut by range; counts them."""
    key = hash_json(item.key(job, "windows"))
    name = f"windows/{item.kept.index:06d}"

    def step() -> Done:
        files: dict[str, File] = {}
        count = 0
        if any((fates >= equal_units.CONTESTED).any() for _, fates in settled_blocks(job, item)):
            for number, (chunk, order) in enumerate(open_windows(job, item, load(job, item.kept))):
                if number == CHUNKS:
                    raise WorkError(
                        f"partition {item.kept.partition.name}: too many repeats for dedup.memory_mb"
                    )
                firsts = chunk.firsts[chunk.order]
                records = np.empty(len(firsts), WINDOW)
                records["key"] = chunk.units["check"][firsts]
                records["check"] = chunk.units["key"][firsts] >> np.uint64(32)
                records["order"] = order[firsts]
                file = f"{name}.{number:06d}.records"
                files[f"records.{number:06d}"] = write(job.work, file, records, chunk.numbers[chunk.order])
                count += len(records)
        return Done(key=key, files=files, counters={"records": count})

    return once(job.work, name, key, step)


def elect(job: Job, item: Range) -> Done:
    """Answers whether each window of a range comes after an equal one."""

    def judge(records: Records) -> Records:
        flags: Records = equal_units.beaten(
            *(np.ascontiguousarray(records[name]) for name in WINDOW.names or ())
        )
        return flags

    return answer(job, "elect", item, WINDOW, judge)


def cut(job: Job, item: Elected) -> Done:
    """Publishes what is to be cut of a partition, `spans/substrings/<name>.parquet` (`spans`), in the stage's
    folder; counts spans, bytes (of each source too), documents, and the tokens of the longest span."""
    kept = item.settled.kept
    key = hash_json([*item.settled.key(job, "cut"), [hashes_of(slices) for slices in item.flags]])

    def step() -> Done:
        found = [np.empty(0, token_runs.UNIT)]
        found += [blocks[fates == equal_units.GONE] for blocks, fates in settled_blocks(job, item.settled)]
        if not item.flags and not any(map(len, found)):  # nothing to read the documents for
            return _publish(job, kept, key, NO_DOCS, np.empty((0, 4), np.int64))
        docs = load(job, kept)
        if item.flags:
            for (chunk, _), slices in zip(open_windows(job, item.settled, docs), item.flags, strict=True):
                fates = chunk.spread(read_slices(job.work, slices, FLAG).astype(np.uint32), job.winnow.tokens)
                found.append(chunk.units[fates == equal_units.GONE])
        gone = np.concatenate(found)
        gone = gone[docs.rank[gone["row"]] >= job.guarded]
        gone = gone[np.lexsort((gone["start"], gone["row"]))]
        return _publish(job, kept, key, docs, equal_units.union(gone, job.winnow.tokens))

    return once(job.folder, f"scratch/substrings/cut/{kept.index:06d}", key, step)


NO_DOCS = Docs(
    pa.array([], pa.string()), np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint64),
    np.zeros(1, np.int64), np.empty(0, np.uint8), np.empty(0, np.int64),
)  # fmt: skip


def _publish(job: Job, kept: Kept, key: str, docs: Docs, spans: I64) -> Done:
    """Publishes spans (row, start, stop, tokens) as a table of `SPANS`."""
    row, start, stop, size = spans.T
    order = np.lexsort((start, docs.lo[row], docs.hi[row]))
    row, start, length = row[order], start[order], (stop - start)[order]
    columns = [ids(docs.hi[row], docs.lo[row]), pa.array(start), pa.array(length)]
    table = pa.Table.from_arrays(columns, schema=SPANS)
    file = publish_table(job.folder, f"spans/substrings/{kept.partition.name}.parquet", table)
    counters = {
        "spans": len(spans), "bytes": int(length.sum()), "documents": len(np.unique(row)),
        "longest": int(size.max(initial=0)),
    }  # fmt: skip
    sources = docs.source.take(pa.array(row)).dictionary_encode()
    for number, name in enumerate(sources.dictionary.to_pylist()):
        counters[f"source/{name}/bytes"] = int(length[sources.indices.to_numpy() == number].sum())
    return Done(key=key, files={"spans": File(file=file)}, counters=counters)
