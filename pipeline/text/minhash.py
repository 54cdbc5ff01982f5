"""Numba kernels over Arrow buffers: texts to shingles, min-hashes, shingle sets and exact Jaccard similarities.

A shingle of n words (or characters, see `word_hashes.py`) is the polynomial sum of their 64-bit hashes modulo 2^64,
mixed: it rolls from one to the next. Its upper 32 bits are what MinHash sees; the exact check compares all 64,
so that a chance collision (one in 10^13 for a pair of documents of a thousand shingles) cannot matter. A
document with fewer words than a shingle is one shingle; one without words has none.

Min-hashes are those of `datasketch.MinHash(scheme="affine32")` over the same 32-bit shingle hashes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.word_hashes import CHUNK, FNV_BASIS, OUTSIDE, RESERVE, mix64, scan

ROLL = np.uint64(0x9E3779B97F4A7C15)  # odd: 2^64 / golden ratio
NO_HASH = np.uint32(0xFFFFFFFF)  # datasketch's value for an empty set
NO_DRAW = np.uint64(0xFFFFFFFF)
NO_CAP = 2**62  # shingles of a text that are signed: all
_FEW = 24  # values of a bucket that insertion sorts fastest


class Permutations(NamedTuple):
    """h -> a h + b modulo 2^32, or, of the preset datatrove, modulo 2^61 - 1."""

    a: npt.NDArray[np.unsignedinteger]
    b: npt.NDArray[np.unsignedinteger]

    def first(self, count: int) -> Permutations:
        """The first `count` of them: the values that they give do not depend on the others."""
        return Permutations(self.a[:count], self.b[:count])


@compiled(inline="always")
def mix32(x: Any) -> Any:
    """MurmurHash3's 32-bit finaliser: what datasketch applies before its permutations."""
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x85EBCA6B))
    x = np.uint32(x ^ (x >> np.uint32(13)))
    x = np.uint32(x * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ (x >> np.uint32(16)))


@compiled
def roll(words: Any, count: int, ngram: int, out: Any) -> int:
    """The shingles of the first `count` word hashes into `out`, which may be `words` itself; how many.

    Fewer than `ngram` words are one shingle, none is none.
    """
    if count == 0:
        return 0
    top = np.uint64(1)
    for _ in range(ngram - 1):
        top *= ROLL
    rolling = np.uint64(0)
    for i in range(min(ngram - 1, count)):
        rolling = rolling * ROLL + words[i]
    if count < ngram:
        out[0] = mix64(rolling)
        return 1
    shingles = count - ngram + 1
    for i in range(shingles):
        rolling = rolling * ROLL + words[i + ngram - 1]
        first = words[i]
        out[i] = mix64(rolling)
        rolling -= first * top
    return shingles


@compiled
def min_hash(shingles: Any, count: int, a: Any, b: Any, out: Any) -> None:
    """Lowers `out[k]` to `min(a[k] * mix32(upper half of shingle) + b[k])` modulo 2^32, over all shingles."""
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


@compiled
def sign(
    offsets: Any, data: Any, rows: Any, rule: Any, characters: bool, ngram: int, cap: int, a: Any, b: Any
) -> Any:
    """Signatures of the first `cap` shingles of the texts at `rows`; the scan of a text ends there too.

    Returns uint32[rows, permutations], the number of shingles signed (int64), of each text the least lower
    half of its shingle hashes, mixed (uint64: a min-hash that has no part in the signature, for drawing
    samples), and whether it has more shingles than `cap`.
    """
    signatures = np.full((len(rows), len(a)), NO_HASH, np.uint32)
    counts = np.zeros(len(rows), np.int64)
    draws = np.empty(len(rows), np.uint64)
    capped = np.zeros(len(rows), np.bool_)
    words = np.empty(CHUNK + ngram, np.uint64)
    shingles = np.empty(CHUNK + ngram, np.uint64)
    for k in range(len(rows)):
        i, stop = offsets[rows[k]], offsets[rows[k] + 1]
        state, word, held, total, low = OUTSIDE, FNV_BASIS, 0, 0, NO_DRAW
        while i < stop and not capped[k]:
            i, state, word, held = scan(data, i, stop, rule, characters, state, word, words, held)
            if held < ngram and (i < stop or total > 0):
                continue
            count = roll(words, held, ngram, shingles)
            if total + count > cap:
                count = cap - total
                capped[k] = True
            min_hash(shingles, count, a, b, signatures[k])
            for j in range(count):
                low = min(low, shingles[j] & NO_DRAW)
            total += count
            kept = min(held, ngram - 1)
            for j in range(kept):
                words[j] = words[held - kept + j]
            held = kept
        counts[k] = total
        draws[k] = mix64(low)
    return signatures, counts, draws, capped


