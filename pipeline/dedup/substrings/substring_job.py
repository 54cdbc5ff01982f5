"""What every task of the search knows, the records and answers that travel between partitions and ranges, and the
kernels that answer: which anchors are repeated, which of equal units comes first, and what becomes of the others.

Records go from an origin (a partition, or a chunk of one) to ranges of hashes; for each record one number comes
back. Answers keep the order of the records: an origin puts them beside what it sent, and nothing but the number
has to travel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.errors import WorkError
from corpusmill.common.kernel_cache import compiled
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Kept
from corpusmill.pipeline.dedup.substrings.anchor_kernels import LONGEST, MANY, Winnow
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice
from corpusmill.pipeline.text.buffers import one_array, view
from corpusmill.pipeline.text.minhash import ROLL
from corpusmill.schemas.manifest import hash_json

I64 = npt.NDArray[np.int64]

ANCHOR = np.dtype("<u8")
# A block, the order of its source, and the first half of its document's id: of 2^64 ids two rarely collide.
BLOCK = np.dtype([("key", "<u8"), ("check", "<u8"), ("rank", "<u4"), ("ident", "<u8")])
# A window: hash of its tokens, upper half of its anchor; its block's order among those with the anchor.
WINDOW = np.dtype([("key", "<u8"), ("check", "<u4"), ("order", "<u4")])
# Bytes that a task holds for each record or unit: as read, its copies, hash table and order.
ANCHOR_COST, BLOCK_COST, WINDOW_COST, UNIT_COST = 32, 128, 64, 160
# What becomes of a unit. Above CONTESTED: contested, of the documents with the anchor the second, third ...
STAYS, GONE, CONTESTED = range(3)


@dataclass(frozen=True)
class Job:
    """What every task needs: small, and the same for all of them."""

    folder: Folder  # of the stage
    winnow: Winnow
    priorities: tuple[tuple[str, int], ...]
    own: tuple[str, ...] | None  # sources that may be cut; None: all
    budget: int  # bytes of records that a task may hold
    anchor_ranges: int
    key: str

    @property
    def work(self) -> Folder:
        """Where intermediate files lie."""
        return self.folder / "scratch/substrings"

    @cached_property
    def _ranks(self) -> dict[tuple[bool, int], int]:
        """(may be cut, priority negated) -> rank, best first."""
        highest = {-priority for _, priority in self.priorities} | {0}
        return {
            order: rank
            for rank, order in enumerate(sorted((own, p) for own in (False, True) for p in highest))
        }

    def rank(self, source: str) -> int:
        """The order of a source: lower stays. Sources of no stated priority have 0."""
        own = self.own is None or source in self.own
        return self._ranks[own, -dict(self.priorities).get(source, 0)]

    @property
    def guarded(self) -> int:
        """Sources of a lower rank may not be cut."""
        return len(self._ranks) // 2


class Docs(NamedTuple):
    """The documents of a partition."""

    source: pa.Array
    rank: I64  # of their sources
    hi: npt.NDArray[np.uint64]  # halves of their ids
    lo: npt.NDArray[np.uint64]
    offsets: I64  # of their texts
    data: npt.NDArray[np.uint8]
    rows: I64  # all, in the order that decides who stays


class Range(NamedTuple):
    """Records of one range of hashes: slices, and the origin of each, ascending."""

    number: int
    origins: tuple[int, ...]
    slices: Sequence[Slice]


def ranges_of(files: Mapping[int, File]) -> list[Range]:
    """The parts of the files of all origins, range by range."""
    found: dict[int, list[tuple[int, Slice]]] = {}
    for origin, item in sorted(files.items()):
        for part in item.parts:
            entry = (origin, Slice(item.file.path, part.start, part.size, part.xxh3))
            found.setdefault(part.number, []).append(entry)
    return [
        Range(number, *map(tuple, zip(*entries, strict=True))) for number, entries in sorted(found.items())
    ]


def answer(
    job: Job, name: str, item: Range, dtype: np.dtype[Any], judge: Callable[[Records], Records]
) -> Done:
    """Publishes the number that `judge` gives each record of a range (`flags`), cut by origin; counts the
    numbers above 1 (`contested`) and the others that are not 0 (`flagged`)."""
    key = hash_json([job.key, name, item.number, item.origins, [part.xxh3 for part in item.slices]])
    path = f"{name}/{item.number:06d}"

    def step() -> Done:
        flags = judge(shuffle.read_slices(job.work, item.slices, dtype))
        origins = np.repeat(np.array(item.origins, np.int64), [part.size for part in item.slices])
        file = shuffle.write(job.work, f"{path}.flags", flags, origins)
        counters = {"flagged": int((flags == 1).sum()), "contested": int((flags > 1).sum())}
        return Done(key=key, files={"flags": file}, counters=counters)

    return shuffle.once(job.work, path, key, step)


def load(job: Job, kept: Kept) -> Docs:
    """A partition's documents. Raises `WorkError` for a text of 4 GiB or more."""
    docs = kept.read(["doc_id", "source", "text"])
    hi, lo = shuffle.words(one_array(docs["doc_id"]))
    sources = one_array(docs["source"]).dictionary_encode()
    ranks = np.array([job.rank(name) for name in sources.dictionary.to_pylist()], np.int64)
    rank = ranks[sources.indices.to_numpy()] if len(docs) else np.empty(0, np.int64)
    offsets, data = view(one_array(docs["text"]))
    if len(docs) and np.diff(offsets).max() >= LONGEST:
        raise WorkError(
            f"partition {kept.partition.name}: a text of 4 GiB or more, which dedup.substrings cannot cut"
        )
    return Docs(one_array(docs["source"]), rank, hi, lo, offsets, data, np.lexsort((lo, hi, rank)))


