"""Connected components by union-find: of verified pairs in deduplication, of groups and hosts in the split."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled


@compiled
def components(count: int, a: Any, b: Any) -> Any:
    """The component of each of `count` nodes under the edges (a[i], b[i]): the least node in it,
    int64[count]."""
    parent = np.arange(count)
    join(parent, a, b)
    roots(parent)
    return parent


@compiled
def join(parent: Any, a: Any, b: Any) -> None:
    """Join the trees of `parent`, integers[nodes], along the edges (a[i], b[i]).

    Union-find with path halving; the root is always the least node, whatever the order of the edges.
    """
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


@compiled
def roots(parent: Any) -> None:
    """Point every node straight at its root: ascending, its parent, never greater, was settled before."""
    for x in range(len(parent)):
        parent[x] = parent[parent[x]]
