"""Chunks of a source: full, once in every epoch, found again from their blocks."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.train.data.lanes import Dealt
from corpusmill.train.data.sequences import Sequences, runs

SOURCES = st.lists(st.integers(0, 12), min_size=1, max_size=25).filter(any)


@given(SOURCES, st.integers(1, 9), st.integers(0, 2**40))
@settings(max_examples=200, deadline=None)
def test_each_cell_comes_once_in_every_epoch(per_block: list[int], size: int, seed: int) -> None:
    size = min(size, sum(per_block))
    sequences = Sequences("s", seed, size, *runs(per_block))
    assert sequences.total == sum(per_block)
    there = {(b, c) for b, count in enumerate(per_block) for c in range(count)}
    for epoch in range(3):
        places = np.arange(sequences.total)
        block, sequence = sequences.at(np.full_like(places, epoch), places)
        assert Counter(zip(block.tolist(), sequence.tolist(), strict=True)) == Counter(there)


@given(SOURCES, st.integers(1, 9), st.integers(0, 2**40))
@settings(max_examples=100, deadline=None)
def test_full_chunks_lie_in_one_block_and_are_found_from_it(
    per_block: list[int], size: int, seed: int
) -> None:
    size = min(size, sum(per_block))
    sequences = Sequences("s", seed, size, *runs(per_block))
    for epoch in range(3):
        blocks: dict[int, set[int]] = {}
        for chunk in range(sequences.chunks):
            found = sequences.at(np.full(size, epoch), chunk * size + np.arange(size))
            touched = set(found[0].tolist())
            if len(touched) == 1 and (np.diff(found[1]) == 1).all() and found[1][0] % size == 0:
                blocks.setdefault(touched.pop(), set()).add(chunk)
        owner, chunks = sequences.chunks_of(np.arange(len(per_block)), epoch)
        places: dict[int, set[int]] = {}
        for o, c in zip(owner.tolist(), chunks.tolist(), strict=True):
            places.setdefault(o, set()).add(c)
        assert sum(map(len, places.values())) == sequences.full
        assert all(places[b] <= blocks.get(b, set()) for b in places)


@given(st.integers(0, 60), st.integers(1, 9), st.integers(0, 60))
def test_draws_are_dealt_in_turn_and_rows_lie_lane_by_lane(count: int, lanes: int, upto: int) -> None:
    dealt, draws = Dealt(count, lanes), np.arange(count)
    assert sorted(dealt.row_of(draws).tolist()) == draws.tolist()
    assert dealt.draw_of(dealt.row_of(draws)).tolist() == draws.tolist()
    lanes_of = dealt.draw_of(draws) % lanes
    assert (np.diff(lanes_of) >= 0).all()
    upto = min(upto, count)
    assert dealt.per_lane(np.arange(lanes), upto).tolist() == [
        len(range(lane, upto, lanes)) for lane in range(lanes)
    ]


def test_a_source_of_ten_trillion_tokens_is_a_few_numbers() -> None:
    per_tar = [*[255] * 511, 97]
    sequences = Sequences("big", 1, 255, np.array([511, 1] * 40_000), np.array([255, 97] * 40_000))
    assert sequences.total == sum(per_tar) * 40_000
    places = np.linspace(0, sequences.total - 1, 1000).astype(np.int64)
    block, sequence = sequences.at(np.ones_like(places), places)
    assert (block < 512 * 40_000).all() and (sequence < 255).all()
