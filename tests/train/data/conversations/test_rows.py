"""Documents in rows: each whole, in one row, and rows full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.train.data.conversations.rows import packed_whole


@given(st.lists(st.integers(1, 50), max_size=60))
def test_every_item_is_whole_in_one_row(sizes: list[int]) -> None:
    rows = packed_whole(sizes, 50)
    assert sorted(number for row in rows for number in row) == list(range(len(sizes)))
    fills = [sum(sizes[number] for number in row) for row in rows]
    assert all(0 < fill <= 50 for fill in fills)
    assert rows == packed_whole(sizes, 50)
    # No two rows could be one: the later one's items would have gone into the earlier one.
    assert all(a + b > 50 for at, a in enumerate(fills) for b in fills[at + 1 :])


def test_the_largest_first_into_the_fullest_row() -> None:
    assert packed_whole([3, 7, 5, 2, 3], 10) == [[1, 0], [2, 4, 3]]
    with pytest.raises(ValueError, match="an item of 11 is longer than a row of 10"):
        packed_whole([11], 10)
