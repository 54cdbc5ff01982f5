"""Fifth step: which texts of each cluster stay. `route` sends texts and pairs to ranges of clusters, `elect` decides there.

Within a cluster texts are numbered in survivor order, so a smaller number is always the better one to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.exact_similarity import fetched, similarities
from corpusmill.pipeline.dedup.job import I64, LABEL, PAIR, Job, copy_fields, survivor_order
from corpusmill.pipeline.dedup.key_groups import Routed, apply_group_leaders
from corpusmill.pipeline.dedup.shingle_sets import load_nodes, places
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, Records, Slice
from corpusmill.schemas.manifest import hash_json

F64 = npt.NDArray[np.float64]

FRONT = 64  # texts of a cluster that may prove to stay in one round, at most
PAIRS = 1 << 22  # pairs of one cluster compared in a round, at most (or those of one text)
ROUNDS = 20  # rounds in which pairs are still compared: about 900 survivors of one cluster
Compare = Callable[[int, I64, I64], F64]


@compiled
def _width(members: Any, start: int, stop: int, survivor: Any, front: int) -> int:
    """How many open texts of a cluster come to the front: fewer when it is so large that pairs would swamp memory."""
    still_open = 0
    for i in range(start, stop):
        still_open += survivor[members[i]] < 0
    return max(1, min(front, PAIRS // max(1, still_open)))


@compiled
def _front_pairs(members: Any, starts: Any, sizes: Any, survivor: Any, front: int, least: float) -> Any:
    """Pairs of the first `front` open texts of each cluster with the open texts after them. Two sets of which
    one is less than `least` times as large as the other are left out."""
    a, b = np.empty(1024, np.int64), np.empty(1024, np.int64)
    count = 0
    for cluster in range(len(starts) - 1):
        seen = 0
        width = _width(members, starts[cluster], starts[cluster + 1], survivor, front)
        for i in range(starts[cluster], starts[cluster + 1]):
            if survivor[members[i]] >= 0:
                continue
            seen += 1
            if seen > width:
                break
            for j in range(i + 1, starts[cluster + 1]):
                if survivor[members[j]] >= 0:
                    continue
                x, y = sizes[members[i]], sizes[members[j]]
                if min(x, y) < (1 - 1e-12) * least * max(x, y):
                    continue
                if count == len(a):
                    a = np.concatenate((a, np.empty(count, np.int64)))
                    b = np.concatenate((b, np.empty(count, np.int64)))
                a[count], b[count] = members[i], members[j]
                count += 1
    return a[:count], b[:count]


@compiled
def _settle(
    members: Any, starts: Any, survivor: Any, score: Any, protected: Any, front: int, threshold: float,
    first: Any, right: Any, value: Any,
) -> int:  # fmt: skip
    """The walk: of the first `front` open texts of each cluster, each not yet removed stays, and removes the open
    texts after it that are known to be similar and are not protected. Returns how many texts are still open.

    Known pairs by left end: those of text x are right[first[x]:first[x + 1]], with their similarity in `value`.
    """
    still_open = 0
    for cluster in range(len(starts) - 1):
        seen = 0
        width = front
        if front < len(survivor):  # otherwise the last walk, on what is known
            width = _width(members, starts[cluster], starts[cluster + 1], survivor, front)
        for i in range(starts[cluster], starts[cluster + 1]):
            x = members[i]
            # A text that this very walk removed was open at its beginning: it counts for the front.
            if survivor[x] >= 0 and survivor[x] < len(survivor):
                continue
            seen += 1
            if seen > width:
                still_open += survivor[x] < 0
                continue
            if survivor[x] >= 0:
                continue
            survivor[x] = x + len(survivor)
            score[x] = 1.0
            for p in range(first[x], first[x + 1]):
                y = right[p]
                if survivor[y] < 0 and not protected[y] and value[p] >= threshold:
                    survivor[y] = x + len(survivor)
                    score[y] = value[p]
        for i in range(starts[cluster], starts[cluster + 1]):
            if survivor[members[i]] >= len(survivor):
                survivor[members[i]] -= len(survivor)
    return still_open


def choose_survivors(
    labels: I64, sizes: I64, protected: npt.NDArray[np.bool_], known: tuple[I64, I64, F64],
    threshold: float, least: float, compare: Compare,
) -> tuple[I64, F64, int]:  # fmt: skip
    """Which text stays in place of each: (int64[n] survivors, float64[n] similarity to them, texts cut short).

    Within a cluster texts are taken in survivor order: one that is similar (`threshold`) to an earlier text
    that stays is removed for the first such; every other stays, and so do those `protected`. No text goes for
    its likeness to one that went. `labels` are components, `sizes` of shingle sets, `known` the pairs (a < b)
    whose similarity is known; `compare(round, a, b)` gives that of further pairs, asked only of sets whose
    sizes have at least the ratio `least`. Clusters with more survivors than `ROUNDS` allow are finished on
    known pairs alone: they keep more, never less. The third result counts the texts so judged.
    """
    count = len(labels)
    members = np.lexsort((np.arange(count), labels))
    starts = np.r_[np.flatnonzero(shuffle.starts_of(labels[members])), count]
    survivor, score = np.full(count, -1, np.int64), np.ones(count)
    a, b, value = known
    front, still_open = 1, count
    for round_number in range(ROUNDS):
        if still_open == 0:
            return survivor, score, 0
        left, right = _front_pairs(members, starts, sizes, survivor, front, least)
        fresh = ~shuffle.among(left * count + right, np.sort(a * count + b))
        left, right = left[fresh], right[fresh]
        if len(left):
            a, b, value = np.r_[a, left], np.r_[b, right], np.r_[value, compare(round_number, left, right)]
        still_open = _settle(
            members, starts, survivor, score, protected, front, threshold, *by_left(count, a, b, value)
        )
        front = min(2 * front, FRONT)
    if still_open:
        # The front is every text: nothing stays open.
        _settle(members, starts, survivor, score, protected, count, threshold, *by_left(count, a, b, value))
    return survivor, score, still_open


def by_left(count: int, a: I64, b: I64, value: F64) -> tuple[I64, I64, F64]:
    """Pairs as adjacency by their left end: (first, right, value)."""
    order = np.lexsort((b, a))
    first = np.searchsorted(a[order], np.arange(count + 1))
    return first.astype(np.int64), b[order], value[order]


@dataclass(frozen=True)
class Route:
    """A partition: the labels of its texts, its verified pairs, and what leads its groups."""

    index: int
    labels: Sequence[Slice]
    pairs: Sequence[Slice]
    heads: Routed


def route(job: Job, item: Route) -> Done:
    """Publishes the partition's texts in clusters (`members`) and its pairs (`pairs`), cut by cluster range."""
    inputs = [shuffle.hashes_of(item.labels), shuffle.hashes_of(item.pairs), shuffle.hashes_of(item.heads)]
    key = hash_json([job.key, "route", item.index, inputs])
    return shuffle.once(job.work, f"route/{item.index:06d}", key, lambda: _route(job, item, key))


