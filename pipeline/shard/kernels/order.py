"""Documents into another order, with a sum of each taken on the way; characters of a block's documents.

The sum is 64 bits over a document's elements: each is xored in, then multiplied by an odd number. That step is a
bijection of the state, so a change of one element always changes the sum; it is there for damage, not for malice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled

Elements = npt.NDArray[np.unsignedinteger[Any]]
Longs = npt.NDArray[np.int64]

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
