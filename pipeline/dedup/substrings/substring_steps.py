"""The steps of the search: repeated anchors (`scan`, `repeats`), blocks that may be repeated and what becomes of them
(`blocks`, `settle`), single windows where blocks leave it open (`windows`, `elect`), and the spans to cut (`cut`).

A partition's blocks come in chunks of whole documents, the documents in the order that decides which stays: of equal
blocks in a chunk the first is the best, and only that one goes to its range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.dedup.job import Kept, publish_spans
from corpusmill.pipeline.dedup.substrings import anchor_kernels, substring_job
from corpusmill.pipeline.dedup.substrings.anchor_kernels import hash_set
from corpusmill.pipeline.dedup.substrings.substring_job import (
    ANCHOR,
    BLOCK,
    I64,
    UNIT_COST,
    WINDOW,
    Docs,
    Job,
    Range,
    answer,
    load,
)
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice
from corpusmill.pipeline.text.buffers import one_array, view
from corpusmill.schemas.manifest import hash_json

CHUNKS = 1 << 20  # of a partition, at most
FLAG, FATE = np.dtype("u1"), np.dtype("<u4")
Fates = npt.NDArray[np.uint32]


def scan(job: Job, kept: Kept) -> Done:
    """Publishes the distinct anchors of a partition (`anchors`), ascending, cut by range; counts documents,
    tokens and bytes."""
    key = hash_json([job.key, "scan", kept.index, kept.partition.name, kept.partition.xxh3, kept.xxh3])
    name = f"scan/{kept.index:06d}"

    def step() -> Done:
        text = one_array(kept.read(["text"])["text"])
        offsets, data = view(text)
        rows = np.arange(len(text), dtype=np.int64)
        anchors, count = anchor_kernels.winnow(offsets, data, rows, anchor_kernels.classes(), *job.winnow)
        anchors.sort()
        anchors = anchors[: anchor_kernels.distinct(anchors)]
        file = shuffle.write(
            job.work, f"{name}.anchors", anchors, shuffle.in_range(anchors, job.anchor_ranges)
        )
        counters = {"documents": len(text), "tokens": int(count), "bytes": int(offsets[-1] - offsets[0])}
        return Done(key=key, files={"anchors": file}, counters=counters)

    return shuffle.once(job.work, name, key, step)


def repeats(job: Job, item: Range) -> Done:
    """Answers whether each anchor of a range is repeated in the corpus."""
    return answer(job, "repeats", item, ANCHOR, substring_job.repeated)


class Scanned(NamedTuple):
    """A partition, its anchors, and which of them are repeated."""

    kept: Kept
    anchors: File
    flags: Sequence[Slice]
    ranges: int  # of blocks


class Chunk(NamedTuple):
    """Units in order of text, and the groups of equal ones; `order` of the groups is that of their records."""

    units: Records
    which: npt.NDArray[np.int32]
    firsts: npt.NDArray[np.int32]
    order: I64
    numbers: I64  # the range of each group

    def spread(self, flags: npt.NDArray[np.uint32], tokens: int) -> npt.NDArray[np.uint32]:
        """What becomes of each unit, given the answers to the records."""
        of_group = np.empty(len(self.firsts), np.uint32)
        of_group[self.order] = flags
        row, token = self.units["row"], self.units["token"]
        found: Fates = substring_job.fates(row, token, self.which, self.firsts, of_group, tokens)
        return found


def grouped(found: Records, by: str, ranges: int) -> Chunk:
    """Units with their groups; `by` is the field whose ranges their records are cut by."""
    which, firsts = substring_job.group(found["key"], found["check"])
    numbers = shuffle.in_range(found[by][firsts], ranges)
    small = numbers.astype(np.uint16) if ranges <= 1 << 16 else numbers  # these are sorted by radix
    return Chunk(found, which, firsts, np.argsort(small, kind="stable"), numbers)


def found_in(job: Job, docs: Docs, anchors: npt.NDArray[np.uint64]) -> Iterator[Records]:
    """The blocks with these anchors, of as many documents as the budget allows at a time, one at least."""
    slots = hash_set(anchors)
    capacity, begin = max(1, job.budget // UNIT_COST), 0
    while begin < len(docs.rows):
        out = np.empty(capacity, anchor_kernels.UNIT)
        texts, table = (docs.offsets, docs.data, docs.rows), anchor_kernels.classes()
        scan = partial(anchor_kernels.blocks, *texts, begin, table, *job.winnow, slots)
        done, count, needed = scan(out)
        if count == 0 and needed:
            out = np.empty(needed, anchor_kernels.UNIT)
            done, count, _ = scan(out)
        if count:
            yield out[:count]
        begin = done


def blocks(job: Job, item: Scanned) -> Done:
    """Publishes the blocks of a partition whose anchors are repeated: all of them (`units.<chunk>`), and for
    the others the first of equal ones in each chunk (`records.<chunk>`), cut by range; counts both."""
    made = [item.anchors.file.xxh3, shuffle.hashes_of(item.flags), item.ranges]
    key = hash_json([job.key, "blocks", item.kept.index, item.kept.partition.name, *made])
    name = f"blocks/{item.kept.index:06d}"

    def step() -> Done:
        files: dict[str, File] = {}
        counters = {"units": 0, "records": 0}
        anchors = shuffle.read(job.work, item.anchors.file, ANCHOR)
        anchors = anchors[shuffle.read_slices(job.work, item.flags, FLAG) > 0]
        if len(anchors) == 0:  # nothing to read the texts for
            return Done(key=key, files=files, counters=counters)
        docs = load(job, item.kept)
        for number, found in enumerate(found_in(job, docs, anchors)):
            if number == CHUNKS:
                raise WorkError(f"partition {item.kept.partition.name}: too many repeats for dedup.memory_mb")
            chunk = grouped(found, "key", item.ranges)
            firsts = found[chunk.firsts[chunk.order]]
            records = np.empty(len(firsts), BLOCK)
            records["key"], records["check"] = firsts["key"], firsts["check"]
            records["rank"], records["ident"] = docs.rank[firsts["row"]], docs.hi[firsts["row"]]
            file = f"{name}.{number:06d}"
            numbers = chunk.numbers[chunk.order]
            files[f"records.{number:06d}"] = shuffle.write(job.work, f"{file}.records", records, numbers)
            files[f"units.{number:06d}"] = shuffle.write(job.work, f"{file}.units", found)
            counters["units"] += len(found)
            counters["records"] += len(records)
        return Done(key=key, files=files, counters=counters)

    return shuffle.once(job.work, name, key, step)


def settle(job: Job, item: Range) -> Done:
    """Answers what becomes of each block of a range."""
    return answer(job, "settle", item, BLOCK, substring_job.settle)


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
            [file.file.xxh3, shuffle.hashes_of(slices)]
            for file, slices in zip(self.units, self.flags, strict=True)
        ]
        place = [self.kept.index, self.kept.partition.name]
        return [job.key, name, *place, made, self.block_ranges, self.ranges]


class Elected(NamedTuple):
    """A partition, and for each chunk of its windows whether they come first."""

    settled: Settled
    flags: tuple[Sequence[Slice], ...]


def settled_blocks(job: Job, item: Settled) -> Iterator[tuple[Records, Fates]]:
    """The blocks of each chunk, and what becomes of them."""
    for file, slices in zip(item.units, item.flags, strict=True):
        chunk = grouped(shuffle.read(job.work, file.file, anchor_kernels.UNIT), "key", item.block_ranges)
        yield chunk.units, chunk.spread(shuffle.read_slices(job.work, slices, FATE), job.winnow.tokens)


def open_windows(job: Job, item: Settled, docs: Docs) -> Iterator[tuple[Chunk, Fates]]:
    """The windows of contested blocks, of as many documents as the budget allows at a time, one at least, and
    the order of their blocks."""
    capacity = max(1, job.budget // UNIT_COST)
    for found, fates in settled_blocks(job, item):
        contested = fates >= substring_job.CONTESTED
        found, fates = found[contested], fates[contested]
        heads = np.flatnonzero(shuffle.starts_of(found["row"]))
        lasts = np.r_[heads[1:], len(found)][: len(heads)] - 1
        ends = np.cumsum(found["count"], dtype=np.int64)[lasts]
        first = 0
        while first < len(heads):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + capacity, side="right")))
            some = slice(heads[first], heads[last] if last < len(heads) else len(found))
            texts, size = (docs.offsets, docs.data), job.winnow.tokens
            made = anchor_kernels.windows(*texts, found[some], anchor_kernels.classes(), size)
            yield grouped(made, "check", item.ranges), np.repeat(fates[some], found["count"][some])
            first = last


def windows(job: Job, item: Settled) -> Done:
    """Publishes the first of equal windows in each chunk (`records.<chunk>`), cut by range; counts them."""
    key = hash_json(item.key(job, "windows"))
    name = f"windows/{item.kept.index:06d}"

    def step() -> Done:
        files: dict[str, File] = {}
        count = 0
        if any((fates >= substring_job.CONTESTED).any() for _, fates in settled_blocks(job, item)):
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
                files[f"records.{number:06d}"] = shuffle.write(
                    job.work, file, records, chunk.numbers[chunk.order]
                )
                count += len(records)
        return Done(key=key, files=files, counters={"records": count})

    return shuffle.once(job.work, name, key, step)


def elect(job: Job, item: Range) -> Done:
    """Answers whether each window of a range comes after an equal one."""

    def judge(records: Records) -> Records:
        flags: Records = substring_job.beaten(
            *(np.ascontiguousarray(records[name]) for name in WINDOW.names or ())
        )
        return flags

    return answer(job, "elect", item, WINDOW, judge)


def cut(job: Job, item: Elected) -> Done:
    """Publishes what is to be cut of a partition, `spans/substrings/<name>.parquet` (`spans`), in the stage's
    folder; counts spans, bytes (of each source too), documents, and the tokens of the longest span."""
    kept = item.settled.kept
    key = hash_json([*item.settled.key(job, "cut"), [shuffle.hashes_of(slices) for slices in item.flags]])

    def step() -> Done:
        found = [np.empty(0, anchor_kernels.UNIT)]
        found += [blocks[fates == substring_job.GONE] for blocks, fates in settled_blocks(job, item.settled)]
        if not item.flags and not any(map(len, found)):  # nothing to read the documents for
            return _publish(job, kept, key, NO_DOCS, np.empty((0, 4), np.int64))
        docs = load(job, kept)
        if item.flags:
            for (chunk, _), slices in zip(open_windows(job, item.settled, docs), item.flags, strict=True):
                fates = chunk.spread(
                    shuffle.read_slices(job.work, slices, FLAG).astype(np.uint32), job.winnow.tokens
                )
                found.append(chunk.units[fates == substring_job.GONE])
        gone = np.concatenate(found)
        gone = gone[docs.rank[gone["row"]] >= job.guarded]
        gone = gone[np.lexsort((gone["start"], gone["row"]))]
        return _publish(job, kept, key, docs, substring_job.union(gone, job.winnow.tokens))

    return shuffle.once(job.folder, f"scratch/substrings/cut/{kept.index:06d}", key, step)


NO_DOCS = Docs(
    pa.array([], pa.string()), np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint64),
    np.zeros(1, np.int64), np.empty(0, np.uint8), np.empty(0, np.int64),
)  # fmt: skip


def _publish(job: Job, kept: Kept, key: str, docs: Docs, spans: I64) -> Done:
    """Publishes spans (row, start, stop, tokens) as a table of `SPANS`."""
    row, start, stop, size = spans.T
    length, ids = stop - start, (docs.hi[row], docs.lo[row])
    file = publish_spans(job.folder, "substrings", kept.partition.name, ids, start, length)
    counters = {
        "spans": len(spans), "bytes": int(length.sum()), "documents": len(np.unique(row)),
        "longest": int(size.max(initial=0)),
    }  # fmt: skip
    sources = docs.source.take(pa.array(row)).dictionary_encode()
    for number, name in enumerate(sources.dictionary.to_pylist()):
        counters[f"source/{name}/bytes"] = int(length[sources.indices.to_numpy() == number].sum())
    return Done(key=key, files={"spans": file}, counters=counters)
