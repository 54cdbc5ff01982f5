"""The words of pieces of text, over Arrow buffers, with their hashes: what fastText sees of a line.

`as_it_stands` splits at white space, as fastText reads a line; `cleaned` keeps lower-case words alone, which the
classifiers of this project learn from.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.text.unicode_tables import CLOSER, OTHER, SPACE, TERMINAL, class_table, lower_table
from corpusmill.pipeline.text.utf8 import class_at_end, decode, encode

KEPT: Final = 1  # letters, digits and marks: what is left of a cleaned text, with apostrophes inside words
BLANK: Final = 2  # str.isspace()
END: Final = 4  # ends a sentence if white space follows
CLOSE: Final = 8  # may stand between the two
END_ALONE: Final = 16  # ends a sentence whatever follows: the marks of scripts without spaces


@lru_cache(maxsize=1)
def tables() -> tuple[Array, Array]:
    """(bits uint8, lower-case code point int32) of every code point, from this Python's `unicodedata`."""
    known = class_table()
    bits = np.zeros(len(known), np.uint8)
    bits[known & (OTHER | SPACE) == 0] |= KEPT
    bits[known & SPACE != 0] |= BLANK
    bits[known & TERMINAL != 0] |= END
    bits[known & CLOSER != 0] |= CLOSE
    lower = lower_table().copy()
    lower[0x130] = ord("i")  # İ: of its two code points in lower case the first
    alone = np.flatnonzero(bits & END)
    bits[alone[(alone >= 128) & (alone != 0x2026)]] |= END_ALONE
    bits.flags.writeable = lower.flags.writeable = False
    return bits, lower


_BASIS = np.uint32(2166136261)
_PRIME = np.uint32(16777619)


class Words(NamedTuple):
    """Words of many pieces of text. `bounds[p]` are the words [first, last) of piece p."""

    data: Array  # uint8: the bytes that the words lie in
    starts: Array  # int64[words]
    ends: Array  # int64[words]
    hashes: Array  # uint32[words]: FNV-1a over signed bytes, as fastText has it
    breaks: Array  # bool[words]: whether a sentence may begin here; what goes on over cuts between pieces
    bounds: Array  # int64[pieces, 2]


def as_it_stands(data: Array, first: Array, last: Array) -> Words:
    """The words of the pieces data[first[p]:last[p]], parted by fastText's white space (line feeds too)."""
    size = int((last - first).sum() + len(first)) // 2 + 1
    words = _empty(data, size, len(first))
    return _cut(words, _split(first, last, class_table(), words))


