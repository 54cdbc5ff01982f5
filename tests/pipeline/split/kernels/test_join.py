"""Components, against the same by repeated relabelling."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.split.kernels.join import components

EDGES = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)


@given(EDGES)
def test_the_least_node_names_the_component(edges: list[tuple[int, int]]) -> None:
    label = list(range(12))
    for _ in range(12):
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
    ends = np.array(edges, np.int64).reshape(-1, 2)
    assert components(12, ends[:, 0].copy(), ends[:, 1].copy()).tolist() == label
