"""Fourth step: the exact similarity of every candidate pair, and the clusters of the pairs that are similar enough.

Memory of `verify`: two bounded chunks of shingle sets. `label` is union-find over the forests of all tasks, on the
driver: it reads locations, 16 bytes for each text in a verified pair, and nothing else. It holds about 30 bytes for each
such text, and at its peak, while it sorts them, about eight times the forests (docs/scale.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.dedup.candidates import unique_edges
from corpusmill.pipeline.dedup.job import EDGE, HASH, I64, LABEL, PAIR, PLANTED, Job, parts_of
from corpusmill.pipeline.dedup.sent_sets import Block, received
from corpusmill.pipeline.dedup.shingle_sets import DENSE_GAP, GAP, load_sets, places_of
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice, Slices
from corpusmill.pipeline.engine.unionfind import components, join, roots
from corpusmill.pipeline.text import minhash
from corpusmill.schemas.manifest import PublishedFile, hash_json

F64 = npt.NDArray[np.float64]

TASKS = 256  # of exact comparison, at least, as far as there are partitions
PAIR_COST = 320  # bytes that a task holds for each of its pairs and the places of both, the sets not counted
WIDTH = 8  # times a member's record that an election holds
WRITING = 4  # times a label that the driver holds while it publishes it
BINS = 20  # of candidates by similarity, in the counters


@dataclass(frozen=True)
class Pairs:
    """Candidate pairs whose first text lies in one of some neighbouring partitions, `index` is the first; and where
    the shingle sets of their second texts lie, if they were sent."""

    index: int
    slices: Sequence[Slice]
    sent: Slices | None = None


def groups_of(job: Job, slices: dict[int, Slices]) -> list[Pairs]:
    """The candidate pairs of all partitions, a few partitions a task: what many partitions have to fetch from
    one is fetched together. An index keeps them apart, since it remembers what each had compared."""
    together = 1 if job.whole else max(1, len(slices) // TASKS)
    most = job.budget // PAIR_COST
    found: list[tuple[int, Slices]] = []
    held = 0
    for index, mine in slices.items():
        if found and held < together and found[-1][1].records + mine.records <= most:
            found[-1] = (found[-1][0], found[-1][1].joined(mine))
            held += 1
        else:
            found.append((index, mine))
            held = 1
    return [Pairs(index, mine) for index, mine in found]


def verify(job: Job, item: Pairs) -> Done:
    """Publishes the pairs that are similar enough (`pairs`), those with a planted text apart (`planted`), and
    a forest that joins the same texts as the pairs do (`forest`)."""
    key = hash_json([job.key, "verify", item.index, shuffle.hashes_of(item.slices)])
    return shuffle.once(job.work, f"verify/{item.index:06d}", key, lambda: _verify(job, item, key))


def _verify(job: Job, item: Pairs, key: str) -> Done:
    edges = shuffle.read_slices(job.work, item.slices, EDGE)
    edges = unique_edges(edges["a"], edges["b"])
    pairs = np.zeros(len(edges), PAIR)
    pairs["a"], pairs["b"] = edges["a"], edges["b"]
    name = f"verify/{item.index:06d}"
    fresh = ~_known(job, name, pairs) if job.whole else np.ones(len(pairs), bool)
    a, b = pairs["a"][fresh], pairs["b"][fresh]
    if item.sent is None:
        places = places_of(job, shuffle.distinct(np.r_[a, b]))
        found = similarities(job, a, b, fetched(job, shuffle.distinct(b), places), places)
    else:
        sent = received(job, item.sent)
        found = similarities(job, a, b, sent, places_of(job, shuffle.distinct(a)), DENSE_GAP)
    pairs["jaccard"][fresh], pairs["inside"][fresh] = found
    every = pairs
    real = pairs["b"] < PLANTED
    seen = np.bincount((pairs["jaccard"][real] * BINS).astype(int).clip(0, BINS), minlength=BINS + 1)
    counters = {"candidates": int(real.sum()), "compared": int((fresh & real).sum())}
    counters |= {f"jaccard/{step:02d}": int(count) for step, count in enumerate(seen) if count}
    pairs = pairs[linked(job, pairs)]
    planted, pairs = pairs[pairs["b"] >= PLANTED], pairs[pairs["b"] < PLANTED]
    counters["verified"] = len(pairs)
    nodes, ends = np.unique(np.r_[pairs["a"], pairs["b"]], return_inverse=True)
    root = nodes[components(len(nodes), *np.split(ends.astype(np.int64), 2))] if len(nodes) else nodes
    forest = np.zeros(len(nodes), EDGE)
    forest["a"], forest["b"] = root, nodes
    files = {
        "pairs": shuffle.write(job.work, f"{name}.pairs", pairs, parts_of(pairs["a"])),
        "planted": shuffle.write(job.work, f"{name}.planted", planted),
        "forest": shuffle.write(job.work, f"{name}.forest", forest[forest["a"] != forest["b"]]),
    }
    if job.whole:
        files["all"] = shuffle.write(job.work, f"{name}.all", every)
    return Done(key=key, files=files, counters=counters)


def _known(job: Job, name: str, pairs: Records) -> npt.NDArray[np.bool_]:
    """Fill in what an earlier change of the index compared; which pairs those are. A location never gets another
    text, so what was once found stays true."""
    done = shuffle.read_marker(job.work, name)
    if done is None:
        return np.zeros(len(pairs), bool)
    try:
        before = shuffle.read(job.work, done.files["all"].file, PAIR)
    except (FileNotFoundError, WorkError):  # a change that was killed: compare again
        return np.zeros(len(pairs), bool)
    both = np.concatenate([before, pairs])
    order = np.lexsort((np.arange(len(both)), both["b"], both["a"]))
    second = np.flatnonzero(~shuffle.starts_of(both["a"][order], both["b"][order]))
    again, first = order[second] - len(before), order[second - 1]
    for field in ("jaccard", "inside"):
        pairs[field][again] = before[field][first]
    known = np.zeros(len(pairs), bool)
    known[again] = True
    return known


def linked(job: Job, pairs: Records) -> npt.NDArray[np.bool_]:
    """Which pairs are duplicates: similar enough, or one contained in the other where that is asked for."""
    good = pairs["jaccard"] >= job.params.similarity
    if job.params.containment is not None:
        good |= pairs["inside"] >= job.params.containment
    return good


def similarities(
    job: Job, a: I64, b: I64, blocks: Iterable[Block], known: Records, gap: int = GAP
) -> tuple[F64, F64]:
    """(exact Jaccard, containment of the smaller set in the larger) of pairs of texts by location, in bounded memory.

    `blocks` have the sets of all texts in `b`, by ascending location. Those in `a` are stored at the `known` places
    (`shingle_sets.PLACE`, by location) and fetched for each block, neighbours up to `gap` hashes apart together.
    """
    jaccard, inside = np.zeros(len(a)), np.zeros(len(a))
    by_b = np.argsort(b, kind="stable")
    done = 0
    for right in blocks:
        last = int(np.searchsorted(b[by_b], right.location[-1], side="right"))
        rows = by_b[done:last]
        rows = rows[np.argsort(a[rows], kind="stable")]
        done = last
        for left in fetched(job, shuffle.distinct(a[rows]), known, gap):
            begin, end = np.searchsorted(a[rows], left.location[[0, -1]] + [0, 1])
            some = rows[begin:end]
            x, y = np.searchsorted(left.location, a[some]), np.searchsorted(right.location, b[some])
            if not np.array_equal(right.location[y], b[some]):
                raise _no_set(job)
            found = minhash.jaccard(left.bounds, left.hashes, right.bounds, right.hashes, x, y)
            sizes = left.size[x], right.size[y]
            shared = np.rint(found * (sizes[0] + sizes[1]) / (1 + found))
            jaccard[some] = found
            inside[some] = shared / np.maximum(1, np.minimum(*sizes))
    if done < len(b):
        raise _no_set(job)
    return jaccard, inside


def _no_set(job: Job) -> WorkError:
    return WorkError(f"{job.work / 'sets'}: a text that is compared has no set there; delete the folder")


def fetched(job: Job, locations: I64, known: Records, gap: int = GAP) -> Iterator[Block]:
    """The sets of the texts at ascending locations, fetched from their `known` places, in blocks that fit a quarter of
    the budget, one text at least."""
    most = job.budget // (4 * HASH.itemsize)
    wanted = known[np.searchsorted(known["location"], locations)]
    ends = np.cumsum(wanted["size"])
    first = 0
    while first < len(wanted):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        some = wanted[first:last]
        yield Block(some["location"], *load_sets(job, some, gap))
        first = last


@dataclass(frozen=True)
class Labels:
    """`location`, int64[n], ascending: texts in verified pairs; `root`, integers[n]: the place among them of the
    lowest text of the cluster, whose location is the cluster's name."""

    location: I64
    root: npt.NDArray[Any]

    def of(self, location: I64) -> I64:
        """The cluster of each text, -1 for none."""
        found = np.full(len(location), -1, np.int64)
        if len(self.location):
            row = np.searchsorted(self.location, location).clip(max=len(self.location) - 1)
            same = self.location[row] == location
            found[same] = self.location[self.root[row[same]]]
        return found