@compiled
def _slots(count: int) -> Any:
    """Empty slots for `count` indices, and how far a mixed key is shifted to point at one."""
    bits = 4
    while (1 << bits) < 2 * count:
        bits += 1
    return np.full(1 << bits, -1, np.int32), np.uint64(64 - bits)


@compiled
def repeated(anchors: Any) -> Any:
    """uint8[n]: whether an anchor is there more than once, or carries `MANY`."""
    slots, shift = _slots(len(anchors))
    flags = np.empty(len(anchors), np.uint8)
    for i in range(len(anchors)):
        flags[i] = np.uint8(anchors[i] & MANY)
        value = anchors[i] >> np.uint64(1)
        at = np.int64(value * ROLL >> shift)
        while slots[at] >= 0 and anchors[slots[at]] >> np.uint64(1) != value:
            at = (at + 1) & (len(slots) - 1)
        if slots[at] < 0:
            slots[at] = i
        else:
            flags[i] = 1
            flags[slots[at]] = 1
    return flags


@compiled
def group(key: Any, check: Any) -> Any:
    """Equal units: (int32[n] the group of each, int32[groups] the first of each), numbered as they come."""
    slots, shift = _slots(len(key))
    which, firsts = np.empty(len(key), np.int32), np.empty(len(key), np.int32)
    groups = 0
    for i in range(len(key)):
        at = np.int64(check[i] * ROLL >> shift)
        while True:
            held = slots[at]
            if held < 0:
                slots[at] = groups
                which[i] = groups
                firsts[groups] = i
                groups += 1
                break
            first = firsts[held]
            if check[first] == check[i] and key[first] == key[i]:
                which[i] = held
                break
            at = (at + 1) & (len(slots) - 1)
    return which, firsts[:groups].copy()


def settle(blocks: Records) -> npt.NDArray[np.uint32]:
    """uint32[n]: what becomes of blocks (`key` the anchor, `check` the tokens) for the others of the corpus.

    `GONE`: an equal one comes before it, by (rank, ident), or in the order of the records. `STAYS`: it is the first,
    and every block with its anchor is equal to it, so that its windows occur in such blocks alone. `CONTESTED` and
    above: it is the first of its kind, but its windows may occur in other blocks with the anchor; the number
    orders these blocks as their documents are ordered.
    """
    result = np.full(len(blocks), GONE, np.uint32)
    order = np.lexsort([blocks[name] for name in ("ident", "rank", "check", "key")])
    best = order[shuffle.starts_of(blocks["key"][order], blocks["check"][order])]
    best = best[np.lexsort([blocks[name][best] for name in ("ident", "rank", "key")])]
    heads = np.flatnonzero(shuffle.starts_of(blocks["key"][best]))
    sizes = np.diff(np.r_[heads, len(best)])
    place = np.arange(len(best)) - np.repeat(heads, sizes)
    result[best] = np.where(np.repeat(sizes, sizes) > 1, CONTESTED + place, STAYS)
    return result


@compiled
def beaten(key: Any, check: Any, order: Any) -> Any:
    """uint8[n]: `GONE` if an equal window has a lower order, or the same and stands before it."""
    slots, shift = _slots(len(key))
    flags = np.full(len(key), STAYS, np.uint8)
    for i in range(len(key)):
        at = np.int64(key[i] * ROLL >> shift)
        while True:
            best = slots[at]
            if best < 0:
                slots[at] = i
                break
            if key[best] == key[i] and check[best] == check[i]:
                if order[i] < order[best]:
                    flags[best] = GONE
                    slots[at] = i
                else:
                    flags[i] = GONE
                break
            at = (at + 1) & (len(slots) - 1)
    return flags


@compiled
def fates(row: Any, token: Any, which: Any, firsts: Any, flags: Any, n: int) -> Any:
    """uint32[units]: what becomes of each, given what becomes of the first of its group.

    Those of a group whose first is not gone go as well, but for what overlaps the first in its text: they share
    tokens, and cutting one would cut into the other.
    """
    result = np.empty(len(row), np.uint32)
    for i in range(len(row)):
        group = which[i]
        first = firsts[group]
        result[i] = flags[group]
        if i != first and not (row[i] == row[first] and np.int64(token[i]) < np.int64(token[first]) + n):
            result[i] = GONE
    return result


@compiled
def union(units: Any, n: int) -> Any:
    """int64[spans, 4] (row, start, stop, tokens): the union of units sorted by row and start."""
    out = np.empty((len(units), 4), np.int64)
    found = -1
    end = np.int64(0)  # the token after the span
    for unit in units:
        start, stop = np.int64(unit.start), np.int64(unit.start) + np.int64(unit.length)
        last = np.int64(unit.token) + np.int64(unit.count) - 1 + n
        if found >= 0 and out[found, 0] == unit.row and start <= out[found, 2]:
            if stop > out[found, 2]:
                out[found, 2] = stop
                out[found, 3] += last - end
                end = last
        else:
            found += 1
            out[found, 0], out[found, 1], out[found, 2] = unit.row, start, stop
            out[found, 3] = last - np.int64(unit.token)
            end = last
    return out[: found + 1].copy()
