"""SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash of short messages, 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled


@compiled(inline="always")
def _turn(word: Any, by: int) -> Any:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@compiled
def _rounds(v0: Any, v1: Any, v2: Any, v3: Any, count: int) -> Any:
    for _ in range(count):
        v0 += v1
        v1 = _turn(v1, 13) ^ v0
        v0 = _turn(v0, 32)
        v2 += v3
        v3 = _turn(v3, 16) ^ v2
        v0 += v3
        v3 = _turn(v3, 21) ^ v0
        v2 += v1
        v1 = _turn(v1, 17) ^ v2
        v2 = _turn(v2, 32)
    return v0, v1, v2, v3


@compiled
def siphash(message: Any, start: int, end: int, key: Any) -> Any:
    """The hash of bytes `start` to `end` of `message` (uint8). `key`: uint64[2]."""
    v0 = np.uint64(0x736F6D6570736575) ^ key[0]
    v1 = np.uint64(0x646F72616E646F6D) ^ key[1]
    v2 = np.uint64(0x6C7967656E657261) ^ key[0]
    v3 = np.uint64(0x7465646279746573) ^ key[1]
    size = end - start
    whole = start + (size & ~7)
    word = np.uint64(0)
    for i in range(start, whole, 8):
        word = np.uint64(0)
        for j in range(8):
            word |= np.uint64(message[i + j]) << np.uint64(8 * j)
        v3 ^= word
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 2)
        v0 ^= word
    word = np.uint64(size & 255) << np.uint64(56)
    for i in range(whole, end):
        word |= np.uint64(message[i]) << np.uint64(8 * (i - whole))
    v3 ^= word
    v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 2)
    v0 ^= word
    v2 ^= np.uint64(0xFF)
    v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 4)
    return v0 ^ v1 ^ v2 ^ v3


@compiled
def hash_all(messages: Any, offsets: Any, key: Any, out: Any) -> None:
    """out[i]: the hash of `messages[offsets[i]:offsets[i + 1]]`."""
    for i in range(len(out)):
        out[i] = siphash(messages, offsets[i], offsets[i + 1], key)
