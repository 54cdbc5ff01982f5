"""Draws without replacement from a pool that grows: the order of an epoch under a curriculum. Loaded by runs that have one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@compiled
def draw_growing(pool: npt.NDArray[np.int64], key: npt.NDArray[np.uint64], out: npt.NDArray[Any]) -> None:
    """`out[p]`: the rank that draw number p takes, at random among those below `pool[p]` that no draw before it took.

    `pool` rises and exceeds p at each p. `key`: uint64 [1], which splitmix64 (Steele et al. 2014) makes the draws of, so that they
    are the same on every machine. O(len(pool)) time.
    """
    left = np.empty(len(pool), dtype=np.int64)
    count = np.int64(0)
    state = key[0]
    for p in range(len(pool)):
        while count < pool[p] - p:
            left[count] = p + count
            count += 1
        state += _GOLDEN
        x = state
        x = (x ^ (x >> _S30)) * _FIRST
        x = (x ^ (x >> _S27)) * _SECOND
        x = x ^ (x >> _S31)
        at = np.int64(x % np.uint64(count))
        out[p] = left[at]
        count -= 1
        left[at] = left[count]
