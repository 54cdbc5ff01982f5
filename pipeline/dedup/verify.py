"""Third step: the shingle sets of candidate texts, and the exact Jaccard similarity of every candidate pair.

A partition's text is read once more, for the candidates in it alone; their sets go to a file from which other
partitions fetch the few that they need by range. Memory: the partition's own sets, and a bounded chunk of
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.dedup.candidates import unique_edges
from pipeline.dedup.kernels import kernel
from pipeline.dedup.kernels.shingles import Shingle, one_array, shingle_sets
from pipeline.dedup.records import (
    EDGE,
    HASH,
    NODE,
    SIMILARITY,
    TEXT,
    Done,
    Job,
    Records,
    Slice,
    once,
    parts_of,
    read,
    read_slices,
    write,
)
from pipeline.stage import Partition
from schemas.errors import WorkError
from schemas.manifest import PublishedFile, hash_json

CHUNK = 8 << 20  # shingle hashes of other partitions held at a time: 64 MiB
GAP = 8 << 10  # hashes between two wanted sets that are read rather than skipped by a second request


@dataclass(frozen=True)
class Wanted:
    """The texts of a partition whose sets are wanted: candidates, and those in the sample."""

    index: int
    partition: Partition
    texts: PublishedFile
    nodes: tuple[Slice, ...]
    sample: tuple[int, ...]


@dataclass(frozen=True)
class Pairs:
    """Candidate pairs whose first text lies in one partition; `step` names the output."""

    index: int
    step: str
    slices: tuple[Slice, ...]


def sets(job: Job, item: Wanted) -> Done:
    """Publishes the partition's wanted texts (`nodes`) and their shingle sets (`sets`)."""
    key = hash_json([job.key, "sets", item.texts.xxh3, [part.xxh3 for part in item.nodes], item.sample])
    return once(job.work, f"sets/{item.index:06d}", key, lambda: _sets(job, item, key))


def _sets(job: Job, item: Wanted, key: str) -> Done:
    wanted = np.unique(
        np.r_[read_slices(job.work, item.nodes, np.dtype("<i8")), np.array(item.sample, np.int64)]
    )
    texts = read(job.work, item.texts, TEXT)
    texts = texts[np.argsort(texts["location"])][wanted & 0xFFFFFFFF]
    docs = item.partition.read(["text"])
    bounds, hashes = shingle_sets(one_array(docs["text"]), wanted & 0xFFFFFFFF, Shingle(job.params.ngram))
    nodes = np.zeros(len(wanted), NODE)
    for name in TEXT.names or ():
        nodes[name] = texts[name]
    nodes["start"], nodes["size"] = bounds[:-1], np.diff(bounds)
    nodes["sum"] = _sums(hashes, bounds)
    return Done(
        key=key,
        files={
            "nodes": write(job.work, f"sets/{item.index:06d}.nodes", nodes),
            "sets": write(job.work, f"sets/{item.index:06d}.sets", hashes),
        },
    )


def _sums(hashes: npt.NDArray[np.uint64], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    running = np.r_[np.uint64(0), np.cumsum(hashes, dtype=np.uint64)]
    sums: npt.NDArray[np.uint64] = running[bounds[1:]] - running[bounds[:-1]]
    return sums


def load_nodes(job: Job, index: int) -> Records:
    """The wanted texts of a partition, by ascending location."""
    done = Done.model_validate_json((job.work / f"sets/{index:06d}.json").read())
    return read(job.work, done.files["nodes"].file, NODE)


def load_sets(job: Job, index: int, nodes: Records) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """(bounds, hashes) of some `nodes` of one partition, ascending; neighbours are read in one request."""
    file = job.work / f"sets/{index:06d}.sets"
    bounds = np.r_[0, np.cumsum(nodes["size"])]
    hashes = np.empty(bounds[-1], np.uint64)
    stops = nodes["start"] + nodes["size"]
    cuts = np.flatnonzero(nodes["start"][1:] - stops[:-1] > GAP) + 1
    for first, last in zip(np.r_[0, cuts], np.r_[cuts, len(nodes)], strict=True):
        if first == last:
            continue
        begin, end = int(nodes["start"][first]), int(stops[last - 1])
        run = np.frombuffer(file.read_range(begin * 8, (end - begin) * 8), HASH)
        inside = nodes["start"][first:last] - begin
        for place, where, size in zip(bounds[first:last], inside, nodes["size"][first:last], strict=True):
            hashes[place : place + size] = run[where : where + size]
    if not np.array_equal(_sums(hashes, bounds), nodes["sum"]):
        raise WorkError(f"{file}: its bytes changed since they were written; run again, and it is made anew")
    return bounds, hashes


def verify(job: Job, item: Pairs) -> Done:
    """Publishes the exact Jaccard similarity of each distinct pair (`pairs`, sorted)."""
    key = hash_json([job.key, item.step, item.index, [part.xxh3 for part in item.slices]])
    return once(job.work, f"{item.step}/{item.index:06d}", key, lambda: _verify(job, item, key))


def _verify(job: Job, item: Pairs, key: str) -> Done:
    pairs = read_slices(job.work, item.slices, EDGE)
    pairs = unique_edges(pairs["a"], pairs["b"])
    similar = np.zeros(len(pairs), SIMILARITY)
    similar["a"], similar["b"] = pairs["a"], pairs["b"]
    own = load_nodes(job, item.index)
    own = own[np.searchsorted(own["location"], np.unique(pairs["a"]))]
    own_bounds, own_hashes = load_sets(job, item.index, own)
    others = parts_of(pairs["b"])
    for part in np.unique(others):
        rows = np.flatnonzero(others == part)
        rows = rows[np.argsort(pairs["b"][rows], kind="stable")]
        nodes = load_nodes(job, int(part))
        nodes = nodes[np.searchsorted(nodes["location"], np.unique(pairs["b"][rows]))]
        for chunk in _chunks(nodes):
            first, last = np.searchsorted(pairs["b"][rows], chunk["location"][[0, -1]] + [0, 1])
            some = rows[first:last]
            bounds, hashes = load_sets(job, int(part), chunk)
            a = np.searchsorted(own["location"], pairs["a"][some])
            b = np.searchsorted(chunk["location"], pairs["b"][some])
            similar["jaccard"][some] = kernel.jaccard(own_bounds, own_hashes, bounds, hashes, a, b)
    verified = int((similar["jaccard"] >= job.params.similarity).sum())
    return Done(
        key=key,
        files={"pairs": write(job.work, f"{item.step}/{item.index:06d}.pairs", similar)},
        counters={"candidates": len(pairs), "verified": verified},
    )


def _chunks(nodes: Records) -> Iterator[Records]:
    """Runs of nodes whose sets fit in a chunk, one node at least."""
    ends = np.cumsum(nodes["size"])
    first = 0
    while first < len(nodes):
        start = ends[first] - nodes["size"][first]
        last = max(first + 1, int(np.searchsorted(ends, start + CHUNK, side="right")))
        yield nodes[first:last]
        first = last
