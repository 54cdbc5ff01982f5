"""Permutations of large ranges without arrays: the image of x, computed from x, the size and a key alone.

A Feistel network over the bits of the range (Luby & Rackoff 1988), six rounds of a splitmix64 mix (Steele et al. 2014),
repeated while the result lies outside the range (cycle walking, Black & Rogaway 2002). Only integer arithmetic modulo
2^64: the same on any machine and with any version of numpy, whose own generators promise no such thing.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

ROUNDS = 6  # even, so that halves of unequal width return to their places

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def key_of(*parts: int | str) -> int:
    """A key of 64 bits; equal parts give equal keys, in any process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def keys_of(key: int, numbers: npt.ArrayLike) -> Words:
    """A key for each number, uint64 of its shape."""
    values = np.asarray(numbers).astype(np.uint64)
    return _mix(values.reshape(-1) * _GOLDEN + np.uint64(key)).reshape(values.shape)


def permute(x: npt.ArrayLike, size: npt.ArrayLike, key: npt.ArrayLike) -> Ints:
    """The image of each x of range(size); int64. `size` and `key` are one number, or one for each x."""
    return _walk(x, size, key, forward=True)


def unpermute(y: npt.ArrayLike, size: npt.ArrayLike, key: npt.ArrayLike) -> Ints:
    """The inverse of `permute`."""
    return _walk(y, size, key, forward=False)


def _walk(x: npt.ArrayLike, size: npt.ArrayLike, key: npt.ArrayLike, forward: bool) -> Ints:
    shape = np.broadcast_shapes(np.shape(x), np.shape(size), np.shape(key))
    flat = np.broadcast_to(np.asarray(x).astype(np.uint64), shape).reshape(-1).copy()
    sizes, keys = _distinct(size, shape), _distinct(key, shape)
    if flat.size > len(sizes) == len(keys) == 1:
        least, most = int(flat.min()), int(flat.max())
        if most - least + 1 < flat.size:  # some numbers come again: each is done once
            once = _walk(np.arange(least, most + 1), sizes, keys, forward)
            return once[(flat - np.uint64(least)).astype(np.int64)].reshape(shape)
    bits = np.frexp(np.maximum(sizes, np.uint64(2)) - np.uint64(1))[1].astype(np.uint64)
    wide = (bits + np.uint64(1)) >> np.uint64(1)
    narrow = bits - wide
    columns = [sizes, wide, (_ONE << wide) - _ONE, (_ONE << narrow) - _ONE]
    columns += [_mix(keys + salt) for salt in _SALTS]
    todo = np.arange(flat.size)
    now = [flat, *(np.broadcast_to(column, flat.shape) for column in columns)]
    while len(todo):
        value, limit, shift, low, high, *salt = now
        # `left` holds `narrow` bits in even rounds and `wide` ones in odd rounds.
        left, right = value >> shift, value & low
        for number in range(ROUNDS) if forward else reversed(range(ROUNDS)):
            mask = high if number % 2 == 0 else low
            if forward:
                left, right = right, (left ^ _mix(right + salt[number])) & mask
            else:
                left, right = (right ^ _mix(left + salt[number])) & mask, left
        value = (left << shift) | right
        flat[todo] = value
        outside = np.flatnonzero(value >= limit)
        todo = todo[outside]
        now = [value[outside], *(column[outside] for column in now[1:])]
    return flat.reshape(shape).astype(np.int64)


def _distinct(values: npt.ArrayLike, shape: tuple[int, ...]) -> Words:
    """One for each number, or a single one if all are equal, as they usually are: the rest then costs less."""
    column = np.asarray(values).astype(np.uint64).reshape(-1)
    if len(column) and (column == column[0]).all():
        return column[:1]
    return np.broadcast_to(column.reshape(np.shape(values)), shape).reshape(-1)


_ONE, _GOLDEN = np.uint64(1), np.uint64(0x9E3779B97F4A7C15)
_SALTS = np.arange(1, ROUNDS + 1, dtype=np.uint64) * _GOLDEN


def _mix(x: Words) -> Words:
    """splitmix64's finaliser; overwrites `x`. Products of arrays wrap without a warning."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
