"""Merging is byte-pair encoding as defined, whatever the merges."""

from __future__ import annotations

import itertools
from typing import Any

import numba as nb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.engine import make_merges
from corpusmill.pipeline.bpe.kernels.buffers import pointer
from corpusmill.pipeline.bpe.kernels.merge import Merges, merge, pointers


@nb.njit
def run(data: Any, merges: Merges, ids: Any, scratch: Any) -> Any:
    known = pointers(merges)
    return merge(
        pointer(data),
        0,
        len(data),
        known,
        pointer(ids),
        pointer(scratch[0]),
        pointer(scratch[1]),
        pointer(scratch[2]),
    )


def defined(data: bytes, merges: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """(tokens, rank of the last merge or -1): the lowest rank first, the leftmost of equal ones, one merge at a time."""
    ranks = {(left, right): (rank, made) for rank, (left, right, made) in enumerate(merges)}
    ids, last = list(data), -1
    while True:
        found = min(
            ((*ranks[pair], i) for i, pair in enumerate(itertools.pairwise(ids)) if pair in ranks),
            default=None,
        )
        if found is None:
            return ids, last
        last, made, i = found
        ids[i : i + 2] = [made]


@st.composite
def any_merges(draw: st.DrawFn, in_order: bool = False) -> list[tuple[int, int, int]]:
    """(left, right, made) by rank over a small alphabet: pairs twice, several ways to one token; `in_order`: as training
    finds them, otherwise in any order."""
    names = {bytes([byte]): byte for byte in b"abc"}
    merges: list[tuple[int, int, int]] = []
    for _ in range(draw(st.integers(0, 25))):
        left, right = draw(st.sampled_from(sorted(names))), draw(st.sampled_from(sorted(names)))
        made = names.setdefault(left + right, 256 + len(names))
        merges.append((names[left], names[right], made))
    return merges if in_order else draw(st.permutations(merges))


@settings(max_examples=300)
@given(
    merges=any_merges(),
    data=st.text("abcx", min_size=1, max_size=200).map(str.encode),
    again=st.integers(1, 6),
)
def test_merges_as_defined(merges: list[tuple[int, int, int]], data: bytes, again: int) -> None:
    table = np.array(merges, np.int32).reshape(-1, 3)
    tables = make_merges(np.arange(256, dtype=np.int32), table[:, :2], table[:, 2].copy())
    for text in (data, data * again):
        ids, scratch = np.empty(len(text), np.int32), np.empty((3, len(text)), np.int32)
        count = run(np.frombuffer(text, np.uint8), tables, ids, scratch)
        assert (ids[:count].tolist(), scratch[0, 0]) == defined(text, merges)
