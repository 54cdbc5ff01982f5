"""The first four steps: the anchors of each partition and which of them are repeated; then the blocks that may be
repeated, and what becomes of them.

A partition's blocks come in chunks of whole documents, the documents in the order that decides which stays: of equal
blocks in a chunk the first is the best, and only that one goes to its range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.dedup.spans import Kept
from corpusmill.pipeline.dedup.substrings import anchor_kernels, equal_units, token_runs
from corpusmill.pipeline.dedup.substrings.anchor_kernels import hash_set
from corpusmill.pipeline.dedup.substrings.substring_job import (
    ANCHOR,
    BLOCK,
    I64,
    UNIT_COST,
    Docs,
    Job,
    Range,
    answer,
    load,
)
from corpusmill.pipeline.engine.shuffle import (
    Done,
    File,
    Records,
    Slice,
    hashes_of,
    in_range,
    once,
    read,
    read_slices,
    write,
)
from corpusmill.pipeline.text.shingles import one_array, view
from corpusmill.schemas.manifest import hash_json

CHUNKS = 1 << 20  # of a partition, at most
FLAG, FATE = np.dtype("u1"), np.dtype("<u4")


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
        file = write(job.work, f"{name}.anchors", anchors, in_range(anchors, job.anchor_ranges))
        counters = {"documents": len(text), "tokens": int(count), "bytes": int(offsets[-1] - offsets[0])}
        return Done(key=key, files={"anchors": file}, counters=counters)

    return once(job.work, name, key, step)


def repeats(job: Job, item: Range) -> Done:
    """Answers whether each anchor of a range is repeated in the corpus."""
    return answer(job, "repeats", item, ANCHOR, equal_units.repeated)


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
        found: npt.NDArray[np.uint32] = equal_units.fates(
            row, token, self.which, self.firsts, of_group, tokens
        )
        return found


def grouped(found: Records, by: str, ranges: int) -> Chunk:
    """Units with their groups; `by` is the field whose ranges their records are cut by."""
    which, firsts = equal_units.group(found["key"], found["check"])
    numbers = in_range(found[by][firsts], ranges)
    small = numbers.astype(np.uint16) if ranges <= 1 << 16 else numbers  # these are sorted by radix
    return Chunk(found, which, firsts, np.argsort(small, kind="stable"), numbers)


def found_in(job: Job, docs: Docs, anchors: npt.NDArray[np.uint64]) -> Iterator[Records]:
    """The blocks with these anchors, of as many documents as the budget allows at a time, one at least."""
    slots = hash_set(anchors)
    room, begin = max(1, job.budget // UNIT_COST), 0
    while begin < len(docs.rows):
        out = np.empty(room, token_runs.UNIT)
        scan = partial(
            token_runs.blocks,
            docs.offsets,
            docs.data,
            docs.rows,
            begin,
            anchor_kernels.classes(),
            *job.winnow,
            slots,
        )
        done, count, needed = scan(out)
        if count == 0 and needed:
            out = np.empty(needed, token_runs.UNIT)
            done, count, _ = scan(out)
        if count:
            yield out[:count]
        begin = done


def blocks(job: Job, item: Scanned) -> Done:
    """Publishes the blocks of a partition whose anchors are repeated: all of them (`units.<chunk>`), and for
    the others the first of equal ones in each chunk (`records.<chunk>`), cut by range; counts both."""
    made = [item.anchors.file.xxh3, hashes_of(item.flags), item.ranges]
    key = hash_json([job.key, "blocks", item.kept.index, item.kept.partition.name, *made])
    name = f"blocks/{item.kept.index:06d}"

    def step() -> Done:
        files: dict[str, File] = {}
        counters = {"units": 0, "records": 0}
        anchors = read(job.work, item.anchors.file, ANCHOR)
        anchors = anchors[read_slices(job.work, item.flags, FLAG) > 0]
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
            files[f"records.{number:06d}"] = write(job.work, f"{file}.records", records, numbers)
            files[f"units.{number:06d}"] = write(job.work, f"{file}.units", found)
            counters["units"] += len(found)
            counters["records"] += len(records)
        return Done(key=key, files=files, counters=counters)

    return once(job.work, name, key, step)


def settle(job: Job, item: Range) -> Done:
    """Answers what becomes of each block of a range."""
    return answer(job, "settle", item, BLOCK, equal_units.settle)