def label(job: Job, verified: Sequence[Done]) -> tuple[list[File], Labels]:
    """Publish the cluster of every text in a verified pair and the range that elects in it, `LABEL` records by
    location, cut by partition; also returned.

    A cluster is named by its lowest location: union-find whose root is the least member. Forests are read twice,
    a few at a time.
    """
    files = [done.files["forest"].file for done in verified]
    nodes = _nodes(job, files)
    parent = np.arange(len(nodes), dtype=np.int32 if len(nodes) < 1 << 31 else np.int64)
    for forest in _forests(job, files):
        join(parent, *(np.searchsorted(nodes, forest[end]) for end in ("a", "b")))
    roots(parent)
    labels = Labels(nodes, parent)
    return _publish(job, labels), labels


def _forests(job: Job, files: Sequence[PublishedFile]) -> Iterator[Records]:
    return job.work.at_once(lambda file: shuffle.read(job.work, file, EDGE), files)


def _nodes(job: Job, files: Sequence[PublishedFile]) -> I64:
    """The texts in the forests, ascending."""
    ends = np.empty(2 * sum(file.rows or 0 for file in files), np.int64)
    count = 0
    for forest in _forests(job, files):
        mine = shuffle.distinct(np.r_[forest["a"], forest["b"]])
        ends[count : count + len(mine)] = mine
        count += len(mine)
    found = ends[:count]
    found.sort()
    return found[shuffle.starts_of(found)]


def _publish(job: Job, labels: Labels) -> list[File]:
    """Files of bounded size. A cluster belongs to one range, that of its first member when clusters are put one
    after the other by name; ranges are filled in turn."""
    count = len(labels.location)
    most = max(1, job.budget // (WIDTH * job.member.itemsize))
    before = np.bincount(labels.root, minlength=count)
    np.cumsum(before, out=before)  # members of clusters up to this one, at the places of their roots
    rows = max(1, job.budget // (WRITING * LABEL.itemsize))
    files = []
    for number, first in enumerate(range(0, count, rows)):
        location, root = labels.location[first : first + rows], labels.root[first : first + rows]
        some = np.empty(len(location), LABEL)
        some["location"], some["cluster"] = location, labels.location[root]
        some["range"] = np.where(root > 0, before[root - 1], 0) // most
        files.append(shuffle.write(job.work, f"labels/{number:06d}", some, parts_of(location)))
    return files
