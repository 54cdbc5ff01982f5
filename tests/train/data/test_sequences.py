"""Chunks of a source: full, once in every epoch, found again from their blocks."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.train.data.lanes import Sequences, runs

SOURCES = st.lists(st.integers(0, 12), min_size=1, max_size=25).filter(any)


@given(SOURCES, st.integers(1, 9), st.integers(0, 2**40))
@settings(max_examples=200, deadline=None)
def test_each_cell_comes_once_in_every_epoch(per_block: list[int], size: int, seed: int) -> None:
    size = min(size, sum(per_block))
    sequences = Sequences("s", seed, size, *runs(per_block))
    assert sequences.total == sum(per_block)
    chunks = np.repeat(np.arange(int(sequences.chunks_before(size))), size)  # exactly `size` epochs
    places = np.tile(np.arange(size), len(chunks) // size)
    epoch, block, sequence = sequences.at(chunks, places)
    seen = Counter(zip(epoch.tolist(), block.tolist(), sequence.tolist(), strict=True))
    there = {(b, c) for b, count in enumerate(per_block) for c in range(count)}
    assert set(seen.values()) == {1}
    assert set(seen) == {(e, b, c) for e in range(size) for b, c in there}


@given(SOURCES, st.integers(1, 9), st.integers(0, 2**40))
@settings(max_examples=100, deadline=None)
def test_full_chunks_lie_in_one_block_and_are_found_from_it(
    per_block: list[int], size: int, seed: int
) -> None:
    size = min(size, sum(per_block))
    sequences = Sequences("s", seed, size, *runs(per_block))
    for epoch in range(3):
        low, high = int(sequences.chunks_before(epoch)), int(sequences.chunks_before(epoch + 1))
        assert (sequences.epoch_of(np.arange(low, high)) == epoch).all()
        blocks: dict[int, set[int]] = {}
        for chunk in range(low, high):
            found = sequences.at([chunk] * size, np.arange(size))
            touched = set(found[1].tolist())
            if len(touched) == 1 and (np.diff(found[2]) == 1).all() and found[2][0] % size == 0:
                blocks.setdefault(touched.pop(), set()).add(chunk)
        owner, chunks = sequences.chunks_of(np.arange(len(per_block)), epoch)
        places: dict[int, set[int]] = {}
        for o, c in zip(owner.tolist(), chunks.tolist(), strict=True):
            places.setdefault(o, set()).add(c)
        assert sum(map(len, places.values())) == sequences.full
        assert all(places[b] <= blocks.get(b, set()) for b in places)


def test_an_endless_source_of_ten_trillion_tokens_is_a_few_numbers() -> None:
    per_tar = [*[255] * 511, 97]
    sequences = Sequences("big", 1, 255, np.array([511, 1] * 40_000), np.array([255, 97] * 40_000))
    assert sequences.total == sum(per_tar) * 40_000
    numbers = np.linspace(0, 3e7, 1000).astype(np.int64)
    epoch, block, sequence = sequences.at(numbers, numbers % 255)
    assert (block < 512 * 40_000).all() and (sequence < 255).all() and epoch.max() == 1
