"""The sample of validation documents as an inverted index of their shingles, made once in each worker."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.split import overlap
from corpusmill.schemas.documents import ID

# A validation document: its distinct shingle hashes, ascending.
SAMPLE = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("shingles", pa.large_list(pa.field("item", pa.uint64(), nullable=False)), nullable=False),
    ]
)


class Index(NamedTuple):
    """What `kernels.overlap.compare` takes: keys and classes [K], the filter and its shift, beginnings and their
    shift, bounds [C + 1] and members of the classes' lists, the bitmap of each class [C], the bitmaps [B, W], and the
    sizes [V] of the sets."""

    keys: npt.NDArray[np.uint64]
    classes: npt.NDArray[np.int64]
    field: npt.NDArray[np.uint64]
    field_shift: np.uint64
    first: npt.NDArray[np.int64]
    first_shift: np.uint64
    list_bounds: npt.NDArray[np.int64]
    members: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int64]
    maps: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.int64]


def sets_of(sample: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """(bounds int64[V + 1], hashes) of the shingle sets of a table of `SAMPLE`."""
    column = sample["shingles"].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], SAMPLE.field("shingles").type)
    bounds = column.offsets.to_numpy().astype(np.int64)
    hashes = column.values.to_numpy(zero_copy_only=False)
    return bounds - bounds[0], hashes[bounds[0] : bounds[-1]]


def build(sample: pa.Table) -> Index:
    """The index of a table of `SAMPLE`."""
    bounds, hashes = sets_of(sample)
    sizes = np.diff(bounds)
    owner = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    order = np.argsort(hashes, kind="stable")  # owners ascend within a hash
    hashes, owner = hashes[order], owner[order]
    begins = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]]) if len(hashes) else np.zeros(0, np.int64)
    keys = hashes[begins]
    starts = np.r_[begins, len(hashes)].astype(np.int64)
    lengths = np.diff(starts)
    classes = owner[begins].astype(np.int64)  # of a shingle of one document: that document
    shared = np.flatnonzero(lengths > 1)
    # Equal lists, by a hash of 64 bits: two different ones among a million meet with a chance of one in 10^7.
    names = overlap.signatures_of_lists(starts, owner)[shared]
    _, examples, numbers = np.unique(names, return_index=True, return_inverse=True)
    classes[shared] = len(sizes) + numbers
    examples = shared[examples]
    list_bounds = np.r_[0, np.cumsum(lengths[examples])].astype(np.int64)
    within = np.arange(list_bounds[-1]) - np.repeat(list_bounds[:-1], lengths[examples])
    members = owner[np.repeat(starts[examples], lengths[examples]) + within]
    field, field_shift = overlap.filter_bits(keys)
    first, first_shift = overlap.beginnings(keys)
    rows, maps = overlap.bitmaps(list_bounds, members, len(sizes))
    return Index(
        keys, classes, field, field_shift, first, first_shift, list_bounds, members, rows, maps, sizes
    )


@lru_cache(maxsize=1)
def load(folder: Folder, path: str, xxh3: str) -> Index:
    """The index of a published sample."""
    return build(read_table(folder / path, xxh3))


def empty_best(count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """What `compare` raises: (float64[count, 2], int64[count, 2])."""
    return np.zeros((count, 2)), np.full((count, 2), -1, np.int64)
