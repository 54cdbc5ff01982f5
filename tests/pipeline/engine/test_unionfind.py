"""Components against networkx, for any order and grouping of the edges."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.engine.unionfind import components, join, roots

EDGES = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60)


def expected(edges: list[tuple[int, int]]) -> np.ndarray:
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(30))
    found = np.empty(30, np.int64)
    for component in nx.connected_components(graph):
        found[list(component)] = min(component)
    return found


@given(EDGES)
def test_components_are_those_of_networkx(edges: list[tuple[int, int]]) -> None:
    for order in (edges, sorted(edges), edges[::-1]):
        pairs = np.array(order, np.int64).reshape(-1, 2)
        np.testing.assert_array_equal(components(30, pairs[:, 0], pairs[:, 1]), expected(edges))


@given(EDGES, st.integers(0, 60), st.sampled_from([np.int32, np.int64]))
def test_edges_in_pieces_join_the_same(edges: list[tuple[int, int]], cut: int, kind: type) -> None:
    parent = np.arange(30, dtype=kind)
    for part in (edges[:cut], edges[cut:]):
        pairs = np.array(part, np.int64).reshape(-1, 2)
        join(parent, pairs[:, 0], pairs[:, 1])
    roots(parent)
    assert parent.dtype == kind
    np.testing.assert_array_equal(parent, expected(edges))


def test_two_pairs_in_one_bucket_stay_two_clusters() -> None:
    """text-dedup#132: {1,3} and {2,4} verified, all four in one bucket."""
    assert components(5, np.array([1, 2]), np.array([3, 4])).tolist() == [0, 1, 2, 1, 2]
