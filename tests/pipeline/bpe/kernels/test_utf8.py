"""Eight bytes at a time, and nothing from behind the end."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.kernels.table import key
from corpusmill.pipeline.bpe.kernels.utf8 import hash_bytes, load, pointer, same


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
