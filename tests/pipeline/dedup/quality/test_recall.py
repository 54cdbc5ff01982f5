"""All pairs of a sample: the same as comparing plain sets, in bounded memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.quality import recall
from corpusmill.pipeline.dedup.quality.recall import SAMPLE, fitting, near_pairs, scattered, strata

Sets = list[set[int]]
Found = dict[tuple[int, int], float]


def expected(sets: Sets) -> Found:
    found = {}
    for (i, a), (j, b) in itertools.combinations(enumerate(sets), 2):
        if a | b and len(a & b) / len(a | b) >= 0.5:
            found[i, j] = len(a & b) / len(a | b)
    return found


def actual(sets: Sets) -> Found:
    bounds = np.r_[0, np.cumsum([len(one) for one in sets])].astype(np.int64)
    hashes = np.array([h for one in sets for h in sorted(one)], np.uint64)
    pairs = [pair for block in near_pairs(bounds, hashes) for pair in block.tolist()]
    assert [pair[:2] for pair in pairs] == sorted(pair[:2] for pair in pairs)
    return {(a, b): jaccard for a, b, jaccard, _ in pairs}


@given(st.lists(st.sets(st.integers(0, 12), max_size=10), max_size=12), st.integers(1, 40))
def test_pairs_are_those_of_plain_sets(sets: Sets, cells: int) -> None:
    """Whatever the size of a block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "CELLS", cells)
        assert actual(sets) == expected(sets)


def test_a_template_in_every_text_costs_one_list() -> None:
    """A thousand hashes of all texts: counted once with their weight, not once each."""
    template = set(range(1000))
    sets = [template | {10_000 + i * 100 + k for k in range(50 + i)} for i in range(100)]
    assert actual(sets) == expected(sets)
    owner = np.repeat(np.arange(100), [len(one) for one in sets])
    hashes = np.array([h for one in sets for h in sorted(one)], np.uint64)
    starts, owners, weights = recall._lists(hashes, owner)
    # Of a text, what is its own is no list; the later texts' own overlap with the next one's.
    assert weights.max() == 1000 and len(owners) == starts[-1] < 100 + 100 * 400


def test_what_does_not_fit_is_left_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts lose, short ones stay; those with the least draws stay."""
    monkeypatch.setattr(recall, "HASHES", 200_000)
    sample = np.zeros(1010, SAMPLE)
    sample["hi"] = sample["location"] = np.arange(len(sample))
    sample["draw"] = scattered(np.arange(len(sample), dtype=np.uint64), 9)
    sample["shingles"] = 50
    sample["shingles"][1000:] = 20_000
    sizes = sample["shingles"].copy()
    fits = fitting(sample, sizes)
    assert fits[:1000].all() and 1 <= fits[1000:].sum() < 8 and sizes[fits].sum() <= 200_000
    stratum = strata(sample["draw"], sample["shingles"])
    for one in np.unique(stratum[1000:]):
        mine = np.flatnonzero(stratum == one)
        kept = sample["draw"][mine[fits[mine]]]
        assert len(kept) == 0 or kept.max() < sample["draw"][mine[~fits[mine]]].min(initial=2**64 - 1)
