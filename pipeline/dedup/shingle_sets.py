"""Third step, per partition: the shingle sets of candidate texts.

A partition's text is read once more, for the candidates in it alone; their sets go to a file from which others
fetch the few that they need by range, and in large runs to others that hold them by who compares them (`sent_sets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from corpusmill.common.errors import WorkError
from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.job import (
    EDGE,
    HASH,
    I64,
    LOCATION,
    PARTNER,
    PLANTED_PART,
    U64,
    Job,
    copy_fields,
    parts_of,
)
from corpusmill.pipeline.dedup.key_groups import Routed, apply_group_leaders
from corpusmill.pipeline.dedup.sent_sets import send
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text.buffers import one_array
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.manifest import PublishedFile, hash_json

# Where the set of a text lies in its partition's file, how many hashes it has, and what they add up to.
PLACE = np.dtype([("location", "<i8"), ("start", "<i8"), ("size", "<i8"), ("sum", "<u8")])
SETS = "sets/{:06d}.sets"
GAP = 8 << 10  # hashes between two wanted sets that are read rather than skipped by a second request
DENSE_GAP = 128 << 10  # where a task reads a large part of a few files, again and again
RUN = 512 << 10  # hashes that one request reads, not counted the last set


@dataclass(frozen=True)
class Partners:
    """Where sets are sent: pairs whose first text is in the partition (`EDGE`), second texts of pairs that are
    (`PARTNER`), and the first partition of each task of comparison."""

    edges: Sequence[Slice]
    seconds: Sequence[Slice]
    starts: PublishedFile


@dataclass(frozen=True)
class Wanted:
    """The texts of a partition whose sets are wanted: candidates (`nodes`, or `partners` if sets are sent), and those
    in the sample; what is known of texts that several documents have. `docs` is None for planted ones."""

    index: int
    partition: Partition
    docs: PublishedFile | None
    nodes: Sequence[Slice]
    sample: tuple[int, ...]
    heads: Routed
    partners: Partners | None = None

    @property
    def hashes(self) -> list[Any]:
        """Checksums of what says which texts are wanted."""
        to = self.partners
        if to is None:
            return shuffle.hashes_of(self.nodes)
        return [shuffle.hashes_of(to.edges), shuffle.hashes_of(to.seconds), to.starts.xxh3]


def sets(job: Job, item: Wanted) -> Done:
    """Publishes the partition's wanted texts (`nodes`) and their shingle sets (`sets`), those that are sent once more
    by the task that wants them (`sent.…`)."""
    docs = item.docs.xxh3 if item.docs else item.partition.xxh3
    key = hash_json(
        [job.key, "sets", docs, item.hashes, item.sample, job.whole, shuffle.hashes_of(item.heads)]
    )
    return shuffle.once(job.work, f"sets/{item.index:06d}", key, lambda: _sets(job, item, key))


def _sets(job: Job, item: Wanted, key: str) -> Done:
    partners = np.empty(0, PARTNER)
    if item.partners is None:
        candidates = shuffle.read_slices(job.work, item.nodes, LOCATION)
    else:
        partners = shuffle.read_slices(job.work, item.partners.seconds, PARTNER)
        first = shuffle.read_slices(job.work, item.partners.edges, EDGE)["a"]
        candidates = np.r_[first, partners["location"]]
    wanted = shuffle.distinct(np.r_[candidates, np.array(item.sample, np.int64)])
    if item.docs is not None:
        docs = shuffle.read(job.work, item.docs, job.doc)
        docs = docs[np.lexsort((docs["location"], docs["lo"], docs["hi"]))]
        if job.whole:
            wanted = np.sort(docs["location"][shuffle.starts_of(docs["hi"], docs["lo"])])
        docs = docs[np.argsort(docs["location"])]
    nodes = np.zeros(len(wanted), job.node)
    nodes["location"] = wanted
    if item.docs is not None:
        docs = docs[np.searchsorted(docs["location"], wanted)]
        copy_fields(docs, nodes, job.doc.names)
        nodes["documents"], nodes["protected"] = 1, docs["order"][:, 0] == 0
        apply_group_leaders(job, nodes, item.heads)
    text = one_array(item.partition.read(["text"])["text"])
    shingling = Shingling(job.params, job.banding.bands * job.banding.rows)
    bounds, hashes = shingling.sets(text, wanted & 0xFFFFFFFF)
    nodes["start"], nodes["size"] = bounds[:-1], np.diff(bounds)
    nodes["sum"] = _sums(hashes, bounds)
    files = {
        "nodes": shuffle.write(job.work, f"sets/{item.index:06d}.nodes", nodes),
        "sets": shuffle.write(job.work, SETS.format(item.index), hashes),
    }
    if item.partners is not None:
        files |= send(job, f"sets/{item.index:06d}", partners, item.partners.starts, nodes, hashes)
    return Done(key=key, files=files)


def _sums(hashes: U64, bounds: I64) -> U64:
    running = np.r_[np.uint64(0), np.cumsum(hashes, dtype=np.uint64)]
    sums: U64 = running[bounds[1:]] - running[bounds[:-1]]
    return sums


def load_nodes(job: Job, index: int) -> Records:
    """The wanted texts of a partition, by ascending location."""
    return shuffle.read(job.work, _files(job, index)["nodes"].file, job.node)


def _files(job: Job, index: int) -> dict[str, File]:
    done = shuffle.read_marker(job.work, f"sets/{index:06d}")
    if done is None:
        raise WorkError(f"{job.work}/sets/{index:06d}.json: missing or changed; run again to rebuild it")
    return done.files


def places_of(job: Job, locations: I64) -> Records:
    """Where the sets of the texts at ascending `locations` lie: `PLACE` records. Reads the index of each partition
    once."""
    parts = parts_of(locations)
    cuts = np.flatnonzero(shuffle.starts_of(parts)).tolist()
    homes = [(int(parts[first]), locations[first:last]) for first, last in pairwise([*cuts, len(parts)])]

    def found(home: tuple[int, I64]) -> Records:
        nodes = load_nodes(job, home[0])
        return places(nodes[np.searchsorted(nodes["location"], home[1])])

    return np.concatenate([np.empty(0, PLACE), *job.work.at_once(found, homes)])


def places(nodes: Records) -> Records:
    """`PLACE` records of nodes, or of records with the same fields."""
    return copy_fields(nodes, np.empty(len(nodes), PLACE), PLACE.names)


def load_sets(job: Job, wanted: Records, gap: int = GAP) -> tuple[I64, U64]:
    """(bounds, hashes) of the sets at `PLACE` records, by ascending location; neighbours, at most `gap` hashes apart,
    are read in one request. The bytes are checked by the sum of each set."""
    bounds = np.r_[0, np.cumsum(wanted["size"])].astype(np.int64)
    hashes = np.empty(bounds[-1], np.uint64)
    parts = parts_of(wanted["location"])
    begins, stops = wanted["start"], wanted["start"] + wanted["size"]
    apart = shuffle.starts_of(parts)
    apart[1:] |= (begins[1:] - stops[:-1] > gap) | (begins[1:] // RUN != begins[:-1] // RUN)
    runs = list(pairwise([*np.flatnonzero(apart).tolist(), len(wanted)]))
    files = {part: _set_file(job, part) for part in np.unique(parts).tolist()}
    asked = [
        (files[int(parts[first])], int(begins[first]) * 8, int(stops[last - 1] - begins[first]) * 8)
        for first, last in runs
    ]
    for (first, last), data in zip(runs, shuffle.read_ranges(job.work, asked), strict=True):
        offsets = begins[first:last] - begins[first]
        _spread(np.frombuffer(data, HASH), offsets, bounds[first : last + 1], hashes)
    wrong = np.flatnonzero(_sums(hashes, bounds) != wanted["sum"])
    if len(wrong):
        raise WorkError(
            f"{job.work / files[int(parts[wrong[0]])]}: its bytes changed since they were written; run again to"
            " rebuild it"
        )
    return bounds, hashes


@compiled
def _spread(run: Any, begins: Any, bounds: Any, hashes: Any) -> None:
    for i in range(len(begins)):
        size = bounds[i + 1] - bounds[i]
        hashes[bounds[i] : bounds[i + 1]] = run[begins[i] : begins[i] + size]


def _set_file(job: Job, index: int) -> str:
    """Where the sets of a partition lie: a takedown rewrites those of an index under another name."""
    return _files(job, index)["sets"].file.path if job.whole else SETS.format(index)


def planted_partition(job: Job, index: int, docs: PublishedFile) -> Partition:
    """The planted texts of a partition, as `sketch` published them."""
    name = f"{index % PLANTED_PART:06d}"
    return Partition(name, job.work / "planted", docs.rows or 0, docs.bytes, docs.xxh3)
