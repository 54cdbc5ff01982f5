"""Fifth step: clusters of verified pairs, on the driver; then which texts of each stay, per range of clusters.

`label` is union-find over the forests of all tasks: the driver reads locations, 16 bytes for each text in a verified
pair, and nothing else. It holds about 30 bytes for each such text, and at its peak, while it sorts them, about eight
times the forests (docs/scale.md). `route` sends texts and pairs to ranges of clusters, `elect` decides there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.dedup import cluster_walk
from corpusmill.pipeline.dedup.cluster_walk import F64
from corpusmill.pipeline.dedup.exact_similarity import similarities
from corpusmill.pipeline.dedup.job import EDGE, I64, LABEL, PAIR, Job, copy_fields, parts_of, survivor_order
from corpusmill.pipeline.dedup.key_groups import Routed, apply_group_leaders
from corpusmill.pipeline.dedup.shingle_sets import load_nodes, places
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
    starts_of,
    write,
)
from corpusmill.pipeline.engine.unionfind import join, roots
from corpusmill.schemas.manifest import PublishedFile, hash_json

WIDTH = 8  # times a member's record that an election holds

WRITING = 4  # times a label that the driver holds while it publishes it


@dataclass(frozen=True)
class Route:
    """A partition: the labels of its texts, its verified pairs, and what leads its groups."""

    index: int
    labels: Sequence[Slice]
    pairs: Sequence[Slice]
    heads: Routed


def route(job: Job, item: Route) -> Done:
    """Publishes the partition's texts in clusters (`members`) and its pairs (`pairs`), cut by cluster
    range."""
    inputs = [hashes_of(item.labels), hashes_of(item.pairs), hashes_of(item.heads)]
    key = hash_json([job.key, "route", item.index, inputs])
    return once(job.work, f"route/{item.index:06d}", key, lambda: _route(job, item, key))


def _route(job: Job, item: Route, key: str) -> Done:
    labels = read_slices(job.work, item.labels, LABEL)
    nodes = load_nodes(job, item.index)
    nodes = nodes[np.searchsorted(nodes["location"], labels["location"])]
    members = copy_fields(nodes, np.zeros(len(nodes), job.member), job.node.names)
    apply_group_leaders(job, members, item.heads)
    members["cluster"] = labels["cluster"]
    order = np.argsort(labels["range"], kind="stable")
    pairs = read_slices(job.work, item.pairs, PAIR)
    where = labels["range"][np.searchsorted(labels["location"], pairs["a"])] if len(pairs) else pairs["a"]
    by_range = np.argsort(where, kind="stable")
    name = f"route/{item.index:06d}"
    files = {
        "members": write(job.work, f"{name}.members", members[order], labels["range"][order]),
        "pairs": write(job.work, f"{name}.pairs", pairs[by_range], where[by_range]),
    }
    return Done(key=key, files=files)


@dataclass(frozen=True)
class Clusters:
    """A range of clusters: its texts and the verified pairs among them."""

    number: int
    members: Sequence[Slice]
    pairs: Sequence[Slice]


def elect(job: Job, item: Clusters) -> Done:
    """Publishes the fate of every text of the range's clusters (`fates`), cut by range of the text's key."""
    key = hash_json([job.key, "elect", item.number, hashes_of(item.members), hashes_of(item.pairs)])
    return once(job.work, f"elect/{item.number:06d}", key, lambda: _elect(job, item, key))


def _elect(job: Job, item: Clusters, key: str) -> Done:
    members = read_slices(job.work, item.members, job.member)
    protected = members["protected"] > 0
    # What is contained goes for what contains it: then the larger set comes first.
    by_size = -members["size"] if job.params.containment is not None else np.zeros(len(members), np.int64)
    members = members[survivor_order(members, members["cluster"], ~protected, by_size)]
    pairs = read_slices(job.work, item.pairs, PAIR)
    place = np.argsort(members["location"])
    ends = [place[np.searchsorted(members["location"][place], pairs[end])] for end in ("a", "b")]
    a, b = np.minimum(*ends), np.maximum(*ends)
    labels = np.flatnonzero(new := starts_of(members["cluster"]))[np.cumsum(new) - 1]
    comparison = Comparison(job, members)
    survivor, score, cut_short = cluster_walk.elect(
        labels, comparison.size, members["protected"] > 0, (a, b, comparison.value(pairs, a, b)),
        *_thresholds(job), comparison,
    )  # fmt: skip
    fates = _fates(job, members, labels, survivor, score)
    order = np.lexsort((fates["lo"], fates["hi"]))
    fates = fates[order]
    sizes = np.bincount(np.cumsum(new) - 1) if len(members) else np.zeros(1, np.int64)
    counters = {
        "cut_short": cut_short,
        "most_texts": int(sizes.max()),
        "compared_in_election": comparison.compared,
    }
    name = f"elect/{item.number:06d}.fates"
    files = {"fates": write(job.work, name, fates, in_range(fates["hi"], job.text_ranges))}
    return Done(key=key, files=files, counters=counters)


def _thresholds(job: Job) -> tuple[float, float]:
    """(least value of a pair that counts, least ratio of two sizes worth comparing)."""
    return (job.params.similarity,) * 2 if job.params.containment is None else (0.0, 0.0)


class Comparison:
    """The similarity of further pairs of texts, by their place in the order; counts the pairs."""

    def __init__(self, job: Job, members: Records) -> None:
        self.job, self.location, self.size = job, members["location"], members["size"].astype(np.int64)
        self.known = places(members[np.argsort(members["location"])])
        self.compared = 0

    def __call__(self, turn: int, a: I64, b: I64) -> F64:
        self.compared += len(a)
        x, y = self.location[a], self.location[b]
        pairs = np.zeros(len(a), PAIR)
        pairs["jaccard"], pairs["inside"] = similarities(
            self.job, np.minimum(x, y), np.maximum(x, y), self.known
        )
        return self.value(pairs, a, b)

    def value(self, pairs: Records, a: I64, b: I64) -> F64:
        """Their Jaccard similarity; with containment, -1 where the later text `b` may not go for `a`: it is
        neither similar enough nor does the larger `a` contain it."""
        least = self.job.params.containment
        if least is None:
            return pairs["jaccard"]
        within = (pairs["inside"] >= least) & (self.size[b] <= self.size[a])
        return np.where(within | (pairs["jaccard"] >= self.job.params.similarity), pairs["jaccard"], -1.0)


def _fates(job: Job, members: Records, labels: I64, survivor: I64, score: F64) -> Records:
    fates = np.zeros(len(members), job.fate)
    copy_fields(members, fates, ("hi", "lo"))
    target = survivor.copy()
    jaccard = score.copy()
    own = survivor == np.arange(len(members))
    if job.keep == 0:  # a document that goes with all of its duplicates names the first of them
        gone, first = np.unique(survivor[~own], return_index=True)
        target[gone] = np.flatnonzero(~own)[first]
        jaccard[gone] = score[~own][first]
    for name, which in (("cluster", labels), ("survivor", target)):
        fates[f"{name}_hi"], fates[f"{name}_lo"] = members["id_hi"][which], members["id_lo"][which]
    fates["survivor_location"] = members["location"][target]
    fates["jaccard"] = jaccard
    sizes = members["size"], members["size"][target]
    shared = np.rint(jaccard * (sizes[0] + sizes[1]) / (1 + jaccard))
    fates["inside"] = np.where(target == np.arange(len(members)), 1.0, shared / np.minimum(*sizes))
    fates["own"] = own
    fates["slots"] = slots(job.keep, survivor, members["documents"], members["protected"])
    return fates


def slots(keep: float, survivor: I64, documents: I64, protected: I64) -> npt.NDArray[np.float64]:
    """How many documents of each text stay, of those that may go.

    `keep` documents stay of a text and those removed for it: first the best one of each text in survivor
    order, then further copies of the same texts, in that order. Protected ones count, and stay in any case.
    """
    count = len(survivor)
    own = survivor == np.arange(count)
    group_documents = np.bincount(survivor, documents, count) if count else np.zeros(0)
    if keep == np.inf:
        return np.full(count, np.inf)
    alone = own & (group_documents[survivor] <= 1)
    left = np.where(own, np.maximum(0.0, keep - protected), 0.0)
    found = np.zeros(count)
    found[own] = np.minimum(left[own], np.minimum(1, documents - protected)[own])
    if keep > 1:
        order = np.argsort(survivor, kind="stable")
        ends = np.flatnonzero(starts_of(survivor[order]))
        for group in np.split(order, ends[1:]) if count else []:
            first = survivor[group[0]]
            found[group] = _deal(keep - protected[first], (documents - protected)[group])
    found[alone] = np.inf
    return found


def _deal(places: float, documents: I64) -> npt.NDArray[np.float64]:
    """`places` dealt to texts with so many documents: one each, in order, then the rest in order."""
    places = max(0.0, places)
    one = (np.cumsum(documents > 0) <= places) & (documents > 0)
    rest = places - one.sum()
    more = documents - one
    before = np.cumsum(more) - more
    return one + np.clip(rest - before, 0, more)


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
    return job.work.at_once(lambda file: read(job.work, file, EDGE), files)


def _nodes(job: Job, files: Sequence[PublishedFile]) -> I64:
    """The texts in the forests, ascending."""
    ends = np.empty(2 * sum(file.rows or 0 for file in files), np.int64)
    count = 0
    for forest in _forests(job, files):
        mine = np.unique(np.r_[forest["a"], forest["b"]])
        ends[count : count + len(mine)] = mine
        count += len(mine)
    found = ends[:count]
    found.sort()
    return found[starts_of(found)]


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
        files.append(write(job.work, f"labels/{number:06d}", some, parts_of(location)))
    return files
