"""The sample: the same for any cut, even over lengths, and near-copies come together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.quality.recall import (
    CROWD,
    SAMPLE,
    draw,
    sample_records,
    scattered,
    shares,
    strata,
)
from corpusmill.pipeline.engine.shuffle import Records


def made(seed: int, count: int, longest: int = 16, texts: int = 0) -> Records:
    """Records of `texts` different texts, many with one draw."""
    generator = np.random.default_rng(seed)
    records = np.zeros(count, SAMPLE)
    records["hi"] = generator.integers(0, texts or count, count)
    records["lo"] = records["hi"] % np.uint64(3)
    records["draw"] = scattered(records["hi"] // np.uint64(5), 7)
    records["shingles"] = 1 << (records["hi"] * np.uint64(7919) % np.uint64(longest)).astype(np.int64)
    records["location"] = np.arange(count)
    return records


@given(
    st.integers(0, 2**32), st.integers(0, 400), st.integers(1, 16), st.integers(0, 200),
    st.lists(st.integers(0, 400), max_size=6), st.integers(1, 400),
)  # fmt: skip
def test_draws_of_parts_give_the_draw_of_the_whole(
    seed: int, count: int, longest: int, size: int, cuts: list[int], texts: int
) -> None:
    records = made(seed, count, longest, texts)
    whole = draw(records, size)
    shuffled = np.random.default_rng(seed).permutation(records)
    parts = [draw(part, size) for part in np.split(shuffled, sorted(min(cut, count) for cut in cuts))]
    again = draw(np.concatenate(parts), size)
    np.testing.assert_array_equal(again, whole)
    assert len(whole) <= size
    assert len(np.unique(whole[["draw", "shingles", "hi", "lo"]])) == len(whole)
    for record in whole:
        same = records[(records["hi"] == record["hi"]) & (records["lo"] == record["lo"])]
        assert record["location"] == same["location"].min()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(0, 300))
def test_shares_are_even_and_used_up(sizes: list[int], total: int) -> None:
    array = np.array(sizes)
    found = shares(array, total)
    assert found.sum() == min(total, array.sum()) and (found <= array).all()
    short = found[found < array]
    assert len(short) == 0 or (short.max() - short.min() <= 1 and found.max() <= short.min() + 1)


def test_every_length_has_its_share() -> None:
    """Ten long texts among a hundred thousand short ones are all drawn; the rest is even."""
    generator = np.random.default_rng(1)
    records = np.zeros(100_010, SAMPLE)
    records["hi"] = records["location"] = np.arange(len(records))
    records["draw"] = generator.integers(0, 2**64, len(records), np.uint64)
    records["shingles"] = generator.integers(4, 1000, len(records))
    records["shingles"][:10] = 1_000_000
    drawn = draw(records, 2000)
    assert len(drawn) == 2000 and (drawn["shingles"] == 1_000_000).sum() == 10
    taken = np.bincount(strata(drawn["draw"], drawn["shingles"]))
    full = taken[3:9]
    assert full.min() > 150 and full.max() - full.min() <= 1


def test_a_crowd_is_cut() -> None:
    records = made(3, 1000, longest=1)
    records["draw"] = 42
    assert len(draw(records, 1000)) == CROWD


@pytest.mark.parametrize(("a", "b", "most"), [(127, 129, 0.04), (100, 125, 0.36), (64, 64, 0.0)])
def test_near_copies_seldom_part_at_the_border_of_a_stratum(a: int, b: int, most: float) -> None:
    draws = np.random.default_rng(2).integers(0, 2**64, 20_000, np.uint64)
    sizes = np.full(len(draws), a), np.full(len(draws), b)
    parted = strata(draws, sizes[0]) != strata(draws, sizes[1])
    assert parted.mean() <= most
    assert set(strata(draws, sizes[0])) <= {a.bit_length() - 1, a.bit_length()}


@pytest.mark.parametrize(("sizes", "least"), [((127, 129), 0.9), ((120, 140), 0.75), ((100, 100), 0.95)])
def test_pairs_at_a_border_are_drawn_together(sizes: tuple[int, int], least: float) -> None:
    """Near-copies of 127 and 129 shingles among texts of all lengths: those drawn mostly come as pairs."""
    pairs, others = 2_000, 20_000
    records = np.zeros(2 * pairs + others, SAMPLE)
    records["hi"] = records["location"] = np.arange(len(records))
    records["draw"][: 2 * pairs] = np.repeat(scattered(np.arange(pairs, dtype=np.uint64), 3), 2)
    records["shingles"][: 2 * pairs] = np.tile(sizes, pairs)
    records["draw"][2 * pairs :] = scattered(np.arange(others, dtype=np.uint64), 4)
    records["shingles"][2 * pairs :] = np.exp(np.random.default_rng(4).normal(5, 1.5, others)) + 1
    drawn = draw(records, 2000)
    mine = drawn[drawn["hi"] < 2 * pairs]["hi"] // np.uint64(2)
    _, counts = np.unique(mine, return_counts=True)
    assert len(counts) > 40 and (counts == 2).mean() >= least


def test_records_of_texts() -> None:
    texts = made(5, 4)
    found = sample_records(np.arange(4, dtype=np.uint64), texts[["hi", "lo", "location", "shingles"]])
    assert found["draw"].tolist() == [0, 1, 2, 3]
    assert (found["shingles"] == texts["shingles"]).all() and (found["location"] == texts["location"]).all()