def cleaned(data: Array, first: Array, last: Array) -> tuple[Words, Array]:
    """(words, int64[pieces, 2] where each piece's cleaned text lies in `Words.data`).

    Lower case; letters, digits, marks and apostrophes inside words; one space between words. Addresses (http),
    mentions (@name) and entities (&amp;) are left out.
    """
    size = int((last - first).sum())
    # A character of two bytes may be one of three in lower case.
    words = _empty(
        np.empty(size + size // 2 + 2 * len(first), np.uint8), (size + len(first)) // 2 + 1, len(first)
    )
    lines = np.empty((len(first), 2), np.int64)
    return _cut(words, _clean(data, first, last, *tables(), words, lines)), lines


def _empty(data: Array, words: int, pieces: int) -> Words:
    return Words(
        data, np.empty(words, np.int64), np.empty(words, np.int64), np.empty(words, np.uint32),
        np.empty(words, np.bool_), np.empty((pieces, 2), np.int64),
    )  # fmt: skip


def _cut(words: Words, count: int) -> Words:
    return words._replace(
        starts=words.starts[:count], ends=words.ends[:count], hashes=words.hashes[:count],
        breaks=words.breaks[:count],
    )  # fmt: skip


@compiled(inline="always")
def _hash(data: Any, first: Any, last: Any) -> Any:
    h = _BASIS
    for k in range(first, last):
        h = np.uint32((h ^ np.uint32(np.int8(data[k]))) * _PRIME)
    return h


@compiled
def _split(first: Any, last: Any, table: Any, words: Any) -> Any:
    data, starts, ends, hashes, breaks, bounds = words
    count = 0
    fresh = True
    for p in range(len(first)):
        bounds[p, 0] = count
        i, end = first[p], last[p]
        while i < end:
            b = data[i]
            if b == 32 or 9 <= b <= 13 or b == 0:
                fresh = fresh or b == 10
                i += 1
                continue
            start = i
            h = _BASIS
            while i < end:
                b = data[i]
                if b == 32 or 9 <= b <= 13 or b == 0:
                    break
                h = np.uint32((h ^ np.uint32(np.int8(b))) * _PRIME)
                i += 1
            starts[count], ends[count], hashes[count], breaks[count] = start, i, h, fresh
            fresh = class_at_end(data, table, start, i) & TERMINAL != 0
            count += 1
        bounds[p, 1] = count
    return count


@compiled
def address(data: Any, i: Any, end: Any) -> Any:
    """The end of the address (http://, https://) at `i`, or `i`."""
    if end - i < 8 or data[i] | 32 != 104 or data[i + 1] | 32 != 116 or data[i + 2] | 32 != 116:
        return i
    j = i + 4
    if data[i + 3] | 32 != 112:
        return i
    if data[j] | 32 == 115:
        j += 1
    if j + 3 >= end or data[j] != 58 or data[j + 1] != 47 or data[j + 2] != 47:
        return i
    k = j + 3
    while k < end and not (data[k] == 32 or data[k] == 9 or data[k] == 10 or data[k] == 12 or data[k] == 13):
        k += 1
    return k if k > j + 3 else i


@compiled
def mention(data: Any, i: Any, end: Any, lower: Any) -> Any:
    """The end of what follows the @ or & before `i`: letters and digits of ASCII, _ and #, and one semicolon."""
    while i < end:
        c, size = decode(data, i)
        c = lower[c]
        if not (97 <= c <= 122 or 48 <= c <= 57 or c == 95 or c == 35):
            break
        i += size
    return i + 1 if i < end and data[i] == 59 else i


@compiled
def _clean(data: Any, first: Any, last: Any, bits: Any, lower: Any, words: Any, lines: Any) -> Any:
    out, starts, ends, hashes, breaks, bounds = words
    count, o = 0, 0
    fresh, ended = True, False
    for p in range(len(first)):
        bounds[p, 0], lines[p, 0] = count, o
        i, end = first[p], last[p]
        in_word = False
        start = o
        while i < end:
            if not in_word:  # most words are letters of ASCII before a space
                begin = o + 1 if count > bounds[p, 0] else o
                h, at, at_o = _BASIS, i, begin
                while at < end:
                    letter = data[at] | np.uint8(32)
                    if np.uint8(letter - np.uint8(97)) > 25:
                        break
                    out[at_o] = letter
                    h = np.uint32((h ^ np.uint32(letter)) * _PRIME)
                    at, at_o = at + 1, at_o + 1
                if i < at < end and data[at] == 32:
                    if begin > o:
                        out[o] = 32
                    starts[count], ends[count], hashes[count], breaks[count] = begin, at_o, h, fresh
                    fresh, ended = False, False
                    count, o, i = count + 1, at_o, at + 1
                    while i < end and data[i] == 39:
                        i += 1
                    continue
            c, size = decode(data, i)
            kind = bits[c]
            if kind & KEPT:
                skip = address(data, i, end) if c | 32 == 104 else i
                if skip == i:
                    if not in_word:
                        if count > bounds[p, 0]:
                            out[o] = 32
                            o += 1
                        in_word, start = True, o
                        breaks[count] = fresh
                        fresh = False
                    ended = False
                    c = lower[c]
                    o = encode(c, out, o)
                    i += size
                    # Most characters that follow are letters of ASCII; one that may begin an address is looked at above.
                    while i < end:
                        b = data[i]
                        if b >= 128 or not bits[b] & KEPT:
                            break
                        if b | 32 == 104 and i + 1 < end and data[i + 1] | 32 == 116:
                            break
                        out[o] = lower[b]
                        o += 1
                        i += 1
                    continue
                i = skip
                ended = False
            elif c == 39:
                j = i
                while j < end and data[j] == 39:
                    j += 1
                c, _ = decode(data, j) if j < end else (0x41, 1)
                if c == 64 or c == 38 or bits[c] & KEPT:
                    # Apostrophes that no noise touches belong to a word, at the start of a piece to none.
                    if not in_word and count > bounds[p, 0]:
                        out[o] = 32
                        o += 1
                        in_word, start = True, o
                        breaks[count] = fresh
                        fresh = False
                    if in_word:
                        out[o : o + j - i] = 39
                        o += j - i
                    i = j
                    continue
                i = j  # they touch noise: part of it
            elif c == 64 or c == 38:
                i = mention(data, i + 1, end, lower)
                ended = False
            else:
                if kind & END_ALONE or c == 10:
                    fresh = True
                elif kind & END:
                    ended = True
                elif kind & BLANK:
                    fresh = fresh or ended
                elif not kind & CLOSE:
                    ended = False
                i += size
                while i < end and data[i] == 39:
                    i += 1
            if in_word:
                starts[count], ends[count], hashes[count] = start, o, _hash(out, start, o)
                count += 1
                in_word = False
        if in_word:
            starts[count], ends[count], hashes[count] = start, o, _hash(out, start, o)
            count += 1
        # Apostrophes at the end of a piece are no part of it.
        while count > bounds[p, 0] and out[ends[count - 1] - 1] == 39:
            ends[count - 1] -= 1
            if ends[count - 1] == starts[count - 1]:
                count -= 1
            else:
                hashes[count - 1] = _hash(out, starts[count - 1], ends[count - 1])
        o = ends[count - 1] if count > bounds[p, 0] else lines[p, 0]
        bounds[p, 1], lines[p, 1] = count, o
    return count
