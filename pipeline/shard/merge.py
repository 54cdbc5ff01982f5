"""A shard's documents out of all partitions, in the order of their hash, a window at a time.

Memory is bounded by the window, not by the shard: the heads (48 bytes a document) say how documents of all segments
follow each other, and since a segment holds its own in the same order, a window's part of it is one range of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.storage import Folder
from corpusmill.pipeline.shard.kernels.order import copy
from corpusmill.pipeline.shard.segments import HEAD, changed, read_heads

WINDOW = 16 << 20  # bytes of elements at once; a single longer document is taken whole

Array = npt.NDArray[Any]


class Window(NamedTuple):
    """Documents that follow each other: ids (n x 16 bytes), and their elements with `gap` free ones after each."""

    ids: npt.NDArray[np.uint8]
    elements: Array
    offsets: npt.NDArray[np.int64]
    text_bytes: int


def in_order(
    scratch: Folder, files: list[str], segments: Array, dtype: npt.DTypeLike, gap: int = 0
) -> Iterator[Window]:
    """The documents of `segments` (`scratch.SEGMENT`, one of each file) by (hash, id).

    Raises `WorkError` naming the file whose bytes are not those that were published.
    """
    heads = read_heads(scratch, files, segments)
    owners = np.repeat(np.arange(len(heads)), [len(one) for one in heads])
    whole = np.empty(len(owners), dtype=HEAD)
    np.concatenate(heads, out=whole)
    order = np.lexsort((whole["low"], whole["high"], whole["hash"]))
    whole, owners = whole[order], owners[order]
    size = np.dtype(dtype).itemsize
    ends = np.cumsum(whole["length"])
    cursors = segments["offset"] + segments["docs"] * HEAD.itemsize
    start = 0
    while start < len(whole):
        base = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, base + WINDOW // size, side="right")))
        mine, docs = owners[start:stop], whole[start:stop]
        lengths = docs["length"].astype(np.int64)
        wanted = np.bincount(mine, weights=lengths, minlength=len(files)).astype(np.int64)
        taken = np.flatnonzero(wanted)
        raw = np.empty(int(wanted.sum()), dtype=dtype)
        at = np.zeros(len(files) + 1, dtype=np.int64)
        np.cumsum(wanted, out=at[1:])
        ranges = ((files[i], int(cursors[i]), int(wanted[i]) * size) for i in taken.tolist())
        for i, data in zip(taken.tolist(), scratch.read_ranges(ranges), strict=True):
            raw[at[i] : at[i + 1]] = np.frombuffer(data, dtype=dtype)
        cursors += wanted * size
        yield _window(scratch, files, docs, mine, raw, _froms(mine, lengths), gap)
        start = stop


def _froms(owners: Array, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each document begins in what was read: file after file, and in each the documents in their order."""
    by_file = np.argsort(owners, kind="stable")
    froms = np.empty_like(lengths)
    froms[by_file] = np.cumsum(lengths[by_file]) - lengths[by_file]
    return froms


def _window(
    scratch: Folder, files: list[str], docs: Array, owners: Array, raw: Array, froms: npt.NDArray[np.int64], gap: int
) -> Window:  # fmt: skip
    offsets, sums = np.zeros(len(docs) + 1, dtype=np.int64), np.empty(len(docs), dtype=np.uint64)
    elements = np.empty(len(raw) + gap * len(docs), dtype=raw.dtype)
    copy(raw, froms, docs["length"].astype(np.int64), gap, elements, offsets, sums)
    wrong = np.flatnonzero(sums != docs["sum"])
    if len(wrong):
        raise changed(scratch / files[int(owners[wrong[0]])])
    ids = np.empty((len(docs), 2), dtype=">u8")
    ids[:, 0], ids[:, 1] = docs["high"], docs["low"]
    return Window(ids.view(np.uint8), elements, offsets, int(docs["text_bytes"].sum()))
