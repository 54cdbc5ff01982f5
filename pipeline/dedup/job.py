"""What every task of a run knows, and the records that travel between tasks.

A location is `partition index << 32 | row`: an address inside one run, never an identity. Planted near-copies
have locations of their own, above all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.engine.shuffle import Records
from corpusmill.schemas.dedup import DedupParams

I64 = npt.NDArray[np.int64]

PLANTED_PART = 1 << 30  # added to the index of a partition whose texts were planted
PLANTED = PLANTED_PART << 32

# 16-byte ids are two big-endian words, so that numbers sort as the bytes do.
BAND = np.dtype([("key", "<u8"), ("text", "<u8"), ("location", "<i8")])
EDGE = np.dtype([("a", "<i8"), ("b", "<i8")])
# A verified pair: exact Jaccard similarity, and the share of the smaller set that the larger one holds.
PAIR = np.dtype([("a", "<i8"), ("b", "<i8"), ("jaccard", "<f8"), ("inside", "<f8")])
HOT = np.dtype([("key", "<u8"), ("texts", "<i8"), ("location", "<i8")])
LABEL = np.dtype([("location", "<i8"), ("cluster", "<i8"), ("range", "<i8")])
HASH = np.dtype("<u8")
LOCATION = np.dtype("<i8")


@dataclass(frozen=True)
class Job:
    """What every task of a run needs: small, and the same for all of them."""

    work: Folder
    params: DedupParams
    banding: Banding
    band_ranges: int
    text_ranges: int
    priorities: tuple[tuple[str, int], ...]
    planted_share: float
    key: str
    slim: bool = False  # steps do not report their parts to the driver: `compaction.py`
    whole: bool = False  # all that is found out of a text is kept, for a lasting index

    @property
    def budget(self) -> int:
        """Bytes of records that a task may hold at once."""
        return self.params.memory_mb << 20

    @property
    def keep(self) -> float:
        """How many of a document and its duplicates stay: 0, a number, or infinity."""
        named = {"none": 0.0, "one": 1.0, "all": math.inf}
        return named[self.params.keep] if self.params.keep in named else float(self.params.keep)

    @cached_property
    def order(self) -> tuple[str, str, tuple[int]]:
        """The column that survivor order goes by: ascending, first whether the document may be removed."""
        return ("order", "<i8", (1 + len(self.params.keep_order),))

    @cached_property
    def doc(self) -> np.dtype[Any]:
        """A document: its key (hash of its text, words or URL), id, survivor order, source."""
        return np.dtype(
            [("hi", "<u8"), ("lo", "<u8"), ("id_hi", "<u8"), ("id_lo", "<u8"), ("location", "<i8"),
             ("text", "<u8"), ("source", "<u8"), self.order]
        )  # fmt: skip

    @cached_property
    def text(self) -> np.dtype[Any]:
        """The best documents of a partition with one key; on the first of them how many there are."""
        return np.dtype([*self.doc.descr, ("documents", "<i8"), ("protected", "<i8"), ("shingles", "<i8")])

    @cached_property
    def node(self) -> np.dtype[Any]:
        """A text whose shingle set is stored: where it begins in the partition's file, its size and sum."""
        return np.dtype([*self.text.descr, ("start", "<i8"), ("size", "<i8"), ("sum", "<u8")])

    @cached_property
    def member(self) -> np.dtype[Any]:
        """A node in a cluster, on its way to the election."""
        return np.dtype([*self.node.descr, ("cluster", "<i8")])

    @cached_property
    def fate(self) -> np.dtype[Any]:
        """The election's result for a text: for which document it goes, and how many of its documents that
        may be removed stay."""
        return np.dtype(
            [("hi", "<u8"), ("lo", "<u8"), ("cluster_hi", "<u8"), ("cluster_lo", "<u8"),
             ("survivor_hi", "<u8"), ("survivor_lo", "<u8"), ("survivor_location", "<i8"), ("jaccard", "<f8"),
             ("inside", "<f8"), ("slots", "<f8"), ("own", "?")]
        )  # fmt: skip

    @cached_property
    def decided(self) -> np.dtype[Any]:
        """What a partition receives about a key: the fate, the document that leads it, and the last in survivor
        order that stays."""
        return np.dtype(
            [*self.fate.descr, ("head_hi", "<u8"), ("head_lo", "<u8"), ("head_location", "<i8"),
             ("head_text", "<u8"), ("second_hi", "<u8"), ("second_lo", "<u8"), ("second_location", "<i8"),
             ("last_hi", "<u8"), ("last_lo", "<u8"), ("last_order", *self.order[1:])]
        )  # fmt: skip


def copy_fields(source: Records, target: Records, names: tuple[str, ...] | None) -> Records:
    """`target` with the fields of `source` that have these names."""
    for name in names or ():
        target[name] = source[name]
    return target


def survivor_order(records: Records, *first: npt.NDArray[Any]) -> I64:
    """Indices of document records by `first`, then the one to keep first; the id decides last: no ties."""
    order = [records["order"][:, i] for i in range(records["order"].shape[1])]
    return np.lexsort([*first, *order, records["id_hi"], records["id_lo"]][::-1])


def parts_of(location: I64) -> I64:
    """The partition's index of each location."""
    return location >> 32
