"""Files of many steps made into fewer, where partitions times ranges are too many slices.

A task that reads one slice of each of ten thousand files makes ten thousand small requests, and the driver must
know where each lies. Beyond `MOST_SLICES` steps report only that they are finished; tasks then copy the
files of neighbouring steps together, part by part, and those are what is read: the two-level shuffle.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.engine.shuffle import (
    Done,
    File,
    Records,
    Slices,
    by_part,
    once,
    read,
    read_marker,
    write,
)
from corpusmill.schemas.manifest import hash_json

MOST_SLICES = 1_000_000  # that the driver knows, and that are read one by one
PEAK = "peak_bytes"  # a counter of what a task returns to the driver, never of what is published
COPIES = 2  # of the records that a task holds which puts files together
NUMBERS = 32  # bytes for each record that it holds beside: parts and orders


@dataclass(frozen=True)
class Compact:
    """Steps by the names of their markers in `work`, and which of their files is to be put together."""

    number: int
    work: Folder
    label: str
    name: str
    markers: tuple[str, ...]
    key: tuple[str, ...]  # checksums of these files


def slim(step: Callable[[Job, Any], Done], job: Job, item: Any) -> Done:
    """A step whose result tells the peak memory of the process, and, if it is one of very many, nothing of the
    parts of its files."""
    done = step(job, item)
    files = {name: File(file=file.file) for name, file in done.files.items()} if job.slim else done.files
    counters = {**done.counters, PEAK: peak_bytes()}
    return done.model_copy(update={"files": files, "counters": counters})


def peak_bytes() -> int:
    """The most resident memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def parts(
    job: Job, work: Folder, dones: Sequence[Done], name: str, map_: Callable[..., list[Done]]
) -> dict[int, Slices]:
    """Part number -> its slices in the files called `name` of all the steps; of slim ones, in copies of them."""
    if not job.slim:
        return by_part(dones, name)
    items = [
        Compact(
            number, work, f"{group[0].name.partition('/')[0]}-{name}", name,
            tuple(done.name for done in group), tuple(done.files[name].file.xxh3 for done in group),
        )
        for number, group in enumerate(_groups(job, [done for done in dones if name in done.files], name))
    ]  # fmt: skip
    return by_part(map_(compact, items, f"{name} together"), name)


def _groups(job: Job, dones: Sequence[Done], name: str) -> Iterator[list[Done]]:
    """Neighbours whose files a task can hold at once, one at least."""
    most = job.budget
    held: list[Done] = []
    size = 0
    for done in dones:
        file = done.files[name].file
        more = COPIES * file.bytes + NUMBERS * (file.rows or 0)
        if held and size + more > most:
            yield held
            held, size = [], 0
        held.append(done)
        size += more
    if held:
        yield held


def compact(job: Job, item: Compact) -> Done:
    """Publishes the files of the steps as one in their folder, cut by the same parts."""
    key = hash_json([job.key, "compact", item.label, item.markers, item.key])
    name = f"{'' if item.work == job.work else 'scratch/'}compact/{item.label}/{item.number:06d}"
    return once(item.work, name, key, lambda: _compact(job, item, name, key))


def _compact(job: Job, item: Compact, name: str, key: str) -> Done:
    pieces = list(item.work.at_once(partial(_piece, item), item.markers))
    numbers = [np.repeat(table["number"], table["count"]) for _, table in pieces]
    number = np.concatenate([np.empty(0, np.int64), *numbers])
    found = [records for records, _ in pieces if len(records)] or [np.empty(0, "V1")]
    del pieces, numbers
    whole = np.concatenate(found)
    del found
    order = np.argsort(number, kind="stable")
    whole = whole[order]
    return Done(key=key, files={item.name: write(item.work, f"{name}.{item.name}", whole, number[order])})


def _piece(item: Compact, marker: str) -> tuple[Records, Records]:
    """The records of a step's file, and its parts."""
    done = read_marker(item.work, marker)
    if done is None:
        raise WorkError(f"{item.work / marker}.json: missing or changed; run again to rebuild it")
    file = done.files[item.name]
    width = file.file.bytes // max(1, file.file.rows or 0)
    return read(item.work, file.file, np.dtype(f"V{max(1, width)}")), file.table()
