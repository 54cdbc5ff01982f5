"""Shingle sets on their way to the tasks that compare them, in large runs (`Job.sends`).

A pair's first text lies near the others of its task, its second one anywhere. Fetched by range, nearly each of a
billion second sets is a request of its own. So the partition that makes a set writes it once more for each task that
wants it, in the order of the tasks; a task then reads one slice of each partition: bytes written and read once, and
partitions x tasks requests at most.

A slice is a run of 64-bit words: the number n of its sets, their n locations, their n sizes, and their hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.candidates import unique_edges
from corpusmill.pipeline.dedup.job import HASH, I64, U64, Job
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slices
from corpusmill.schemas.manifest import PublishedFile

SENT = "sent"  # files of this name hold them, several if a partition sends more than a task may hold
WRITING = 8  # times its words that a task holds which writes a file of them, of the budget


@dataclass(frozen=True)
class Block:
    """Sets of texts at ascending locations."""

    location: I64
    bounds: I64
    hashes: U64

    @property
    def size(self) -> I64:
        return np.diff(self.bounds)


def publish_starts(job: Job, starts: list[int]) -> PublishedFile:
    """Publish with which partition each task of comparison begins: what tells a partition whom to send a set."""
    return shuffle.write(job.work, "sets/starts", np.array(starts, np.int64)).file


def send(
    job: Job, name: str, partners: Records, starts: PublishedFile, nodes: Records, hashes: U64
) -> dict[str, File]:
    """Publish the sets of `partners` (`PARTNER` records, the texts among `nodes`) by task; no file is larger than a
    part of the budget, or than one set."""
    first = shuffle.read(job.work, starts, np.dtype("<i8"))
    task = first[np.searchsorted(first, partners["first_in"], side="right") - 1]
    wanted = unique_edges(task, partners["location"])  # by task, then location
    rows = np.searchsorted(nodes["location"], wanted["b"])
    ends = np.cumsum(nodes["size"][rows] + 2)
    files: dict[str, File] = {}
    begin = 0
    while begin < len(rows):
        most = (ends[begin - 1] if begin else 0) + job.budget // (WRITING * HASH.itemsize)
        stop = max(begin + 1, int(np.searchsorted(ends, most, side="right")))
        words, tasks = _lay_out(wanted["a"][begin:stop], nodes[rows[begin:stop]], hashes)
        files[f"{SENT}.{len(files):04d}"] = shuffle.write(
            job.work, f"{name}.{SENT}.{len(files):04d}", words, tasks
        )
        begin = stop
    return files


def _lay_out(task: I64, nodes: Records, hashes: U64) -> tuple[U64, I64]:
    """The words of all slices of a file, and of which task each word is."""
    first = np.r_[np.flatnonzero(shuffle.starts_of(task)), len(task)].astype(np.int64)
    lengths = np.add.reduceat(nodes["size"] + 2, first[:-1]) + 1
    begins = np.r_[0, np.cumsum(lengths)].astype(np.int64)
    words = np.empty(begins[-1], np.uint64)
    location, start, size = (np.ascontiguousarray(nodes[name]) for name in ("location", "start", "size"))
    _write_slices(words, begins, first, location, start, size, hashes)
    return words, np.repeat(task[first[:-1]], lengths)


@compiled
def _write_slices(
    words: Any, begins: Any, first: Any, location: Any, start: Any, size: Any, hashes: Any
) -> None:
    for part in range(len(first) - 1):
        count = first[part + 1] - first[part]
        at = begins[part]
        words[at] = count
        to = at + 1 + 2 * count
        for i in range(count):
            row = first[part] + i
            words[at + 1 + i] = location[row]
            words[at + 1 + count + i] = size[row]
            words[to : to + size[row]] = hashes[start[row] : start[row] + size[row]]
            to += size[row]


def files_of(dones: Sequence[Done]) -> list[Done]:
    """What steps sent, as results with one file each, called `SENT`."""
    return [
        Done(key="", files={SENT: file})
        for done in dones
        for name, file in done.files.items()
        if name.startswith(f"{SENT}.")
    ]


def received(job: Job, slices: Slices) -> Iterator[Block]:
    """The sets in the slices of a task, in blocks that fit a quarter of the budget, one slice at least. The slices are
    those of partitions in ascending order, so locations ascend over all blocks."""
    most = job.budget // (4 * HASH.itemsize)
    ends = np.cumsum(slices.rows["count"])
    begin = 0
    while begin < len(ends):
        before = ends[begin - 1] if begin else 0
        stop = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield _block(job, slices[begin:stop])  # its words are no longer held then
        begin = stop


def _block(job: Job, slices: Slices) -> Block:
    words = shuffle.read_slices(job.work, slices, HASH)
    begins = np.r_[0, np.cumsum(slices.rows["count"])]
    counts = words[begins[:-1]].astype(np.int64)
    location, size, hashes = [], [], []
    for (at, end), count in zip(pairwise(begins.tolist()), counts.tolist(), strict=True):
        location.append(words[at + 1 : at + 1 + count])
        size.append(words[at + 1 + count : at + 1 + 2 * count])
        hashes.append(words[at + 1 + 2 * count : end])
    bounds = np.r_[0, np.cumsum(np.concatenate(size))].astype(np.int64)
    return Block(np.concatenate(location).astype(np.int64), bounds, np.concatenate(hashes))
