"""Eight bytes at a time, and nothing from behind the end."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.classes import run_latin
from corpusmill.pipeline.bpe.kernels.buffers import hash_bytes, load, pointer, same, trailing_zeros
from corpusmill.pipeline.bpe.kernels.table import key


@nb.njit
def _load(data: Any, at: int, size: int, stop: int) -> Any:
    return load(pointer(data), at, size, stop)


@nb.njit
def _key(data: Any, at: int, size: int, stop: int) -> Any:
    return key(pointer(data), at, size, stop), hash_bytes(pointer(data), at, size, stop)


@nb.njit
def _same(a: Any, at: int, b: Any, other: int, size: int) -> bool:
    return bool(same(pointer(a), at, pointer(b), other, size))


def test_words_are_read_up_to_the_end() -> None:
    data = np.arange(1, 41, dtype=np.uint8)
    for stop in range(1, 33):
        for at in range(stop):
            for size in range(1, min(8, stop - at) + 1):
                word = int.from_bytes(data[at : at + size].tobytes(), "little")
                assert _load(data, at, size, stop) == word == _load(data[:stop].copy(), at, size, stop)


@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=40), st.binary(max_size=9), st.binary(max_size=20))
def test_a_piece_has_one_key_wherever_it_stands(piece: bytes, before: bytes, behind: bytes) -> None:
    whole = np.frombuffer(before + piece + behind, np.uint8)
    alone = np.frombuffer(piece, np.uint8)
    at, size = len(before), len(piece)
    assert _key(whole, at, size, len(whole)) == _key(alone, 0, size, size) == _key(whole, at, size, at + size)
    assert _same(whole, at, alone, 0, size)
    for place in {0, size // 2, size - 1}:
        other = alone.copy()
        other[place] ^= 1
        assert not _same(whole, at, other, 0, size)
        assert _key(other, 0, size, size) != _key(alone, 0, size, size)


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
