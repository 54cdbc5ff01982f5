"""Hashes of bytes in Numba: XXH64 with seed 0 (Yann Collet's xxHash, format description 0.1.1), and 128-bit keys of
texts, equal exactly where their bytes are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.buffers import I64, U64, arguments
from corpusmill.pipeline.text.word_hashes import FNV_BASIS, OTHER_PRIME, byte_at, chain, mix64

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)


@compiled(inline="always")
def _left(x: Any, bits: int) -> Any:
    return x << np.uint64(bits) | x >> np.uint64(64 - bits)


@compiled(inline="always")
def _read(data: Any, i: int, size: int) -> Any:
    """`size` bytes from `data[i]`, little endian. (Unsigned places: negative ones would be looked for.)"""
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(data[np.uint64(i) + np.uint64(k)]) << np.uint64(8 * k)
    return value


@compiled(inline="always")
def _round(lane: Any, value: Any) -> Any:
    return _left(lane + value * P2, 31) * P1


@compiled
def xxh64(data: Any, start: int, stop: int) -> Any:
    """XXH64 of the bytes `data[start:stop]`, uint64."""
    i = start
    if stop - start >= 32:
        one, two, three, four = P1 + P2, P2, np.uint64(0), np.uint64(0) - P1
        while i + 32 <= stop:
            one = _round(one, _read(data, i, 8))
            two = _round(two, _read(data, i + 8, 8))
            three = _round(three, _read(data, i + 16, 8))
            four = _round(four, _read(data, i + 24, 8))
            i += 32
        h = _left(one, 1) + _left(two, 7) + _left(three, 12) + _left(four, 18)
        for lane in (one, two, three, four):
            h = (h ^ _round(np.uint64(0), lane)) * P1 + P4
    else:
        h = P5
    h += np.uint64(stop - start)
    while i + 8 <= stop:
        h = _left(h ^ _round(np.uint64(0), _read(data, i, 8)), 27) * P1 + P4
        i += 8
    if i + 4 <= stop:
        h = _left(h ^ _read(data, i, 4) * P1, 23) * P2 + P3
        i += 4
    while i < stop:
        h = _left(h ^ np.uint64(data[i]) * P5, 11) * P1
        i += 1
    h = (h ^ h >> np.uint64(33)) * P2
    h = (h ^ h >> np.uint64(29)) * P3
    return h ^ h >> np.uint64(32)


def text_keys(text: pa.Array, rows: I64) -> tuple[U64, U64]:
    """(hi, lo) uint64[rows] of the UTF-8 bytes of the texts at `rows`; a null counts as empty.

    Two hashes of different make: XXH64, and FNV-1a with another multiplier and MurmurHash3's finaliser.
    """
    hi, lo = _keys(*arguments(text, rows))
    return hi, lo


@compiled
def _keys(offsets: Any, data: Any, rows: Any) -> Any:
    halves = np.empty((2, len(rows)), np.uint64)
    for k in range(len(rows)):
        start, stop = offsets[rows[k]], offsets[rows[k] + 1]
        halves[0, k] = xxh64(data, start, stop)
        value = FNV_BASIS
        for i in range(start, stop):
            value = chain(value, byte_at(data, i), OTHER_PRIME)
        halves[1, k] = mix64(value)
    return halves[0], halves[1]