@compiled
def ordered(data: Any, i: int, stop: int, rule: Any, characters: bool, ngram: int, buffer: Any) -> Any:
    """(buffer, count): all shingle hashes of one text in order, in `buffer` or a larger one."""
    state, word, count = OUTSIDE, FNV_BASIS, 0
    while i < stop:
        if count + RESERVE > len(buffer):
            larger = np.empty(2 * len(buffer), np.uint64)
            larger[:count] = buffer[:count]
            buffer = larger
        i, state, word, count = scan(data, i, stop, rule, characters, state, word, buffer, count)
    return buffer, roll(buffer, count, ngram, buffer)


@compiled
def sort_hashes(values: Any, count: int, out: Any) -> None:
    """The first `count` of `values`, which are hashes, ascending into `out`.

    Hashes lie evenly, so that one pass by their upper bits leaves them nearly sorted. Buckets that are crowded
    all the same (repeated shingles) are sorted as usual.
    """
    bits = 1
    while bits < 14 and count >> bits > 2:
        bits += 1
    down = np.uint64(64 - bits)
    ends = np.zeros((1 << bits) + 1, np.int64)
    for i in range(count):
        ends[(values[i] >> down) + np.uint64(1)] += 1
    for bucket in range(1 << bits):
        ends[bucket + 1] += ends[bucket]
    for i in range(count):
        bucket = values[i] >> down
        out[ends[bucket]] = values[i]
        ends[bucket] += 1
    start = 0
    for bucket in range(1 << bits):
        stop = ends[bucket]
        if stop - start > _FEW:
            out[start:stop] = np.sort(out[start:stop])
        else:
            for i in range(start + 1, stop):
                value = out[i]
                j = i
                while j > start and out[j - 1] > value:
                    out[j] = out[j - 1]
                    j -= 1
                out[j] = value
        start = stop


@compiled
def add_distinct(values: Any, count: int, scratch: Any, found: Any, end: int) -> Any:
    """Appends the distinct ones of `count` hashes, ascending, to `found[:end]`: (scratch, found, end), each
    grown if need be."""
    if len(scratch) < count:
        scratch = np.empty(len(values), np.uint64)
    if end + count > len(found):
        larger = np.empty(max(2 * len(found), end + count), np.uint64)
        larger[:end] = found[:end]
        found = larger
    sort_hashes(values, count, scratch)
    for i in range(count):
        if i == 0 or scratch[i] != scratch[i - 1]:
            found[end] = scratch[i]
            end += 1
    return scratch, found, end


@compiled
def band_keys(signatures: Any, bands: int, rows: int) -> Any:
    """uint64[documents, bands]: a hash of the band's number and its `rows` values, of 32 or 64 bits each."""
    keys = np.empty((len(signatures), bands), np.uint64)
    for i in range(len(signatures)):
        for band in range(bands):
            key = mix64(np.uint64(band + 1))
            for k in range(band * rows, (band + 1) * rows):
                key = mix64(key ^ np.uint64(signatures[i, k]))
            keys[i, band] = key
    return keys


@compiled
def jaccard(bounds_a: Any, sets_a: Any, bounds_b: Any, sets_b: Any, a: Any, b: Any) -> Any:
    """Exact Jaccard similarity of the sets `a[i]` of one collection and `b[i]` of another (each sorted and distinct), float64; of two empty sets: 0."""
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


@compiled
def sign_sets(bounds: Any, hashes: Any, a: Any, b: Any) -> Any:
    """uint32[sets, permutations]: signatures of shingle sets, as `shingling.shingle_sets` gives them."""
    signatures = np.full((len(bounds) - 1, len(a)), NO_HASH, np.uint32)
    for i in range(len(signatures)):
        min_hash(hashes[bounds[i] : bounds[i + 1]], bounds[i + 1] - bounds[i], a, b, signatures[i])
    return signatures