def _route(job: Job, item: Route, key: str) -> Done:
    labels = shuffle.read_slices(job.work, item.labels, LABEL)
    nodes = load_nodes(job, item.index)
    nodes = nodes[np.searchsorted(nodes["location"], labels["location"])]
    members = copy_fields(nodes, np.zeros(len(nodes), job.member), job.node.names)
    apply_group_leaders(job, members, item.heads)
    members["cluster"] = labels["cluster"]
    order = np.argsort(labels["range"], kind="stable")
    pairs = shuffle.read_slices(job.work, item.pairs, PAIR)
    where = labels["range"][np.searchsorted(labels["location"], pairs["a"])] if len(pairs) else pairs["a"]
    by_range = np.argsort(where, kind="stable")
    name = f"route/{item.index:06d}"
    files = {
        "members": shuffle.write(job.work, f"{name}.members", members[order], labels["range"][order]),
        "pairs": shuffle.write(job.work, f"{name}.pairs", pairs[by_range], where[by_range]),
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
    inputs = [shuffle.hashes_of(item.members), shuffle.hashes_of(item.pairs)]
    key = hash_json([job.key, "elect", item.number, *inputs])
    return shuffle.once(job.work, f"elect/{item.number:06d}", key, lambda: _elect(job, item, key))


def _elect(job: Job, item: Clusters, key: str) -> Done:
    members = shuffle.read_slices(job.work, item.members, job.member)
    protected = members["protected"] > 0
    # What is contained goes for what contains it: then the larger set comes first.
    by_size = -members["size"] if job.params.containment is not None else np.zeros(len(members), np.int64)
    members = members[survivor_order(members, members["cluster"], ~protected, by_size)]
    pairs = shuffle.read_slices(job.work, item.pairs, PAIR)
    place = np.argsort(members["location"])
    ends = [place[np.searchsorted(members["location"][place], pairs[end])] for end in ("a", "b")]
    a, b = np.minimum(*ends), np.maximum(*ends)
    labels = np.flatnonzero(new := shuffle.starts_of(members["cluster"]))[np.cumsum(new) - 1]
    comparison = Comparison(job, members)
    survivor, score, cut_short = choose_survivors(
        labels, comparison.size, members["protected"] > 0, (a, b, comparison.value(pairs, a, b)),
        *_thresholds(job), comparison,
    )  # fmt: skip
    fates = _fates(job, members, labels, survivor, score)
    fates = fates[np.lexsort((fates["lo"], fates["hi"]))]
    sizes = np.bincount(np.cumsum(new) - 1) if len(members) else np.zeros(1, np.int64)
    counters = {"cut_short": cut_short, "most_texts": int(sizes.max())}
    counters["compared_in_election"] = comparison.compared
    name = f"elect/{item.number:06d}.fates"
    files = {"fates": shuffle.write(job.work, name, fates, shuffle.in_range(fates["hi"], job.text_ranges))}
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

    def __call__(self, round_number: int, a: I64, b: I64) -> F64:
        self.compared += len(a)
        x, y = self.location[a], self.location[b]
        pairs = np.zeros(len(a), PAIR)
        first, second = np.minimum(x, y), np.maximum(x, y)
        sets = fetched(self.job, shuffle.distinct(second), self.known)
        pairs["jaccard"], pairs["inside"] = similarities(self.job, first, second, sets, self.known)
        return self.value(pairs, a, b)

    def value(self, pairs: Records, a: I64, b: I64) -> F64:
        """Their Jaccard similarity; with containment, -1 where the later text `b` may not go for `a`: it is
        neither similar enough nor does the larger `a` contain it."""
        least = self.job.params.containment
        jaccard: F64 = pairs["jaccard"]
        if least is None:
            return jaccard
        within = (pairs["inside"] >= least) & (self.size[b] <= self.size[a])
        return np.where(within | (jaccard >= self.job.params.similarity), jaccard, -1.0)


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
        ends = np.flatnonzero(shuffle.starts_of(survivor[order]))
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
    dealt: npt.NDArray[np.float64] = one + np.clip(rest - before, 0, more)
    return dealt
