"""The promise of winnowing: equal windows share an anchor."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.substrings import anchor_kernels
from corpusmill.pipeline.dedup.substrings.anchor_kernels import MANY, Winnow
from corpusmill.pipeline.text.buffers import view
from tests.pipeline.dedup.helpers import words


def anchors(texts: list[str], k: int, w: int) -> list[int]:
    offsets, data = view(pa.array(texts, pa.large_string()))
    rows = np.arange(len(texts), dtype=np.int64)
    found, count = anchor_kernels.winnow(offsets, data, rows, anchor_kernels.classes(), k, w)
    assert count == sum(len(text.split()) for text in texts)
    assert all(value % 2 == 0 for value in found.tolist())
    return found.tolist()


@given(
    st.lists(st.sampled_from("abc"), max_size=40), st.lists(st.sampled_from("abc"), max_size=40),
    st.integers(1, 6), st.integers(1, 8), st.integers(0, 12), st.data(),
)  # fmt: skip
def test_equal_windows_share_an_anchor(
    left: list[str], right: list[str], k: int, w: int, more: int, data: st.DataObject
) -> None:
    shared = data.draw(st.lists(st.sampled_from("abcdef"), min_size=k + w - 1, max_size=k + w - 1 + more))
    first = anchors([" ".join([*left, *shared, *right, "x"])], k, w)
    second = anchors([" ".join([*right, *shared, "y", *left, "z"])], k, w)
    assert set(first) & set(second)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 6))
def test_every_window_elects_its_rightmost_least(values: list[int], w: int) -> None:
    hashes = np.array(values, np.uint64)
    last = -1
    for window in range(len(values) - w + 1):
        last = anchor_kernels.elected(hashes, window, w, last)
        some = values[window : window + w]
        assert last == window + w - 1 - some[::-1].index(min(some))


def test_shorter_than_a_window() -> None:
    assert anchors(["a b c d", "", "a b c"], 3, 3) == []
    assert len(anchors(["a b c d e"], 3, 3)) == 1


def test_density() -> None:
    """About 2 / (w + 1) anchors come on a token, of all sizes though the least are elected."""
    found = anchors([" ".join(words(random.Random(1), 20_000))], 25, 26)
    assert 0.9 < len(found) / 20_000 / (2 / 27) < 1.1
    assert 0.45 < sum(value >> 63 for value in found) / len(found) < 0.55


@pytest.mark.parametrize(
    ("tokens", "k", "w"), [(8, 8, 1), (12, 12, 1), (20, 12, 9), (50, 25, 26), (1000, 500, 501)]
)
def test_parameters(tokens: int, k: int, w: int) -> None:
    found = Winnow.of(tokens)
    assert found == (k, w) and found.tokens == tokens


@given(st.lists(st.integers(0, 20).map(lambda x: 2 * x)))
def test_distinct(values: list[int]) -> None:
    ordered = np.array(sorted(values), np.uint64)
    found = ordered[: anchor_kernels.distinct(ordered)]
    assert (found & ~MANY).tolist() == sorted(set(values))
    assert {x - 1 for x in found.tolist() if x % 2} == {x for x in values if values.count(x) > 1}


@given(st.sets(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1)))
def test_hash_set(inside: set[int], others: list[int]) -> None:
    """Whatever the lowest bit."""
    slots = anchor_kernels.hash_set(np.array(sorted(inside), np.uint64))
    shift = np.uint64(64 - (len(slots).bit_length() - 1))
    names = {value | 1 for value in inside}
    for value in [*inside, *others]:
        assert anchor_kernels.holds(slots, shift, np.uint64(value)) == (value | 1 in names)
