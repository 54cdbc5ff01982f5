"""Third step, per partition: the shingle sets of candidate texts.

A partition's text is read once more, for the candidates in it alone; their sets go to a file from which others
fetch the few that they need by range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.dedup.groups import Routed, headed
from pipeline.dedup.job import HASH, I64, LOCATION, PLANTED_PART, Job, copy_fields
from pipeline.dedup.kernels.shingles import one_array
from pipeline.dedup.kernels.shingling import Shingling
from pipeline.dedup.records import (
    Done,
    File,
    Records,
    Slice,
    hashes_of,
    once,
    read,
    read_bytes,
    read_marker,
    read_slices,
    starts_of,
    write,
)  # fmt: skip
from pipeline.stage import Partition
from schemas.errors import WorkError
from schemas.manifest import PublishedFile, hash_json

GAP = 8 << 10  # hashes between two wanted sets that are read rather than skipped by a second request


@dataclass(frozen=True)
class Wanted:
    """The texts of a partition whose sets are wanted: candidates, and those in the sample; what is known of
    texts that several documents have. `texts` is absent for planted ones."""

    index: int
    partition: Partition
    docs: PublishedFile | None
    nodes: Sequence[Slice]
    sample: tuple[int, ...]
    heads: Routed


def sets(job: Job, item: Wanted) -> Done:
    """Publishes the partition's wanted texts (`nodes`) and their shingle sets (`sets`)."""
    docs = item.docs.xxh3 if item.docs else item.partition.xxh3
    key = hash_json(
        [job.key, "sets", docs, hashes_of(item.nodes), item.sample, job.whole, hashes_of(item.heads)]
    )
    return once(job.work, f"sets/{item.index:06d}", key, lambda: _sets(job, item, key))


def _sets(job: Job, item: Wanted, key: str) -> Done:
    wanted = np.unique(np.r_[read_slices(job.work, item.nodes, LOCATION), np.array(item.sample, np.int64)])
    if item.docs is not None:
        docs = read(job.work, item.docs, job.doc)
        docs = docs[np.lexsort((docs["location"], docs["lo"], docs["hi"]))]
        if job.whole:
            wanted = np.sort(docs["location"][starts_of(docs["hi"], docs["lo"])])
        docs = docs[np.argsort(docs["location"])]
    nodes = np.zeros(len(wanted), job.node)
    nodes["location"] = wanted
    if item.docs is not None:
        docs = docs[np.searchsorted(docs["location"], wanted)]
        copy_fields(docs, nodes, job.doc.names)
        nodes["documents"], nodes["protected"] = 1, docs["order"][:, 0] == 0
        headed(job, nodes, item.heads)
    text = one_array(item.partition.read(["text"])["text"])
    shingling = Shingling(job.params, job.banding.bands * job.banding.rows)
    bounds, hashes = shingling.sets(text, wanted & 0xFFFFFFFF)
    nodes["start"], nodes["size"] = bounds[:-1], np.diff(bounds)
    nodes["sum"] = _sums(hashes, bounds)
    return Done(
        key=key,
        files={
            "nodes": write(job.work, f"sets/{item.index:06d}.nodes", nodes),
            "sets": write(job.work, f"sets/{item.index:06d}.sets", hashes),
        },
    )


def _sums(hashes: npt.NDArray[np.uint64], bounds: I64) -> npt.NDArray[np.uint64]:
    running = np.r_[np.uint64(0), np.cumsum(hashes, dtype=np.uint64)]
    sums: npt.NDArray[np.uint64] = running[bounds[1:]] - running[bounds[:-1]]
    return sums


def load_nodes(job: Job, index: int) -> Records:
    """The wanted texts of a partition, by ascending location."""
    return read(job.work, _set_files(job, index)["nodes"].file, job.node)


def _set_files(job: Job, index: int) -> dict[str, File]:
    done = read_marker(job.work, f"sets/{index:06d}")
    if done is None:
        raise WorkError(
            f"{job.work}/sets/{index:06d}.json: missing or changed; run again, and it is made anew"
        )
    return done.files


def load_sets(job: Job, index: int, nodes: Records) -> tuple[I64, npt.NDArray[np.uint64]]:
    """(bounds, hashes) of some `nodes` of one partition, ascending; neighbours are read in one request."""
    path = _set_files(job, index)["sets"].file.path
    bounds = np.r_[0, np.cumsum(nodes["size"])].astype(np.int64)
    hashes = np.empty(bounds[-1], np.uint64)
    stops = nodes["start"] + nodes["size"]
    cuts = np.flatnonzero(nodes["start"][1:] - stops[:-1] > GAP) + 1
    for first, last in zip(np.r_[0, cuts], np.r_[cuts, len(nodes)], strict=True):
        if first == last:
            continue
        begin, end = int(nodes["start"][first]), int(stops[last - 1])
        run = np.frombuffer(read_bytes(job.work, path, begin * 8, (end - begin) * 8), HASH)
        inside = nodes["start"][first:last] - begin
        for place, where, size in zip(bounds[first:last], inside, nodes["size"][first:last], strict=True):
            hashes[place : place + size] = run[where : where + size]
    if not np.array_equal(_sums(hashes, bounds), nodes["sum"]):
        raise WorkError(
            f"{job.work / path}: its bytes changed since they were written; run again, and it is made anew"
        )
    return bounds, hashes


def planted_partition(job: Job, index: int, docs: PublishedFile) -> Partition:
    """The planted texts of a partition, as `sketch` published them."""
    name = f"{index % PLANTED_PART:06d}"
    return Partition(name, job.work / "planted", docs.rows or 0, docs.bytes, docs.xxh3)
