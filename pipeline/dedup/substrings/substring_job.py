"""What every task of the search knows, and the records and answers that travel between partitions and ranges.

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
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.spans import Kept
from corpusmill.pipeline.dedup.substrings.anchor_kernels import Winnow
from corpusmill.pipeline.dedup.substrings.token_runs import LONGEST
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice, once, read_slices, words, write
from corpusmill.pipeline.text.shingles import one_array, view
from corpusmill.schemas.manifest import hash_json

I64 = npt.NDArray[np.int64]

ANCHOR = np.dtype("<u8")
# A block, the order of its source, and the first half of its document's id: of 2^64 ids two hardly meet.
BLOCK = np.dtype([("key", "<u8"), ("check", "<u8"), ("rank", "<u4"), ("ident", "<u8")])
# A window: hash of its tokens, upper half of its anchor; its block's order among those with the anchor.
WINDOW = np.dtype([("key", "<u8"), ("check", "<u4"), ("order", "<u4")])
# Bytes that a task holds for each record or unit: as read, its copies, hash table and order.
ANCHOR_COST, BLOCK_COST, WINDOW_COST, UNIT_COST = 32, 128, 64, 160


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
        """(may be cut, priority turned round) -> rank, best first."""
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
        flags = judge(read_slices(job.work, item.slices, dtype))
        origins = np.repeat(np.array(item.origins, np.int64), [part.size for part in item.slices])
        file = write(job.work, f"{path}.flags", flags, origins)
        counters = {"flagged": int((flags == 1).sum()), "contested": int((flags > 1).sum())}
        return Done(key=key, files={"flags": file}, counters=counters)

    return once(job.work, path, key, step)


def load(job: Job, kept: Kept) -> Docs:
    """A partition's documents. Raises `WorkError` for a text of 4 GiB or more."""
    docs = kept.read(["doc_id", "source", "text"])
    hi, lo = words(one_array(docs["doc_id"]))
    sources = one_array(docs["source"]).dictionary_encode()
    ranks = np.array([job.rank(name) for name in sources.dictionary.to_pylist()], np.int64)
    rank = ranks[sources.indices.to_numpy()] if len(docs) else np.empty(0, np.int64)
    offsets, data = view(one_array(docs["text"]))
    if len(docs) and np.diff(offsets).max() >= LONGEST:
        raise WorkError(
            f"partition {kept.partition.name}: a text of 4 GiB or more, which dedup.substrings cannot cut"
        )
    return Docs(one_array(docs["source"]), rank, hi, lo, offsets, data, np.lexsort((lo, hi, rank)))
