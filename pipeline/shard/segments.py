"""What lies between the two phases: a partition's documents in the order of the shards, in one file.

The file is a row of segments, one for each shard that the partition has documents of: first a `HEAD` for each
document, in the order of their hash, then their elements (tokens, or the words of rendered tar members) in the same
order. A shard's task reads the heads of its segments first; then it knows how all its documents follow each other, and
takes the elements piece by piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.shard.kernels.order import copy

# A document: what orders it (hash, then id as big-endian halves, which sort as its bytes do), the bytes of its text,
# its elements and their sum.
HEAD = np.dtype(
    [
        ("hash", "<u8"),
        ("high", ">u8"),
        ("low", ">u8"),
        ("text_bytes", "<i8"),
        ("length", "<i8"),
        ("sum", "<u8"),
    ]
)
# Where the documents of one shard lie: offset in bytes, documents, elements, xxh3_64 of the heads.
SEGMENT = np.dtype(
    [
        ("set", "<i8"),
        ("bucket", "<i8"),
        ("offset", "<i8"),
        ("docs", "<i8"),
        ("elements", "<i8"),
        ("xxh3", "<u8"),
    ]
)

Array = npt.NDArray[Any]


def packed(
    heads: Array, sets: Array, buckets: Array, elements: Array, offsets: Array, dtype: npt.DTypeLike
) -> tuple[list[memoryview], Array]:
    """The pieces of a partition's file, one after the other, and its `SEGMENT` rows.

    `heads` have all but length and sum; `elements[offsets[i] : offsets[i + 1]]` are the i-th document's and are
    written as `dtype`.
    """
    order = np.lexsort((heads["low"], heads["high"], heads["hash"], buckets, sets))
    heads, sets, buckets = heads[order], sets[order], buckets[order]
    lengths = np.diff(offsets)[order]
    out = np.empty(int(lengths.sum()), dtype=dtype)
    places, sums = np.zeros(len(order) + 1, dtype=np.int64), np.empty(len(order), dtype=np.uint64)
    copy(elements, offsets[:-1][order], lengths, 0, out, places, sums)
    heads["length"], heads["sum"] = lengths, sums
    changes = np.flatnonzero((np.diff(sets) != 0) | (np.diff(buckets) != 0)) + 1
    edges = np.concatenate([[0], changes, [len(order)]]) if len(order) else np.zeros(1, dtype=np.int64)
    segments = np.zeros(len(edges) - 1, dtype=SEGMENT)
    pieces: list[memoryview] = []
    at = 0
    for row, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        mine, data = heads[start:stop], out[places[start] : places[stop]]
        segments[row] = (
            sets[start], buckets[start], at, stop - start, len(data), xxhash.xxh3_64_intdigest(mine.data),
        )  # fmt: skip
        pieces += [mine.view(np.uint8).data, data.view(np.uint8).data]
        at += mine.nbytes + data.nbytes
    return pieces, segments


def read_heads(scratch: Folder, files: list[str], segments: Array) -> list[Array]:
    """The heads of each segment, `segments[i]` of the file `files[i]` below `scratch`.

    Raises `WorkError` if bytes changed since they were published.
    """
    places = zip(files, segments["offset"].tolist(), segments["docs"].tolist(), strict=True)
    found = []
    ranges = ((path, offset, docs * HEAD.itemsize) for path, offset, docs in places)
    for path, data, wanted in zip(files, scratch.read_ranges(ranges), segments["xxh3"].tolist(), strict=True):
        if xxhash.xxh3_64_intdigest(data) != wanted:
            raise changed(scratch / path)
        found.append(np.frombuffer(data, dtype=HEAD))
    return found


def changed(file: Folder) -> WorkError:
    """A published file of the stage does not hold its bytes any more."""
    return WorkError(f"{file}: its bytes changed since they were published; delete it, run again")
