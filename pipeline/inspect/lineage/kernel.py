"""Keys of strings, a batch at a time: what `ids.py` looks ids and URLs up by."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.inspect.lineage.ids import BASIS, PRIME

_BASIS, _PRIME, _SHIFT = np.uint64(BASIS), np.uint64(PRIME), np.uint64(32)


@compiled
def keys(offsets: Any, data: Any, valid: Any) -> Any:
    """uint64[n]: FNV-1a (Fowler, Noll, Vo; http://www.isthe.com/chongo/tech/comp/fnv) of UTF-8 strings between int64
    offsets, folded so that the high bits depend on all bytes; 0 where not `valid`."""
    found = np.zeros(len(offsets) - 1, np.uint64)
    for row in range(len(found)):
        if not valid[row]:
            continue
        value = _BASIS
        for i in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(data[i])) * _PRIME
        found[row] = (value ^ (value >> _SHIFT)) * _PRIME
    return found
