"""Slots of a batch: every part of it has the mixture."""

from __future__ import annotations

from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.train.data.lanes import layout
from corpusmill.train.data.planning import largest_remainder


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 500))
@settings(max_examples=100, deadline=None)
def test_largest_remainder_deals_every_seat_within_one(weights: list[int], seats: int) -> None:
    shares = [w / sum(weights) for w in weights]
    lanes = largest_remainder(shares, seats)
    assert sum(lanes) == seats
    assert all(abs(lane - share * seats) < 1 for lane, share in zip(lanes, shares, strict=True))
    if seats % (sum(weights) // gcd(*weights)) == 0:
        assert lanes == [w * seats // sum(weights) for w in weights]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_every_batch_has_each_source_to_one_slot(counts: list[int], batches: int) -> None:
    counts[0] += -sum(counts) % batches
    total = sum(counts)
    if not total:
        return
    found = layout(counts, total // batches)
    assert np.bincount(found, minlength=len(counts)).tolist() == counts
    for part in np.split(found, batches):
        exact = np.array(counts) / batches
        assert (abs(np.bincount(part, minlength=len(counts)) - exact) < 1).all()


def test_halves_and_quarters_of_a_batch_have_it_too() -> None:
    counts = [476, 192, 77, 23]
    found = layout(counts, 768)
    for parts in (2, 4, 8):
        for part in np.split(found, parts):
            # each halving rounds once more: the share of a half of the half
            assert (abs(np.bincount(part, minlength=4) - np.array(counts) / parts) < 2).all()


def test_slots_that_are_no_whole_number_of_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="5 slots are not a whole number of batches of 2"):
        layout([3, 2], 2)
