"""Runs of ASCII letters, eight bytes at a time."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.kernels.characters import run_latin
from corpusmill.pipeline.bpe.kernels.utf8 import pointer, trailing_zeros

SMALL = frozenset(b"abcdefghijklmnopqrstuvwxyz")
LETTERS = SMALL | frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@nb.njit
def ends(data: Any, at: int, stop: int, both: bool) -> Any:
    return run_latin(pointer(data), at, stop, both)


@nb.njit
def zeros(word: Any) -> Any:
    return trailing_zeros(word)


def plain(data: bytes, at: int, stop: int, kind: frozenset[int]) -> int:
    """Byte by byte, while eight bytes are left before `stop` at the start of each eight."""
    while at + 8 <= stop:
        for _ in range(8):
            if data[at] not in kind:
                return at
            at += 1
    return at


@pytest.mark.parametrize(("both", "kind"), [(False, SMALL), (True, LETTERS)])
@settings(max_examples=300)
@given(
    data=st.lists(st.one_of(st.sampled_from(sorted(LETTERS)), st.integers(0, 255)), max_size=60).map(bytes),
    at=st.integers(0, 20),
)
def test_runs_of_letters(both: bool, kind: frozenset[int], data: bytes, at: int) -> None:
    text = np.frombuffer(data + b"zzzzzzzz", np.uint8)
    at = min(at, len(data))
    assert ends(text, at, len(data), both) == plain(data, at, len(data), kind)


@pytest.mark.parametrize(("both", "kind"), [(False, SMALL), (True, LETTERS)])
def test_every_byte_at_every_place(both: bool, kind: frozenset[int]) -> None:
    for byte in range(256):
        for place in range(8):
            data = bytearray(b"zaqZbAmY" if both else b"zaqmbcay")
            data[place] = byte
            assert ends(np.frombuffer(bytes(data), np.uint8), 0, 8, both) == (8 if byte in kind else place)


def test_trailing_zeros() -> None:
    assert [zeros(np.uint64(1 << bit)) for bit in range(64)] == list(range(64))
    assert zeros(np.uint64(0)) == 64
