"""The election against a plain reading of its rule."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup import election
from corpusmill.pipeline.dedup.election import Compare, choose_survivors
from corpusmill.pipeline.engine.unionfind import components


def choose(
    labels: np.ndarray, sizes: np.ndarray, known: tuple[np.ndarray, np.ndarray, np.ndarray], similarity: float,
    compare: Compare, protected: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:  # fmt: skip
    safe = np.zeros(len(labels), bool) if protected is None else protected
    return choose_survivors(labels, sizes, safe, known, similarity, similarity, compare)


def reference(
    labels: np.ndarray, matrix: np.ndarray, similarity: float, protected: np.ndarray
) -> tuple[list[int], list[float]]:
    survivor, score = list(range(len(labels))), [1.0] * len(labels)
    for x in np.flatnonzero(~protected).tolist():
        for y in range(x):
            if labels[x] == labels[y] and survivor[y] == y and matrix[x, y] >= similarity:
                survivor[x], score[x] = y, matrix[x, y]
                break
    return survivor, score


def run(
    matrix: np.ndarray, known: np.ndarray, similarity: float, safe: np.ndarray | None = None
) -> tuple[list[int], list[float], int, int]:
    """Elect with the pairs in `known` (a mask) known from the start; how many others were compared."""
    protected = np.zeros(len(matrix), bool) if safe is None else safe
    a, b = np.nonzero(np.triu(known, 1))
    good = matrix[a, b] >= similarity
    labels = components(len(matrix), a[good], b[good])
    asked: list[tuple[int, int]] = []

    def compare(turn: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        assert (x < y).all() and not known[x, y].any(), "only what is not known is asked"
        asked.extend(zip(x.tolist(), y.tolist(), strict=True))
        return np.asarray(matrix[x, y], np.float64)

    sizes = np.full(len(matrix), 100, np.int64)
    survivor, score, cut = choose(labels, sizes, (a, b, matrix[a, b]), similarity, compare, protected)
    assert len(asked) == len(set(asked)), "nothing is asked twice"
    if not cut:
        expected = reference(labels, matrix, similarity, protected)
        assert (survivor.tolist(), score.tolist()) == expected
    return survivor.tolist(), score.tolist(), cut, len(asked)


@given(st.integers(0, 2**32), st.integers(1, 40), st.floats(0.1, 0.9), st.floats(0.05, 1), st.integers(0, 9))
def test_election_follows_its_rule(
    seed: int, count: int, similarity: float, density: float, protected: int
) -> None:
    generator = np.random.default_rng(seed)
    matrix = np.triu(generator.random((count, count)), 1)
    matrix += matrix.T
    known = np.triu(generator.random((count, count)) < density, 1)
    run(matrix, known | known.T, similarity, np.arange(count) < protected)


def test_chain_goes_no_further_than_similarity() -> None:
    """A-B-C-D, each like the next: A stays, B goes for A, C is not like A and stays, D goes for C."""
    matrix = np.full((4, 4), 0.5)
    for i in range(3):
        matrix[i, i + 1] = matrix[i + 1, i] = 0.85
    survivor, score, _, _ = run(matrix, matrix > 0.8, 0.8)
    assert survivor == [0, 0, 2, 2] and score == [1.0, 0.85, 1.0, 0.85]


def test_sets_of_too_different_size_are_not_compared() -> None:
    matrix = np.array([[1, 0.9, 0.2], [0.9, 1, 0.9], [0.2, 0.9, 1]])
    a, b = np.array([0, 1]), np.array([1, 2])

    def compare(turn: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        raise AssertionError("100 and 10 shingles cannot be 0.8 similar")

    survivor, _, _ = choose(
        np.zeros(3, np.int64), np.array([100, 90, 10]), (a, b, matrix[a, b]), 0.8, compare
    )
    assert survivor.tolist() == [0, 0, 2]


def test_a_giant_cluster_of_unlike_texts_ends_and_says_so() -> None:
    """A hub that all are like, none like another: when rounds run out, what is not known similar stays."""
    count = 1200
    asked = []

    def compare(turn: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        asked.append(len(x))
        return np.where(x == 0, 0.5, 0.1)

    hub = count - 1
    a, b = np.arange(count - 1), np.full(count - 1, hub)
    labels, sizes = np.zeros(count, np.int64), np.full(count, 9, np.int64)
    survivor, _, cut = choose(labels, sizes, (a, b, np.full(count - 1, 0.9)), 0.8, compare)
    assert survivor[hub] == 0 and (survivor[:hub] == np.arange(hub)).all()
    assert cut == count - 1 - sum(min(2**t, election.FRONT) for t in range(election.ROUNDS))
    assert len(asked) == election.ROUNDS


def test_no_texts() -> None:
    empty = np.empty(0, np.int64)
    survivor, score, cut = choose(
        empty, empty, (empty, empty, np.empty(0)), 0.8, lambda turn, x, y: np.zeros(len(x))
    )
    assert len(survivor) == len(score) == cut == 0
