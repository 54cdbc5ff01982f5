"""Numba kernels over Arrow buffers: text bytes to words, shingles, min-hashes and exact Jaccard similarities.

A word hashes to 64 bits by FNV-1a over its folded code points (see `unicode.py`), finished by MurmurHash3's
64-bit mixer. A shingle of n words is the polynomial sum of their hashes modulo 2^64, mixed again: it rolls
from one word to the next. Its upper 32 bits are what MinHash sees; the exact check compares all 64, so that a
chance collision (one in 10^13 for a pair of documents of a thousand shingles) cannot matter. A document with
fewer words than a shingle is one shingle; one without words has none.

Min-hashes are those of `datasketch.MinHash(scheme="affine32")` over the same 32-bit shingle hashes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FNV_BASIS = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)
ROLL = np.uint64(0x9E3779B97F4A7C15)  # odd: 2^64 / golden ratio
NO_HASH = np.uint32(0xFFFFFFFF)  # datasketch's value for an empty set
_FOLDED = np.uint32((1 << 21) - 1)
_SHIFT = np.uint32(21)
_LETTER, _MARK, _ALONE, _SKIP = np.uint32(1), np.uint32(2), np.uint32(3), np.uint32(4)


@njit(cache=True, nogil=True, inline="always")
def mix64(x: Any) -> Any:
    """MurmurHash3's 64-bit finaliser, a bijection."""
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@njit(cache=True, nogil=True, inline="always")
def mix32(x: Any) -> Any:
    """MurmurHash3's 32-bit finaliser: what datasketch applies before its permutations."""
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x85EBCA6B))
    x = np.uint32(x ^ (x >> np.uint32(13)))
    x = np.uint32(x * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ (x >> np.uint32(16)))


@njit(cache=True, nogil=True)
def _words(data: Any, start: int, stop: int, table: Any, out: Any) -> int:
    """Hashes of the words of UTF-8 `data[start:stop]` into `out`; how many."""
    count = 0
    state = 0  # 0 between words, 1 in a word, 2 in a word of one unspaced character
    word = FNV_BASIS
    i = start
    while i < stop:
        byte = data[i]
        if byte < 0x80:
            entry = table[byte]
            i += 1
        else:
            point = 0
            if byte < 0xE0 and i + 1 < stop:
                point = ((byte & 0x1F) << 6) | (data[i + 1] & 0x3F)
                i += 2
            elif byte < 0xF0 and i + 2 < stop:
                point = ((byte & 0x0F) << 12) | ((data[i + 1] & 0x3F) << 6) | (data[i + 2] & 0x3F)
                i += 3
            elif i + 3 < stop:
                point = (
                    ((byte & 0x07) << 18) | ((data[i + 1] & 0x3F) << 12)
                    | ((data[i + 2] & 0x3F) << 6) | (data[i + 3] & 0x3F)
                )  # fmt: skip
                i += 4
            else:
                i = stop
            entry = table[point] if point < 0x110000 else np.uint32(0)
        kind = entry >> _SHIFT
        if kind == _LETTER:
            if state == 2:
                out[count] = mix64(word)
                count += 1
                word = FNV_BASIS
            word = (word ^ np.uint64(entry & _FOLDED)) * FNV_PRIME
            state = 1
        elif kind == _SKIP:
            continue
        elif kind == _MARK and state != 0:
            word = (word ^ np.uint64(entry & _FOLDED)) * FNV_PRIME
        else:
            if state != 0:
                out[count] = mix64(word)
                count += 1
                word = FNV_BASIS
                state = 0
            if kind == _ALONE:
                word = (word ^ np.uint64(entry & _FOLDED)) * FNV_PRIME
                state = 2
    if state != 0:
        out[count] = mix64(word)
        count += 1
    return count


@njit(cache=True, nogil=True)
def _roll(words: Any, count: int, ngram: int) -> int:
    """Turns word hashes into shingle hashes in place; how many."""
    if count == 0:
        return 0
    top = np.uint64(1)
    for _ in range(ngram - 1):
        top *= ROLL
    rolling = np.uint64(0)
    for i in range(min(ngram - 1, count)):
        rolling = rolling * ROLL + words[i]
    if count < ngram:
        words[0] = mix64(rolling)
        return 1
    shingles = count - ngram + 1
    for i in range(shingles):
        rolling = rolling * ROLL + words[i + ngram - 1]
        first = words[i]
        words[i] = mix64(rolling)
        rolling -= first * top
    return shingles


