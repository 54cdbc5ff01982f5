"""A corpus in numbers: what duplicates leave of it, the S-curve over bins, corpora that grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.estimate.corpus import BINS, assumed, at_least, degree_of, grown, in_bins, left


@given(st.floats(0, 50))
def test_degree_is_the_inverse_of_what_is_left(degree: float) -> None:
    assert degree_of(left(degree)) == pytest.approx(degree, rel=1e-6, abs=1e-6)


def test_what_is_left_of_a_random_graph() -> None:
    """Of Poisson neighbours the first in a random order stays: by simulation."""
    generator = np.random.default_rng(1)
    for degree in (0.1, 1.0, 4.0):
        neighbours = generator.poisson(degree, 200_000)
        assert left(degree) == pytest.approx((1 / (1 + neighbours)).mean(), abs=0.005)


@given(st.integers(1, 60), st.integers(1, 20))
def test_bins_hold_the_curve(bands: int, rows: int) -> None:
    found, meetings = in_bins(Banding(bands, rows))
    assert len(found) == len(meetings) == BINS and (np.diff(found) >= 0).all()
    for place in (3, 50, 80, 97):
        low, high = (Banding(bands, rows).found(edge / BINS) for edge in (place, place + 1))
        assert low <= found[place] <= high + 1e-12
    assert (found <= meetings + 1e-12).all()


@given(st.floats(0.001, 1))
def test_bins_at_a_similarity(similarity: float) -> None:
    share = at_least(similarity)
    assert share[BINS - 1] == 1 and (np.diff(share) >= 0).all()
    assert share.sum() == pytest.approx((1 - similarity) * BINS, abs=1.0)


def test_more_of_the_same() -> None:
    corpus = assumed(10_000, 1000, 1e6, 0.5, 0.2)
    assert corpus.partitions == 10 and corpus.text_bytes == 10_000_000
    assert sum(corpus.pairs[50:]) == pytest.approx(2_500)
    more = grown(corpus, 40_000, None, None)
    assert more.documents == 40_000 and more.partitions == 40
    assert np.array(more.pairs) == pytest.approx(16 * np.array(corpus.pairs))
    assert more.copies == pytest.approx(4 * corpus.copies)
    longer = grown(corpus, None, 2000, 1e6)
    assert longer.partitions == 20 and longer.pairs == corpus.pairs
    assert longer.shingles == pytest.approx(2 * corpus.shingles)
