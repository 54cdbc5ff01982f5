"""Second step, per range of band keys: texts that share a band become candidate pairs.

Memory: a range has about a task's budget of records. One that has more holds hot buckets (a template of a
million pages shares a band); it is cut at pivots into sub-ranges by (key, text), which may part a bucket, and
`stitch` then pairs what lies on the two sides of a cut: the pairs are those of the uncut range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.dedup.job import BAND, EDGE, HOT, LOCATION, PARTNER, PLANTED, Job, parts_of
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slices
from corpusmill.schemas.manifest import hash_json

# Each member of a bucket is paired with the next ones, in the order of their text hashes: all pairs of a
# bucket of up to WINDOW + 1, and never more than WINDOW edges a member. With adjacent pairs alone, one false
# member between two copies would hide them from each other.
WINDOW = 8
CHUNK = 1 << 20  # records read at a time where a range is not read as a whole
HOTTEST = 10  # buckets that a range reports
SORTING = 5  # times its records that a range task holds while it sorts and pairs them

Pivot = tuple[int, int]  # a band key and the 63-bit text hash in it


@dataclass(frozen=True)
class Range:
    """A range of band keys, where its records lie, and from which to below which (key, text) it reaches."""

    number: int
    slices: Slices
    sub: int = 0
    low: Pivot | None = None
    high: Pivot | None = None

    @property
    def name(self) -> str:
        return f"edges/{self.number:06d}.{self.sub:04d}"

    @property
    def part(self) -> bool:
        """Whether it is one of the sub-ranges of a range."""
        return self.low is not None or self.high is not None


def records_per_range(job: Job) -> int:
    """Band records that fit a task's budget."""
    return max(1, job.budget // (SORTING * BAND.itemsize))


def pivots(job: Job, item: Range) -> Done:
    """Publishes every so-many-th record (`sample`) of a range that is too large for one task."""
    key = hash_json([job.key, "pivots", item.number, shuffle.hashes_of(item.slices)])
    return shuffle.once(job.work, f"pivots/{item.number:06d}", key, lambda: _pivots(job, item, key))


def _pivots(job: Job, item: Range, key: str) -> Done:
    stride = max(1, records_per_range(job) // 64)
    found = [chunk[::stride] for chunk in shuffle.read_chunks(job.work, item.slices, BAND, CHUNK)]
    file = shuffle.write(job.work, f"pivots/{item.number:06d}.sample", np.concatenate(found))
    return Done(key=key, files={"sample": file})


def ranges(job: Job, slices: Mapping[int, Slices], map_: Callable[..., list[Done]]) -> list[Range]:
    """The ranges of all band records, those that are too large for a task cut at pivots."""
    whole = [Range(number, mine) for number, mine in slices.items()]
    limit = records_per_range(job)
    large = [item for item in whole if item.slices.records > 2 * limit]
    found = {item.number: [item] for item in whole}
    for item, done in zip(large, map_(pivots, large, "hot ranges") if large else [], strict=True):
        sample = shuffle.read(job.work, done.files["sample"].file, BAND)
        sample = sample[np.lexsort((sample["text"], sample["key"]))]
        total = item.slices.records
        count = -(-total // limit)
        cuts = sample[[len(sample) * i // count for i in range(1, count)]]
        ends = sorted({(int(cut["key"]), int(cut["text"])) for cut in cuts})
        found[item.number] = [
            Range(item.number, item.slices, sub, low, high)
            for sub, (low, high) in enumerate(zip([None, *ends], [*ends, None], strict=True))
        ]
    return [item for group in found.values() for item in group]


def edges(job: Job, item: Range) -> Done:
    """Publishes the range's candidate pairs (`edges`, a < b by location) and the texts in them (`nodes`, or
    `partners`), all cut by partition; its largest buckets (`hot`); and, of a sub-range, its first and last records."""
    key = hash_json([job.key, "edges", item.number, item.low, item.high, shuffle.hashes_of(item.slices)])
    return shuffle.once(job.work, item.name, key, lambda: _edges(job, item, key))


def _edges(job: Job, item: Range, key: str) -> Done:
    if item.part:
        parts = [_within(chunk, item) for chunk in shuffle.read_chunks(job.work, item.slices, BAND, CHUNK)]
        bands = np.concatenate(parts) if parts else np.empty(0, BAND)
    else:
        bands = shuffle.read_slices(job.work, item.slices, BAND)
    bands = _shared(bands, item.part)
    starts = np.flatnonzero(shuffle.starts_of(bands["key"]))
    real = bands["location"] < PLANTED  # within a bucket what was planted comes last
    sizes = np.add.reduceat(real, starts, dtype=np.int64) if len(starts) else starts
    hottest = np.lexsort((bands["key"][starts], -sizes))[:HOTTEST]
    hot = np.zeros(len(hottest), HOT)
    hot["key"], hot["texts"] = bands["key"][starts[hottest]], sizes[hottest]
    hot["location"] = bands["location"][starts[hottest]]
    hot = hot[hot["texts"] > 1]
    files = edge_files(job, item.name, _window(bands, 0))
    files["hot"] = shuffle.write(job.work, f"{item.name}.hot", hot)
    if item.part:
        first = bands[: starts[1] if len(starts) > 1 else len(bands)][:WINDOW]
        last = bands[starts[-1] if len(starts) else 0 :][-WINDOW:]
        files["first"] = shuffle.write(job.work, f"{item.name}.first", first)
        files["last"] = shuffle.write(job.work, f"{item.name}.last", last)
    return Done(key=key, files=files, counters={"buckets": int((sizes > 1).sum())})


def _within(chunk: Records, item: Range) -> Records:
    """What of a chunk lies in a sub-range."""
    keep = np.ones(len(chunk), bool)
    for pivot, above in ((item.low, True), (item.high, False)):
        if pivot is not None:
            key, text = np.uint64(pivot[0]), np.uint64(pivot[1])
            at_least = (chunk["key"] > key) | ((chunk["key"] == key) & (chunk["text"] >= text))
            keep &= at_least if above else ~at_least
    return chunk[keep]


def _shared(bands: Records, ends: bool) -> Records:
    """The records of buckets that two texts share, by (key, text), one a text; with `ends`, also those of the
    first and last bucket, which may go on in the next sub-range."""
    # The slices are sorted runs: a stable sort merges them.
    bands = bands[np.argsort(bands["key"], kind="stable")]
    if len(bands) == 0:
        return bands
    same = bands["key"][1:] == bands["key"][:-1]
    several = np.r_[same, False] | np.r_[False, same]
    if ends:
        several |= (bands["key"] == bands["key"][0]) | (bands["key"] == bands["key"][-1])
    bands = bands[several]
    bands = bands[np.lexsort((bands["location"], bands["text"], bands["key"]))]
    # Copies of one text meet in all of its bands: the one at the lowest location stands for all.
    return bands[shuffle.starts_of(bands["key"], bands["text"])]


def _window(bands: Records, cut: int) -> Records:
    """The pairs of records that share a key and lie at most WINDOW apart; with `cut`, only those on two sides
    of that row. Pairs of two planted texts are left out."""
    left_ends, right_ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    key, location = bands["key"], bands["location"]
    for step in range(1, WINDOW + 1):
        left = np.flatnonzero(key[step:] == key[:-step])
        if cut:
            left = left[(left < cut) & (left + step >= cut)]
        left = left[location[left] < PLANTED]
        if len(left) == 0 and not cut:
            break
        left_ends.append(np.minimum(location[left], location[left + step]))
        right_ends.append(np.maximum(location[left], location[left + step]))
    return unique_edges(np.concatenate(left_ends), np.concatenate(right_ends))


def edge_files(job: Job, name: str, found: Records) -> dict[str, File]:
    """Candidate pairs by the partition of their first text; and the texts in them, or, if their sets are sent, the
    second ones with the partitions of the first ones, by their own partition."""
    files = {"edges": shuffle.write(job.work, f"{name}.edges", found, parts_of(found["a"]))}
    if job.sends:
        partners = unique_partners(found["b"], parts_of(found["a"]))
        home = parts_of(partners["location"])
        return files | {"partners": shuffle.write(job.work, f"{name}.partners", partners, home)}
    nodes = shuffle.distinct(np.concatenate([found["a"], found["b"]]))
    return files | {
        "nodes": shuffle.write(job.work, f"{name}.nodes", nodes.astype(LOCATION), parts_of(nodes))
    }


@dataclass(frozen=True)
class Cut:
    """Two neighbouring sub-ranges: the last records of one, the first of the other."""

    number: int
    sub: int
    last: File
    first: File


def cuts(items: Sequence[Range], dones: Sequence[Done]) -> list[Cut]:
    """Every place where a bucket may have been parted."""
    pairs = zip(items, dones, items[1:], dones[1:], strict=False)
    return [
        Cut(right.number, right.sub, before.files["last"], after.files["first"])
        for left, before, right, after in pairs
        if left.number == right.number
    ]


def stitch(job: Job, item: Cut) -> Done:
    """Publishes the candidate pairs across a cut, as `edges` does."""
    name = f"edges/{item.number:06d}.{item.sub:04d}.cut"
    key = hash_json([job.key, "stitch", item.number, item.sub, item.last.file.xxh3, item.first.file.xxh3])
    return shuffle.once(job.work, name, key, lambda: _stitch(job, item, name, key))


def _stitch(job: Job, item: Cut, name: str, key: str) -> Done:
    last, first = (shuffle.read(job.work, side.file, BAND) for side in (item.last, item.first))
    return Done(key=key, files=edge_files(job, name, _window(np.r_[last, first], len(last))))


def unique_edges(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> Records:
    """Distinct `EDGE` records, sorted by a, then b."""
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    found = np.empty(len(a), EDGE)
    found["a"], found["b"] = a, b
    return found[shuffle.starts_of(a, b)]


def unique_partners(location: npt.NDArray[np.int64], first_in: npt.NDArray[np.int64]) -> Records:
    """Distinct `PARTNER` records, sorted by location, then the partition of the first text."""
    found = unique_edges(location, first_in)
    return found.view(PARTNER)


def hottest(job: Job, dones: Sequence[Done]) -> Any:
    """The largest buckets of all ranges, `HOT` records; parts of one bucket are added up."""
    found = [shuffle.read(job.work, done.files["hot"].file, HOT) for done in dones if "hot" in done.files]
    hot = np.concatenate(found) if found else np.empty(0, HOT)
    hot = hot[np.lexsort((hot["location"], hot["key"]))]
    if len(hot) == 0:
        return hot
    new = shuffle.starts_of(hot["key"])
    whole = hot[new].copy()
    whole["texts"] = np.add.reduceat(hot["texts"], np.flatnonzero(new))
    return whole[np.lexsort((whole["location"], whole["key"], -whole["texts"]))][:HOTTEST]