@njit(cache=True, nogil=True)
def _buffer(offsets: Any) -> Any:
    """Room for the words of the longest text: two words need a byte between them, or three bytes each."""
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    return np.empty(longest // 2 + 2, np.uint64)


@njit(cache=True, nogil=True)
def min_hash(shingles: Any, count: int, a: Any, b: Any, out: Any) -> None:
    """`out[k] = min(a[k] * mix32(upper half of shingle) + b[k])` modulo 2^32, over all shingles."""
    out[:] = NO_HASH
    # Eight shingles a round: each permutation is loaded once for all of them, and the loop over k is SIMD.
    for i in range(0, count, 8):
        h0 = mix32(np.uint32(shingles[i] >> np.uint64(32)))
        h1 = mix32(np.uint32(shingles[min(i + 1, count - 1)] >> np.uint64(32)))
        h2 = mix32(np.uint32(shingles[min(i + 2, count - 1)] >> np.uint64(32)))
        h3 = mix32(np.uint32(shingles[min(i + 3, count - 1)] >> np.uint64(32)))
        h4 = mix32(np.uint32(shingles[min(i + 4, count - 1)] >> np.uint64(32)))
        h5 = mix32(np.uint32(shingles[min(i + 5, count - 1)] >> np.uint64(32)))
        h6 = mix32(np.uint32(shingles[min(i + 6, count - 1)] >> np.uint64(32)))
        h7 = mix32(np.uint32(shingles[min(i + 7, count - 1)] >> np.uint64(32)))
        for k in range(len(a)):
            low = min(np.uint32(a[k] * h0 + b[k]), np.uint32(a[k] * h1 + b[k]))
            low = min(low, min(np.uint32(a[k] * h2 + b[k]), np.uint32(a[k] * h3 + b[k])))
            low = min(low, min(np.uint32(a[k] * h4 + b[k]), np.uint32(a[k] * h5 + b[k])))
            low = min(low, min(np.uint32(a[k] * h6 + b[k]), np.uint32(a[k] * h7 + b[k])))
            out[k] = min(out[k], low)


@njit(cache=True, nogil=True)
def sign(offsets: Any, data: Any, rows: Any, table: Any, ngram: int, a: Any, b: Any) -> Any:
    """Signatures of the texts at `rows`.

    Returns uint32[rows, permutations], the number of shingles of each text (int64), and of each the least
    lower half of its shingle hashes, mixed (uint64): a min-hash that the signature knows nothing of, for
    drawing samples.
    """
    signatures = np.empty((len(rows), len(a)), np.uint32)
    counts = np.empty(len(rows), np.int64)
    draws = np.empty(len(rows), np.uint64)
    buffer = _buffer(offsets)
    for i in range(len(rows)):
        row = rows[i]
        count = _roll(buffer, _words(data, offsets[row], offsets[row + 1], table, buffer), ngram)
        min_hash(buffer, count, a, b, signatures[i])
        counts[i] = count
        low = NO_HASH
        for j in range(count):
            low = min(low, np.uint32(buffer[j]))
        draws[i] = mix64(np.uint64(low))
    return signatures, counts, draws


@njit(cache=True, nogil=True)
def sets(offsets: Any, data: Any, rows: Any, table: Any, ngram: int) -> Any:
    """Sorted sets of 64-bit shingle hashes of the texts at `rows`: (int64[rows + 1] bounds,
    uint64[bounds[-1]])."""
    total = 0
    for row in rows:
        total += (offsets[row + 1] - offsets[row]) // 2 + 2
    found = np.empty(total, np.uint64)
    bounds = np.zeros(len(rows) + 1, np.int64)
    buffer = _buffer(offsets)
    end = 0
    for i in range(len(rows)):
        row = rows[i]
        count = _roll(buffer, _words(data, offsets[row], offsets[row + 1], table, buffer), ngram)
        ordered = np.sort(buffer[:count])
        for j in range(count):
            if j == 0 or ordered[j] != ordered[j - 1]:
                found[end] = ordered[j]
                end += 1
        bounds[i + 1] = end
    return bounds, found[:end].copy()


@njit(cache=True, nogil=True)
def band_keys(signatures: Any, bands: int, rows: int) -> Any:
    """uint64[documents, bands]: a hash of the band's number and its `rows` values."""
    keys = np.empty((len(signatures), bands), np.uint64)
    for i in range(len(signatures)):
        for band in range(bands):
            key = mix64(np.uint64(band + 1))
            for k in range(band * rows, (band + 1) * rows):
                key = mix64(key ^ np.uint64(signatures[i, k]))
            keys[i, band] = key
    return keys


@njit(cache=True, nogil=True)
def jaccard(bounds_a: Any, sets_a: Any, bounds_b: Any, sets_b: Any, a: Any, b: Any) -> Any:
    """Exact Jaccard similarity of the sets `a[i]` of one collection and `b[i]` of another (each sorted and
    distinct, as `sets` gives them), float64; of two empty sets: 0."""
    result = np.zeros(len(a), np.float64)
    for pair in range(len(a)):
        i, i_end = bounds_a[a[pair]], bounds_a[a[pair] + 1]
        j, j_end = bounds_b[b[pair]], bounds_b[b[pair] + 1]
        size = (i_end - i) + (j_end - j)
        shared = 0
        while i < i_end and j < j_end:
            x, y = sets_a[i], sets_b[j]
            shared += x == y
            i += x <= y
            j += y <= x
        if size:
            result[pair] = shared / (size - shared)
    return result


@njit(cache=True, nogil=True)
def sign_sets(bounds: Any, hashes: Any, a: Any, b: Any) -> Any:
    """uint32[sets, permutations]: signatures of shingle sets, as `sets` gives them."""
    signatures = np.empty((len(bounds) - 1, len(a)), np.uint32)
    for i in range(len(signatures)):
        min_hash(hashes[bounds[i] : bounds[i + 1]], bounds[i + 1] - bounds[i], a, b, signatures[i])
    return signatures
