"""Blocks of a stream of documents, however the stream comes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.blocks import Cut, Cutter
from corpusmill.pipeline.shard.segments import Window
from corpusmill.pipeline.shard.write import encoded
from tests.pipeline.shard.helpers import tables

# Tokens 0 to 5 stand for 1 to 3 bytes; 3 and 4 are the first and the last byte of a character; 9 ends a document.
LEADS = np.array([1, 2, 3, 1, 0, 0, 0, 0, 0, 0], dtype=np.int32)
INSIDE = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0, 0], dtype=bool)
BPE = tables(9, LEADS, INSIDE)


def cuts(documents: list[list[int]], block_tokens: int, pieces: list[int]) -> list[Cut]:
    """All blocks, the documents fed in pieces that begin at these rows."""
    cutter = Cutter(block_tokens, BPE.dtype)
    found: list[Cut] = []
    edges = sorted({0, *pieces, len(documents)})
    for low, high in itertools.pairwise(edges):
        some = [[*doc, 0] for doc in documents[low:high]]  # a free place behind each
        offsets = np.cumsum([0, *map(len, some)]).astype(np.int64)
        ids = np.array([[row % 256] * 16 for row in range(low, high)], dtype=np.uint8).reshape(-1, 16)
        elements = np.array([*itertools.chain.from_iterable(some)], dtype=np.uint16)
        found += cutter.feed(encoded(Window(ids, elements, offsets, 0), BPE))
    return [*found, *cutter.rest()]


def as_lists(found: list[Cut]) -> list[list[Any]]:
    return [[None if field is None else field.tolist() for field in cut] for cut in found]


@given(st.data())
def test_however_it_comes_the_blocks_are_the_same(data: st.DataObject) -> None:
    word = st.lists(st.sampled_from([[0], [1], [2], [3, 4]]), max_size=9).map(
        lambda parts: [*itertools.chain.from_iterable(parts)]
    )
    documents = data.draw(st.lists(word, min_size=1, max_size=12))
    size = data.draw(st.integers(2, 9))
    pieces = data.draw(st.lists(st.integers(0, len(documents)), max_size=4))
    found = cuts(documents, size, pieces)
    assert as_lists(found) == as_lists(cuts(documents, size, []))
    tokens = [token for doc in documents for token in [*doc, 9]]
    assert [t for cut in found for t in cut.tokens.tolist()] == tokens
    assert all(len(cut.tokens) == size for cut in found[:-1]) and 0 < len(found[-1].tokens) <= size
    ends: dict[int, int] = {}
    for cut in found:
        edges = [*cut.starts.tolist(), len(cut.tokens)]
        assert edges[0] == 0 and all(low < high for low, high in itertools.pairwise(edges))
        for row, low, high in zip(cut.ids[:, 0].tolist(), cut.char_starts, cut.char_ends, strict=True):
            assert low in (ends.get(row, 0), ends.get(row, 0) - 1)
            ends[row] = int(high)
    whole = [sum(int(LEADS[t]) for t in doc) for doc in documents]
    assert [ends[row] for row in range(len(documents))] == whole
