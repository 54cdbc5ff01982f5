"""Tables over all code points, small on disk: runs of one class whose values lie at one distance."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]
CODE_POINTS = 0x110000
BITS = 21  # of a code point: the lower bits of an entry; above them stands its class
POINT = (1 << BITS) - 1
PIECES = 4  # code points of the longest canonical decomposition


def pack(entries: U32, pieces: U32) -> bytes:
    """`entries` (uint32[0x110000]) and `pieces` (uint32[n, 4]) as bytes, deflated."""
    kind = (entries >> BITS).astype(np.int32)
    shift = (entries & POINT).astype(np.int32) - np.arange(CODE_POINTS, dtype=np.int32)
    starts = np.flatnonzero(np.r_[True, (np.diff(kind) != 0) | (np.diff(shift) != 0)])
    runs = np.stack([starts, kind[starts], shift[starts]]).astype("<i4")
    size = np.array([len(starts)], "<i4")
    return zlib.compress(size.tobytes() + runs.tobytes() + pieces.astype("<u4").tobytes(), 9)


def unpack(packed: bytes) -> tuple[U32, U32]:
    """(entries, pieces) as they were packed."""
    values = np.frombuffer(zlib.decompress(packed), "<i4")
    end = 1 + 3 * int(values[0])
    starts, kind, shift = values[1:end].reshape(3, -1)
    lengths = np.diff(np.r_[starts, CODE_POINTS])
    low = np.arange(CODE_POINTS, dtype=np.int32) + np.repeat(shift, lengths)
    high = np.repeat(kind, lengths).astype(np.uint32) << BITS
    entries: U32 = high | low.astype(np.uint32)
    return entries, values[end:].astype(np.uint32).reshape(-1, PIECES)
