"""Blocks of a stream of documents, however the stream comes."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.blocks import Cut, Cutter, Encoded


def cut(sizes: list[int], size: int, pieces: list[int]) -> list[Cut]:
    """Documents of so many tokens (each of two characters, the last one none), fed in pieces that begin at these rows."""
    blocks = Cutter(size, np.uint16)
    found: list[Cut] = []
    for low, high in itertools.pairwise(sorted({0, *pieces, len(sizes)})):
        mine = sizes[low:high]
        offsets = np.cumsum([0, *mine]).astype(np.int64)
        tokens = np.concatenate([np.arange(n, dtype=np.uint16) for n in mine])
        ids = np.repeat(np.arange(low, high, dtype=np.uint8), 16).reshape(-1, 16)
        chars = np.array(mine, dtype=np.int64) * 2 - 2

        def cuts_of(row: int, places, mine=mine) -> list[tuple[int, int]]:
            assert all(0 < place < mine[row] for place in places)
            return [(2 * place, 2 * place - 1) for place in places]  # as if a character lay in both

        found += blocks.feed(Encoded(tokens, offsets, ids, chars, 0, cuts_of))
    return [*found, *blocks.rest()]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(1, 12),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_blocks_are_full_and_say_what_is_in_them(sizes: list[int], size: int, pieces: list[int]) -> None:
    found = cut(sizes, size, [piece for piece in pieces if piece <= len(sizes)])
    whole = cut(sizes, size, [])
    assert [[field.tolist() for field in one[:5]] for one in found] == [
        [field.tolist() for field in one[:5]] for one in whole
    ] and all(one.targets is None for one in found)
    assert [len(one.tokens) for one in found[:-1]] == [size] * (len(found) - 1) and len(
        found[-1].tokens
    ) <= size
    place = 0
    for one in found:
        edges = [*one.starts.tolist(), len(one.tokens)]
        assert edges[0] == 0 and all(low < high for low, high in itertools.pairwise(edges))
        for row in range(len(one.ids)):
            document = int(one.ids[row, 0])
            begin = place + edges[row] - sum(sizes[:document])
            end = begin + edges[row + 1] - edges[row]
            assert one.tokens[edges[row] : edges[row + 1]].tolist() == list(range(begin, end))
            assert one.char_starts[row] == (2 * begin - 1 if begin else 0)
            assert one.char_ends[row] == (2 * end if end < sizes[document] else 2 * sizes[document] - 2)
        place += len(one.tokens)
    assert place == sum(sizes)
