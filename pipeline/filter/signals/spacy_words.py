"""Words as datatrove splits English: spaCy's blank `en` tokenizer (`spacy/tokenizer.pyx`, 3.8), without spaCy.

White space parts chunks. From a chunk, prefixes and suffixes are cut one by one until what is left is a known
word (`contractions.py`) or has neither; a URL stays whole; anything else is parted at infixes. Neighbours that
make up a known word are joined again at the end. `tokens` counts on them what datatrove's Gopher rules look at.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.contractions import PIECES, SIZES, find, known_units, known_words
from corpusmill.pipeline.filter.signals.spacy_affixes import has_affix, infix_at, is_url, prefix_of, suffix_of
from corpusmill.pipeline.filter.signals.white_words import stop_word
from corpusmill.pipeline.filter.text.view import Array, TextView, once
from corpusmill.pipeline.filter.text.words import hash_of
from corpusmill.pipeline.text.unicode_tables import ALPHA, SPACE, SYMBOL, tool_table
from corpusmill.pipeline.text.utf8 import decode

_NEIGHBOURS = 8  # a known word is made up of at most so many words of a chunk


@compiled
def _inner(data: Any, a: int, b: int, table: Any, starts: Any, ends: Any, n: int) -> int:
    """Words of [a, b) without affixes: parted at infixes, or whole if it is a URL."""
    start, i, dotted, found = a, a, False, False
    first = n
    while i < b:
        size = 0 if 97 <= data[i] | 32 <= 122 else infix_at(data, a, i, b, table)
        if size == 0:
            dotted = dotted or data[i] == 46
            i += decode(data, i)[1]
            continue
        if i > a:
            found = True
            if i > start:
                starts[n], ends[n] = start, i
                n += 1
            starts[n], ends[n] = i, i + size
            n += 1
            start = i + size
        dotted = dotted or data[i] == 46
        i += size
    if found and dotted and is_url(data, a, b, table):
        n, start = first, a
    if start < b:
        starts[n], ends[n] = start, b
        n += 1
    return n


@compiled
def _chunk(
    data: Any, a: int, b: int, table: Any, known: Any, units: Any, starts: Any, ends: Any, n: int
) -> int:
    """Words of a chunk [a, b) without white space. Suffixes wait at the far end of `starts` and `ends`, which
    therefore need a place for every byte."""
    waiting = 0
    capacity = len(starts)
    slot = find(data, a, b, known)
    while a < b and slot < 0:
        prefix = prefix_of(data, a, b, table)
        if prefix and a + prefix < b:
            slot = find(data, a + prefix, b, known)
            if slot >= 0:
                starts[n], ends[n] = a, a + prefix
                n, a = n + 1, a + prefix
                break
        suffix = suffix_of(data, a + prefix, b, table, units)
        if suffix:
            waiting += 1
            starts[capacity - waiting], ends[capacity - waiting] = b - suffix, b
            slot = find(data, a, b - suffix, known) if b - suffix > a else -1
            if slot >= 0:
                b -= suffix
                break
        if prefix:
            starts[n], ends[n] = a, a + prefix
            n += 1
        if prefix == 0 and suffix == 0:
            break
        a, b = a + prefix, b - suffix
        if prefix and suffix and a < b:  # what is left by one of them has been looked for
            slot = find(data, a, b, known)
    if a < b:
        if slot >= 0:
            for piece in range(np.int64(known[slot, PIECES])):
                starts[n], ends[n] = a, a + np.int64(known[slot, SIZES + piece])
                n, a = n + 1, ends[n]
        else:
            n = _inner(data, a, b, table, starts, ends, n)
    for k in range(waiting):
        starts[n], ends[n] = starts[capacity - waiting + k], ends[capacity - waiting + k]
        n += 1
    return n


@compiled
def _joined(data: Any, table: Any, known: Any, units: Any, starts: Any, ends: Any, i: int, count: int) -> int:
    """Slot of the known word with an affix that the `count` words from `i` make up, -1 if they make up none."""
    slot = find(data, starts[i], ends[i + count - 1], known)
    if slot < 0 or np.int64(known[slot, PIECES]) > count:
        return -1
    return slot if has_affix(data, starts[i], ends[i + count - 1], table, units) else -1


@compiled
def _rejoin(data: Any, table: Any, known: Any, units: Any, starts: Any, ends: Any, first: int, n: int) -> int:
    """Put neighbours of the words [first, n) of one chunk together where they make up a known word.

    The longest go first, then those further left; one that begins or ends in a word of another one found before
    is left, whether that was taken or not.
    """
    most = 0
    for count in range(min(n - first, _NEIGHBOURS), 1, -1):
        for i in range(first, n - count + 1):
            slot = _joined(data, table, known, units, starts, ends, i, count)
            if slot >= 0:
                most = count
                break
        if most:
            break
    if most == 0:
        return n
    seen, taken = np.zeros(n - first, np.bool_), np.full(n - first, -1, np.int64)
    counts = np.ones(n - first, np.int64)
    for count in range(most, 1, -1):
        for i in range(first, n - count + 1):
            slot = _joined(data, table, known, units, starts, ends, i, count)
            if slot < 0:
                continue
            if not seen[i - first] and not seen[i + count - 1 - first]:
                taken[i - first], counts[i - first] = slot, count
            seen[i - first : i + count - first] = True
    i = kept = first
    while i < n:
        slot, count, at = taken[i - first], counts[i - first], starts[i]
        if slot < 0:
            starts[kept], ends[kept] = at, ends[i]
            kept += 1
        else:
            for piece in range(np.int64(known[slot, PIECES])):
                starts[kept], ends[kept] = at, at + np.int64(known[slot, SIZES + piece])
                at = ends[kept]
                kept += 1
        i += count
    return kept


@compiled
def words_of(
    data: Any, first: int, last: int, table: Any, known: Any, units: Any, starts: Any, ends: Any, n: int
) -> int:
    """Append the words of [first, last) to `starts` and `ends` from place `n`; the next free place.

    Both need space for one word per byte of [first, last) beyond `n`.
    """
    i = chunk = first
    letters = True  # of ASCII, all of the chunk: nothing is cut off or parted
    while i <= last:
        size, space = 1, True  # the end parts words too
        if i < last:
            point, size = decode(data, i)
            space = table[point] & SPACE != 0
            letters &= space or 97 <= point | 32 <= 122
        if space:
            if chunk < i:
                begun = n
                if letters and find(data, chunk, i, known) < 0:
                    starts[n], ends[n] = chunk, i
                    n += 1
                else:
                    n = _chunk(data, chunk, i, table, known, units, starts, ends, n)
                if n > begun + 1:
                    n = _rejoin(data, table, known, units, starts, ends, begun, n)
            chunk, letters = i + size, True
        i += size
    return n


# Columns of `counts`.
WORDS: Final = 0  # not made of symbols alone
WORD_CHARS: Final = 1  # characters of those
ALPHA_WORDS: Final = 2  # with a letter, of all
STOPS: Final = 3  # bit k: stop word k occurs
COUNTS: Final = 4

_BASE = np.uint64(0x9E3779B97F4A7C15)


class Tokens(NamedTuple):
    """Words of D documents: `offsets` int64[D + 1], `chars`, `hashes` of each; `joins` and `powers` as in
    `repetition.walked_duplicates`; `counts` int64[D, COUNTS]."""

    offsets: npt.NDArray[np.int64]
    chars: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]
    joins: npt.NDArray[np.uint64]
    powers: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int64]


@once
def tokens(view: TextView) -> Tokens:
    """The words of a view."""
    offsets, starts, ends = _parted(view.data, view.offsets)
    found, counts = int(offsets[-1]), np.zeros((len(view), COUNTS), np.int64)
    chars, hashes = np.empty(found, np.int32), np.empty(found, np.uint64)
    joins, powers = np.empty(found, np.uint64), np.empty(found, np.uint64)
    _describe(view.data, tool_table(), starts, ends, offsets, chars, hashes, joins, powers, counts)
    return Tokens(offsets, chars, hashes, joins, powers, counts)


def _parted(data: Array, documents: Array) -> tuple[Array, Array, Array]:
    """(int64[D + 1] words of each document; their first bytes and ends, with space for one per byte)."""
    size = int(documents[-1] - documents[0]) + 1
    offsets, starts, ends = (
        np.zeros(len(documents), np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    _split(data, documents, tool_table(), known_words(), known_units(), starts, ends, offsets)
    return offsets, starts, ends


def split(text: str) -> list[str]:
    """The words of one text as strings: to compare with spaCy's, not for a batch."""
    raw = text.encode()
    (_, n), starts, ends = _parted(np.frombuffer(raw, np.uint8), np.array([0, len(raw)]))
    return [raw[a:b].decode() for a, b in zip(starts[:n], ends[:n], strict=True)]


