"""The preset `datatrove`: signatures equal, value for value, to `MinhashDedupSignature` of datatrove 0.10.1 at its
defaults, for the same words: 5-grams, 14 buckets x 8 hashes, seed 1, XXH64, 64 bits.

The text is simplified as there (`datatrove_simplify.py`) and cut into words at spaces; a shingle is the XXH64 of n words
joined by spaces; a permutation is (a x + b) modulo 2^61 - 1, in uint64 that wraps before the modulus.

What differs. datatrove cuts the simplified text with spaCy's tokenizer, which takes some words apart: "cannot",
"gonna", "dont", "id" and "im", numbers from units ("0km"), symbols from words ("€0"). Of 3,340 English documents
(speeches, a novel, abstracts, news, questions and answers) 20 % hold such a word, from 3 % of abstracts to 65 % of
rewritten news; the shingle sets of all of them agree to a mean Jaccard of 0.96 to 0.998 by source. `sign_words`
takes the words themselves: of datatrove's own words it gives datatrove's signatures. A document of fewer than n
words is one shingle here; datatrove gives it none, so that there it is never a duplicate.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.buffers import I64, U64, arguments, view
from corpusmill.pipeline.text.byte_hashes import xxh64
from corpusmill.pipeline.text.datatrove_simplify import simple, simplify
from corpusmill.pipeline.text.minhash import NO_CAP, Permutations
from corpusmill.pipeline.text.word_hashes import CHUNK, mix64

PRIME = np.uint64((1 << 61) - 1)
NO_HASH = np.uint64(0xFFFFFFFFFFFFFFFF)  # no value of a permutation: what a text without words has
BYTES = 1 << 15  # of simplified text held at a time, unless a shingle is longer
_LOW = np.uint64(61)


@lru_cache(maxsize=8)
def permutations(num_perm: int, seed: int) -> Permutations:
    """h -> (a h + b) modulo 2^61 - 1: those of datatrove, uint64[num_perm] each: it draws b after all of a."""
    generator = np.random.RandomState(seed)
    a = generator.randint(1, PRIME, dtype=np.uint64, size=(1, num_perm))
    b = generator.randint(0, PRIME, dtype=np.uint64, size=(1, num_perm))
    return Permutations(a[0], b[0])


@compiled(inline="always")
def _permuted(a: Any, x: Any, b: Any) -> Any:
    value = a * x + b
    value = (value & PRIME) + (value >> _LOW)
    return value - PRIME if value >= PRIME else value


@compiled
def min_hash(hashes: Any, count: int, a: Any, b: Any, out: Any) -> None:
    """Lowers `out[k]` to `min((a[k] * hash + b[k]) mod 2^61 - 1)` over the first `count` hashes."""
    for i in range(0, count, 4):
        h0, h1 = hashes[i], hashes[min(i + 1, count - 1)]
        h2, h3 = hashes[min(i + 2, count - 1)], hashes[min(i + 3, count - 1)]
        for k in range(len(a)):
            low = min(_permuted(a[k], h0, b[k]), _permuted(a[k], h1, b[k]))
            low = min(low, min(_permuted(a[k], h2, b[k]), _permuted(a[k], h3, b[k])))
            out[k] = min(out[k], low)


@compiled
def _windows(text: Any, begin: int, stop: int, ngram: int, starts: Any, out: Any) -> Any:
    """XXH64 of each run of `ngram` words in `text[begin:stop]`, words one space apart, until `out` is full:
    (how many, where the first word of the next run begins)."""
    count = words = 0
    i = begin
    while i < stop and count < len(out):
        starts[words % ngram] = i
        words += 1
        while i < stop and text[i] != 0x20:
            i += 1
        if words >= ngram:
            first = starts[words % ngram]
            out[count] = xxh64(text, first, i)
            count += 1
            begin = starts[(words + 1) % ngram] if ngram > 1 else i + 1
        i += 1
    return count, begin


# Where a text stands: bytes read; bytes simplified; the state of `simplify`; the first word that the next
# shingle needs; the end of the last whole word; shingles so far.
_AT, _END, _CASED, _RUN, _BEGIN, _WHOLE, _TOTAL = range(7)


@compiled
def _next(data: Any, stop: int, table: Any, ngram: int, at: Any, starts: Any, text: Any, out: Any) -> Any:
    """The next shingle hashes of a text: (how many, `text` or a larger one); 0 at its end."""
    while True:
        if at[_BEGIN] < at[_WHOLE]:
            count, at[_BEGIN] = _windows(text, at[_BEGIN], at[_WHOLE], ngram, starts, out)
            if count:
                at[_TOTAL] += count
                return count, text
        if at[_AT] >= stop:
            if at[_TOTAL] or at[_BEGIN] >= at[_WHOLE]:
                return 0, text
            out[0] = xxh64(text, at[_BEGIN], at[_WHOLE])  # fewer words than a shingle
            at[_TOTAL] = 1
            return 1, text
        begin, held = at[_BEGIN], at[_END] - at[_BEGIN]
        if 2 * held > len(text):
            larger = np.empty(2 * len(text), np.uint8)
            larger[:held] = text[begin : begin + held]
            text = larger
        else:
            for i in range(held):
                text[i] = text[begin + i]
        run = at[_RUN] - begin if at[_RUN] >= 0 else -1
        at[_AT], cased, at[_RUN], end = simplify(data, at[_AT], stop, table, at[_CASED] != 0, run, text, held)
        at[_CASED] = 1 if cased else 0
        if at[_AT] >= stop and end > 0 and text[end - 1] == 0x20:
            end -= 1
        whole = end
        if at[_AT] < stop:
            while whole > 0 and text[whole - 1] != 0x20:
                whole -= 1
            whole = max(whole - 1, 0)
        at[_BEGIN], at[_WHOLE], at[_END] = 0, whole, end


@compiled
def _next_given(data: Any, stop: int, ngram: int, at: Any, starts: Any, out: Any) -> int:
    """As `_next`, of words one space apart."""
    count = 0
    if at[_BEGIN] < stop:
        begin = at[_BEGIN]
        count, at[_BEGIN] = _windows(data, begin, stop, ngram, starts, out)
        if count == 0 and at[_TOTAL] == 0:
            out[0] = xxh64(data, begin, stop)
            count = 1
        at[_TOTAL] += count
    return count


@compiled(inline="always")
def _start(at: Any, offset: int) -> None:
    at[:] = 0
    at[_AT], at[_RUN] = offset, -1


@compiled
def _sign(
    offsets: Any, data: Any, rows: Any, table: Any, given: bool, ngram: int, cap: int, a: Any, b: Any
) -> Any:
    """As `minhash.sign`; `given`: the texts are words, one space apart."""
    signatures = np.full((len(rows), len(a)), NO_HASH, np.uint64)
    counts = np.zeros(len(rows), np.int64)
    draws = np.full(len(rows), NO_HASH, np.uint64)
    capped = np.zeros(len(rows), np.bool_)
    starts, at = np.empty(ngram, np.int64), np.empty(7, np.int64)
    text, out = np.empty(BYTES, np.uint8), np.empty(CHUNK, np.uint64)
    for k in range(len(rows)):
        start, stop = offsets[rows[k]], offsets[rows[k] + 1]
        _start(at, start)
        if given:
            at[_BEGIN] = start
        while not capped[k]:
            if given:
                count = _next_given(data, stop, ngram, at, starts, out)
            else:
                count, text = _next(data, stop, table, ngram, at, starts, text, out)
            if count == 0:
                break
            if counts[k] + count > cap:
                count = cap - counts[k]
                capped[k] = True
            min_hash(out, count, a, b, signatures[k])
            for i in range(count):
                draws[k] = min(draws[k], mix64(out[i]))
            counts[k] += count
    return signatures, counts, draws, capped


@compiled
def ordered(data: Any, start: int, stop: int, table: Any, ngram: int, buffer: Any) -> Any:
    """(buffer, count): all shingle hashes of one text in order, in `buffer` or a larger one."""
    starts, at = np.empty(ngram, np.int64), np.empty(7, np.int64)
    text, out = np.empty(BYTES, np.uint8), np.empty(CHUNK, np.uint64)
    _start(at, start)
    total = 0
    while True:
        count, text = _next(data, stop, table, ngram, at, starts, text, out)
        if count == 0:
            return buffer, total
        if total + count > len(buffer):
            larger = np.empty(2 * (total + count), np.uint64)
            larger[:total] = buffer[:total]
            buffer = larger
        buffer[total : total + count] = out[:count]
        total += count


@compiled
def sign_sets(bounds: Any, hashes: Any, a: Any, b: Any) -> Any:
    """uint64[sets, permutations]: signatures of shingle sets, as `shingling.shingle_sets` gives them."""
    signatures = np.full((len(bounds) - 1, len(a)), NO_HASH, np.uint64)
    for i in range(len(signatures)):
        min_hash(hashes[bounds[i] : bounds[i + 1]], bounds[i + 1] - bounds[i], a, b, signatures[i])
    return signatures


def sign(
    text: pa.Array, rows: I64, ngram: int, hashes: Permutations, cap: int = NO_CAP
) -> tuple[U64, I64, U64, npt.NDArray[np.bool_]]:
    """Of the texts at `rows`: (signatures uint64[rows, permutations], shingle counts, sampling draws, whether
    there are more than `cap` shingles, the rest of which is not signed and not counted)."""
    return _signed(text, rows, False, ngram, hashes, cap)


def sign_words(words: pa.Array, ngram: int, hashes: Permutations) -> U64:
    """uint64[n, permutations] of documents given as their words: a list of strings each, or one string of words
    with one space between two. The words are taken as they are."""
    if pa.types.is_list(words.type) or pa.types.is_large_list(words.type):
        words = pc.binary_join(words, " ")
    rows = np.arange(len(words), dtype=np.int64)
    return _signed(words, rows, True, ngram, hashes, NO_CAP)[0]


def _signed(
    text: pa.Array, rows: I64, given: bool, ngram: int, hashes: Permutations, cap: int
) -> tuple[U64, I64, U64, npt.NDArray[np.bool_]]:
    signatures, counts, draws, capped = _sign(*arguments(text, rows), simple(), given, ngram, cap, *hashes)
    return signatures, counts, draws, capped


def simplified(text: pa.Array) -> pa.Array:
    """datatrove's `simplify_text` of each text, but for spaces that it leaves at places of dropped marks
    (large_string)."""
    offsets, data = view(text)
    ends, found = _simplified(offsets, data, simple())
    return pa.Array.from_buffers(
        pa.large_string(), len(text), [None, pa.py_buffer(ends), pa.py_buffer(found)]
    )


@compiled
def _simplified(offsets: Any, data: Any, table: Any) -> Any:
    ends = np.zeros(len(offsets), np.int64)
    found = np.empty(3 * len(data) + 64 * len(offsets), np.uint8)  # a syllable of 3 bytes becomes 9
    size = 0
    for k in range(len(offsets) - 1):
        text = found[size:]
        _, _, _, end = simplify(data, offsets[k], offsets[k + 1], table, False, -1, text, 0)
        size += end - (1 if end > 0 and text[end - 1] == 0x20 else 0)
        ends[k + 1] = size
    return ends, found[:size].copy()
