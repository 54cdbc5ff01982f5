"""Exact similarities and scores, against a direct count."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import labelled, natural
from bench.dedup_scale import fit

WORDS = st.lists(st.sampled_from(["a", "b", "c", "Dé", "e_"]), min_size=0, max_size=14).map(" ".join)


@given(st.lists(WORDS, min_size=2, max_size=8))
def test_similarities_are_those_of_all_pairs(texts: list[str]) -> None:
    named = {str(number): text for number, text in enumerate(texts)}
    found = labelled.similarities(named, 0.3)
    for a, b in itertools.combinations(named, 2):
        exact = labelled.jaccard(labelled.shingles(named[a]), labelled.shingles(named[b]))
        assert found.get(labelled.pair(a, b)) == (exact if exact >= 0.3 else None)


def test_every_pair_of_a_cluster_counts() -> None:
    pairs = labelled.pairs_of([["c", "a", "b"], ["x", "y"]])
    assert pairs == {("a", "b"), ("a", "c"), ("b", "c"), ("x", "y")}
    scores = labelled.score(pairs, {("a", "b"), ("x", "y"), ("x", "z")})
    assert tuple(scores) == (2, 2, 1)
    assert (scores.precision, scores.recall, scores.f1) == (0.5, 2 / 3, 4 / 7)


@pytest.mark.parametrize("relative", [True, False])
def test_a_line_has_no_deviations(relative: bool) -> None:
    slope, intercept, off = fit([1, 2, 4, 8], [3.0, 5.0, 9.0, 17.0], relative)
    assert (slope, intercept) == pytest.approx((2, 1))
    assert off == pytest.approx([0, 0, 0, 0], abs=1e-9)


@pytest.mark.skipif(not natural.available(), reason="the labelled sets (../shared/data) are not here")
def test_the_labels_name_documents() -> None:
    for size, pairs in ((100, 5), (1_000, 10), (2_500, 20)):
        some = labelled.mccormick(size)
        assert (len(some.texts), len(some.duplicates)) == (size, pairs)
        assert {name for pair in some.duplicates for name in pair} <= some.texts.keys()