@compiled
def _split(
    data: Any, documents: Any, table: Any, known: Any, units: Any, starts: Any, ends: Any, offsets: Any
) -> None:
    for d in range(len(documents) - 1):
        first, last = documents[d], documents[d + 1]
        offsets[d + 1] = words_of(data, first, last, table, known, units, starts, ends, offsets[d])


@compiled
def _describe(
    data: Any, table: Any, starts: Any, ends: Any, offsets: Any, chars: Any, hashes: Any, joins: Any,
    powers: Any, counts: Any,
) -> None:  # fmt: skip
    for d in range(len(offsets) - 1):
        row = counts[d]
        for k in range(offsets[d], offsets[d + 1]):
            i, size, letters, plain = starts[k], 0, False, False
            while i < ends[k]:
                point, width = decode(data, i)
                c = table[point]
                letters = letters or (c & ALPHA) != 0
                plain = plain or (c & SYMBOL) == 0
                size += 1
                i += width
            chars[k], hashes[k] = size, hash_of(data, starts[k], ends[k])
            join, power = np.uint64(0), np.uint64(1)
            for i in range(starts[k], ends[k]):
                join = join * _BASE + np.uint64(data[i]) + np.uint64(1)
                power *= _BASE
            joins[k], powers[k] = join, power
            row[ALPHA_WORDS] += letters
            if plain:
                row[WORDS] += 1
                row[WORD_CHARS] += size
                stop = stop_word(data, starts[k], ends[k], False)
                if stop >= 0:
                    row[STOPS] |= 1 << stop
