"""Rows: every label predicted from its own document, nothing lost but the end of a block, few documents cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.train.data.fetch import BlockData
from corpusmill.train.data.pack import AT_ONCE, IGNORED, best_fit, packed, whole_block, windows

EOS = 0
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=14)


def block_of(lengths: list[int]) -> BlockData:
    """Documents of these lengths, each with tokens of its own and EOS at its end."""
    tokens = np.concatenate([[*range(100 * i + 1, 100 * i + n), EOS] for i, n in enumerate(lengths, 1)])
    return BlockData(tokens.astype(np.uint16), np.cumsum([0, *lengths[:-1]]).astype(np.int64))


@given(LENGTHS, st.integers(2, 20))
@settings(max_examples=80, deadline=None)
def test_whole_block_scores_every_token_once(lengths: list[int], length: int) -> None:
    block = block_of(lengths)
    found = whole_block(block, length, EOS)
    labels, positions = found.labels.ravel(), found.marks().positions
    assert labels[labels != IGNORED].tolist() == block.tokens.tolist()
    for i in range(len(block.tokens)):
        row, at = divmod(i, length)
        assert found.tokens[row, at] == (EOS if i in block.starts else block.tokens[i - 1])
        assert (positions[row, at] == 0) == (i in block.starts or at == 0)


@given(LENGTHS.filter(lambda n: sum(n) > 30), st.integers(2, 12))
@settings(max_examples=80, deadline=None)
def test_windows_keep_documents_apart(lengths: list[int], length: int) -> None:
    tokens = np.arange(sum(lengths), dtype=np.uint32)
    starts = np.cumsum([0, *lengths[:-1]]).astype(np.int64)
    count = (len(tokens) - 1) // length
    found = windows([(BlockData(tokens, starts), i) for i in range(count)], length)
    assert found.labels.ravel().tolist() == list(range(1, count * length + 1))
    assert (found.tokens == found.labels - 1).all()
    document = np.searchsorted(starts, found.labels, side="right")
    marks = found.marks()
    assert (np.diff(marks.documents, axis=1) == np.diff(document, axis=1)).all()
    assert (marks.documents[:, 0] == 0).all()
    for low in range(0, count, 3):  # of a part of the rows, as of all
        some = found.marks(low, min(low + 3, count))
        assert (some.positions == marks.positions[low : low + 3]).all()
        assert (some.documents == marks.documents[low : low + 3]).all()
        ends = [*some.cu_seqlens[:-1].tolist(), min(3, count - low) * length]
        assert some.cu_seqlens.tolist() == ends and some.max_seqlen == np.diff(ends).max()


@given(LENGTHS, st.integers(2, 25), st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_best_fit_places_each_token_once_and_fills_every_row(
    lengths: list[int], length: int, fewer: int
) -> None:
    block = block_of(lengths)
    rows = max((len(block.tokens) - 1) // length - fewer, 0)
    placed = best_fit(block.starts, len(block.tokens), length, rows)
    assert len(placed) == rows and all(sum(size for _, size in row) == length for row in placed)
    labelled = [t for row in placed for start, size in row for t in range(start, start + size)]
    assert len(labelled) == len(set(labelled)) == rows * length
    ends = np.append(block.starts[1:], len(block.tokens))
    for row in placed:
        for start, size in row:
            assert start + size <= ends[np.searchsorted(block.starts, start, "right") - 1]  # of one document


@given(LENGTHS, st.integers(2, 25))
@settings(max_examples=100, deadline=None)
def test_packed_rows_predict_each_token_from_its_own_document(lengths: list[int], length: int) -> None:
    block = block_of(lengths)
    rows = (len(block.tokens) - 1) // length
    placed = best_fit(block.starts, len(block.tokens), length, rows)
    found = packed([(block, row) for row in placed], length, EOS)
    marks = found.marks()
    at = 0
    for row, pieces in enumerate(placed):
        column = 0
        for number, (start, size) in enumerate(pieces):
            for i in range(size):
                token = start + i
                assert found.labels[row, column] == block.tokens[token]
                assert found.tokens[row, column] == (
                    EOS if token in block.starts else block.tokens[token - 1]
                )
                assert (marks.documents[row, column], marks.positions[row, column]) == (number, i)
                column += 1
            assert marks.cu_seqlens[at] == row * length + column - size
            at += 1
    assert marks.cu_seqlens[-1] == rows * length and len(marks.cu_seqlens) == at + 1


def test_best_fit_cuts_fewer_documents_than_windows_do() -> None:
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(5.5, 1.2, 800).astype(int) + 2, 1500)
    starts, total, length = np.cumsum([0, *lengths[:-1]]), int(lengths.sum()), 2048
    placed = best_fit(starts, total, length, (total - 1) // length)
    pieces = [piece for row in placed for piece in row]
    whole = sum(size == lengths[np.searchsorted(starts, start, "right") - 1] for start, size in pieces)
    ends = starts + lengths - 1
    uncut = sum((starts - 1) // length == (ends - 1) // length)
    assert 800 - uncut > 100 and 800 - whole < (800 - uncut) / 3


@pytest.mark.parametrize("cross", [False, True])
def test_no_rows_are_no_rows(cross: bool) -> None:
    assert windows([], 8, cross).tokens.shape == (0, 8)
    assert packed([], 8, EOS, cross).marks().cu_seqlens.tolist() == [0]


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_long_rows_are_cast_a_few_at_a_time(dtype: type[np.unsignedinteger[Any]]) -> None:
    length = AT_ONCE // 2 - 5
    tokens = np.random.default_rng(0).integers(0, 2**16, 6 * length + 1).astype(dtype)
    found = windows([(BlockData(tokens, np.zeros(1, np.int64)), at) for at in (4, 0, 5, 2, 2)], length)
    for row, at in enumerate((4, 0, 5, 2, 2)):
        assert (found.tokens[row] == tokens[at * length : (at + 1) * length]).all()
        assert (found.labels[row] == tokens[at * length + 1 : (at + 1) * length + 1]).all()
