"""Second step, per range: texts that share a band, and documents that share a text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.dedup.records import (
    BAND,
    EDGE,
    TEXT,
    Done,
    Job,
    Records,
    Slice,
    once,
    parts_of,
    read_slices,
    survivor_order,
    write,
)
from schemas.manifest import hash_json

# Each member of a bucket is paired with the next ones, in the order of their text hashes: all pairs of a
# bucket of up to WINDOW + 1, and never more than WINDOW edges a member. With adjacent pairs alone, one false
# member between two copies would hide them from each other.
WINDOW = 8


@dataclass(frozen=True)
class Range:
    """A range of hashes, and where its records lie."""

    number: int
    slices: tuple[Slice, ...]


def edges(job: Job, item: Range) -> Done:
    """Publishes the range's candidate pairs (`edges`, a < b by location) and the texts in them (`nodes`),
    both cut by partition."""
    key = hash_json([job.key, "edges", item.number, [part.xxh3 for part in item.slices]])
    return once(job.work, f"edges/{item.number:06d}", key, lambda: _edges(job, item, key))


def _edges(job: Job, item: Range, key: str) -> Done:
    bands = read_slices(job.work, item.slices, BAND)
    bands = bands[np.lexsort((bands["location"], bands["text"], bands["key"]))]
    # Copies of one text meet in all of its bands: the one at the lowest location stands for all.
    same = (bands["key"][1:] == bands["key"][:-1]) & (bands["text"][1:] == bands["text"][:-1])
    bands = bands[np.r_[True, ~same][: len(bands)]]
    bucket, location = bands["key"], bands["location"]
    left_ends, right_ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for step in range(1, WINDOW + 1):
        left = np.flatnonzero(bucket[step:] == bucket[:-step])
        if len(left) == 0:
            break
        left_ends.append(np.minimum(location[left], location[left + step]))
        right_ends.append(np.maximum(location[left], location[left + step]))
    sizes = (
        np.diff(np.flatnonzero(np.r_[True, bucket[1:] != bucket[:-1], True]))
        if len(bands)
        else np.zeros(1, int)
    )
    found = unique_edges(np.concatenate(left_ends), np.concatenate(right_ends))
    nodes = np.unique(np.concatenate([found["a"], found["b"]]))
    return Done(
        key=key,
        files={
            "edges": write(job.work, f"edges/{item.number:06d}.edges", found, parts_of(found["a"])),
            "nodes": write(job.work, f"edges/{item.number:06d}.nodes", nodes.astype("<i8"), parts_of(nodes)),
        },
        counters={"buckets": int((sizes > 1).sum()), "largest_bucket": int(sizes.max())},
    )


def unique_edges(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> Records:
    """Distinct `EDGE` records, sorted by a, then b."""
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    new = np.r_[True, (a[1:] != a[:-1]) | (b[1:] != b[:-1])][: len(a)]
    found = np.empty(int(new.sum()), EDGE)
    found["a"], found["b"] = a[new], b[new]
    return found


def copies(job: Job, item: Range) -> Done:
    """Publishes the range's documents whose text others have too (`copies`), the one to keep of each text
    first."""
    key = hash_json([job.key, "copies", item.number, [part.xxh3 for part in item.slices]])
    return once(job.work, f"copies/{item.number:06d}", key, lambda: _copies(job, item, key))


def _copies(job: Job, item: Range, key: str) -> Done:
    texts = read_slices(job.work, item.slices, TEXT)
    if not job.params.exact:  # then copies are near-copies like any other, and texts without words are none
        texts = texts[texts["shingles"] > 0]
    texts = texts[survivor_order(texts, job.params.keep_order)]
    texts = texts[np.lexsort((texts["lo"], texts["hi"]))]
    starts = np.flatnonzero(
        np.r_[True, (texts["hi"][1:] != texts["hi"][:-1]) | (texts["lo"][1:] != texts["lo"][:-1])][
            : len(texts)
        ]
    )
    sizes = np.diff(np.r_[starts, len(texts)])
    several = texts[np.repeat(sizes > 1, sizes)]
    return Done(key=key, files={"copies": write(job.work, f"copies/{item.number:06d}.copies", several)})
