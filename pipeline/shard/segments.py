"""Files between the two phases: a partition's documents in the order of the shards, and their merge into a shard.

The file is a row of segments, one for each shard that the partition has documents of: first a `HEADER` for each
document, in the order of their hash, then their elements (tokens, or the words of rendered tar members) in the same
order. A shard's task reads the headers of its segments first; then it knows how all its documents follow each other, and
takes the elements piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from corpusmill.common.errors import WorkError
from corpusmill.common.kernel_cache import compiled
from corpusmill.common.storage import Folder

Elements = npt.NDArray[np.unsignedinteger[Any]]
Longs = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

_START = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


@compiled
def copy(
    source: Elements, froms: Longs, lengths: Longs, gap: int, out: Elements, places: Longs,
    sums: npt.NDArray[np.uint64],
) -> None:  # fmt: skip
    """Copy the i-th document, `lengths[i]` elements of `source` from `froms[i]`, to `out` from where the one before
    ended and `gap` elements more; `places` (n + 1) gets where each begins and the last ends, gap included, and
    `sums` (n) the sum of each."""
    at = places[0]
    for i in range(len(froms)):
        total = _START
        begin = froms[i]
        for k in range(lengths[i]):
            element = source[begin + k]
            out[at + k] = element
            total = (total ^ np.uint64(element)) * _FACTOR
        sums[i] = total ^ (total >> _SHIFT)
        at += lengths[i] + gap
        places[i + 1] = at


@compiled
def weigh(tokens: Elements, offsets: Longs, weights: npt.NDArray[np.int32], out: Longs) -> None:
    """Sum of `weights[token]` over each document: `out[i]` of the tokens from `offsets[i]` to `offsets[i + 1]`."""
    for i in range(len(out)):
        total = np.int64(0)
        for k in range(offsets[i], offsets[i + 1]):
            total += weights[tokens[k]]
        out[i] = total


# A document: what orders it (hash, then id as big-endian halves, which sort as its bytes do), the bytes of its text,
# its elements and their sum.
HEADER = np.dtype(
    [
        ("hash", "<u8"),
        ("high", ">u8"),
        ("low", ">u8"),
        ("text_bytes", "<i8"),
        ("length", "<i8"),
        ("sum", "<u8"),
    ]
)
# Where the documents of one shard lie: offset in bytes, documents, elements, xxh3_64 of the headers.
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


def packed(
    headers: Array, sets: Array, buckets: Array, elements: Array, offsets: Array, dtype: npt.DTypeLike
) -> tuple[list[memoryview], Array]:
    """The pieces of a partition's file, one after the other, and its `SEGMENT` rows.

    `headers` have all but length and sum; `elements[offsets[i] : offsets[i + 1]]` are the i-th document's and are
    written as `dtype`.
    """
    order = np.lexsort((headers["low"], headers["high"], headers["hash"], buckets, sets))
    headers, sets, buckets = headers[order], sets[order], buckets[order]
    lengths = np.diff(offsets)[order]
    out = np.empty(int(lengths.sum()), dtype=dtype)
    places, sums = np.zeros(len(order) + 1, dtype=np.int64), np.empty(len(order), dtype=np.uint64)
    copy(elements, offsets[:-1][order], lengths, 0, out, places, sums)
    headers["length"], headers["sum"] = lengths, sums
    changes = np.flatnonzero((np.diff(sets) != 0) | (np.diff(buckets) != 0)) + 1
    edges = np.concatenate([[0], changes, [len(order)]]) if len(order) else np.zeros(1, dtype=np.int64)
    segments = np.zeros(len(edges) - 1, dtype=SEGMENT)
    pieces: list[memoryview] = []
    at = 0
    for row, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        mine, data = headers[start:stop], out[places[start] : places[stop]]
        segments[row] = (
            sets[start], buckets[start], at, stop - start, len(data), xxhash.xxh3_64_intdigest(mine.data),
        )  # fmt: skip
        pieces += [mine.view(np.uint8).data, data.view(np.uint8).data]
        at += mine.nbytes + data.nbytes
    return pieces, segments


def read_headers(scratch: Folder, files: list[str], segments: Array) -> list[Array]:
    """The headers of each segment, `segments[i]` of the file `files[i]` below `scratch`.

    Raises `WorkError` if bytes changed since they were published.
    """
    places = zip(files, segments["offset"].tolist(), segments["docs"].tolist(), strict=True)
    found = []
    ranges = ((path, offset, docs * HEADER.itemsize) for path, offset, docs in places)
    for path, data, wanted in zip(files, scratch.read_ranges(ranges), segments["xxh3"].tolist(), strict=True):
        if xxhash.xxh3_64_intdigest(data) != wanted:
            raise changed(scratch / path)
        found.append(np.frombuffer(data, dtype=HEADER))
    return found


def changed(file: Folder) -> WorkError:
    """A published file of the stage does not hold its bytes any more."""
    return WorkError(f"{file}: its bytes changed since they were published; delete it, run again")


WINDOW = 16 << 20  # bytes of elements at once, at least; a single longer document is taken whole
FILES, WIDEST = 512, 64  # files for which that is enough; and how often as much is read at most


def window_bytes(files: int) -> int:
    """Elements that are read at once from so many files: with thousands of files a window of fixed size would have a document
    or two of each, and a request for every one of them."""
    return WINDOW * min(WIDEST, max(1, files // FILES))


class Window(NamedTuple):
    """Documents that follow each other: ids (n x 16 bytes), and their elements with `gap` free ones after each."""

    ids: npt.NDArray[np.uint8]
    elements: Array
    offsets: npt.NDArray[np.int64]
    text_bytes: int


def in_order(
    scratch: Folder, files: list[str], segments: Array, dtype: npt.DTypeLike, gap: int = 0
) -> Iterator[Window]:
    """The documents of `segments` (`SEGMENT`, one of each file) by (hash, id).

    Raises `WorkError` naming the file whose bytes are not those that were published.
    """
    headers = read_headers(scratch, files, segments)
    owners = np.repeat(np.arange(len(headers)), [len(one) for one in headers])
    whole = np.empty(len(owners), dtype=HEADER)
    np.concatenate(headers, out=whole)
    order = np.lexsort((whole["low"], whole["high"], whole["hash"]))
    whole, owners = whole[order], owners[order]
    size, wide = np.dtype(dtype).itemsize, window_bytes(len(files))
    ends = np.cumsum(whole["length"])
    cursors = segments["offset"] + segments["docs"] * HEADER.itemsize
    start = 0
    while start < len(whole):
        base = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, base + wide // size, side="right")))
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
