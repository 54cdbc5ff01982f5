"""Connected components."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def components(count: int, a: Any, b: Any) -> Any:
    """int64[count]: the least node of the component of each node, under the edges (a[i], b[i]), int64[E] each.

    Union-find with path halving, the root always the least node: whatever the order of the edges.
    """
    parent = np.arange(count)
    for i in range(len(a)):
        x, y = a[i], b[i]
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        while parent[y] != y:
            parent[y] = parent[parent[y]]
            y = parent[y]
        if x < y:
            parent[y] = x
        elif y < x:
            parent[x] = y
    for x in range(count):  # ascending: the parent, never greater, is settled
        parent[x] = parent[parent[x]]
    return parent
