"""Numba kernels from UTF-8 to hashes of words or characters, by the word rule of `word_rule.py`.

A word hashes to 64 bits by FNV-1a over its folded code points, finished by MurmurHash3's 64-bit mixer. A mark
is not chained but added, mixed, to the state that the letter before it left: the marks of a letter may be in
any order, and "áb" is not "ab́". Characters hash in the same way, each letter with its marks alone; whatever
separates two words counts as one space.

`scan_words` and `scan_characters` give the hashes alone. They stop when their output is full and continue from
there, so that a text of any length passes through a buffer of one size. `place_words` gives the same hashes of
words with the place of each word in the text; its output arrays hold `most_words` elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text import word_rule

FNV_BASIS = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)
OTHER_PRIME = np.uint64(0xD6E8FEB86659FD93)  # of the second half of a fingerprint
RESERVE = 16  # hashes that one code point may give, and more
CHUNK = 4096  # hashes in flight: the buffers of a chunk stay in the first-level cache
_FOLDED = np.uint32((1 << word_rule.CLASS_SHIFT) - 1)
_SHIFT = np.uint32(word_rule.CLASS_SHIFT)
_LETTER, _MARK, _ALONE, _SKIP = (
    np.uint32(kind) for kind in (word_rule.LETTER, word_rule.MARK, word_rule.ALONE, word_rule.SKIP)
)
_JOIN, _COMPOSED, _HANGUL = (
    np.uint32(kind) for kind in (word_rule.JOIN, word_rule.COMPOSED, word_rule.HANGUL)
)
_SPACE = np.uint64(0x20)
# Where a scanner stands: between words (`GAP`: and something came before), in a word, in an unspaced letter.
OUTSIDE, INSIDE, SINGLE, GAP = 0, 1, 2, 3

_NEWLINE, _BLANK = 10, 32


@compiled(inline="always")
def mix64(x: Any) -> Any:
    """MurmurHash3's 64-bit finaliser, a bijection."""
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@compiled(inline="always")
def byte_at(data: Any, i: int) -> Any:
    """`data[i]` of an `i` that is not negative; Numba checks that at every signed index, at a cost of 20 %."""
    return data[np.uint64(i)]


@compiled(inline="always")
def code_point(data: Any, i: int, stop: int) -> Any:
    """(code point, where the next one begins) of UTF-8 `data[i:stop]`; 0x110000 for broken bytes at the end."""
    byte = np.uint32(byte_at(data, i))
    if byte < 0x80:
        return byte, i + 1
    if byte < 0xE0 and i + 1 < stop:
        return (byte & 0x1F) << 6 | np.uint32(byte_at(data, i + 1) & 0x3F), i + 2
    if byte < 0xF0 and i + 2 < stop:
        point = (
            (byte & 0x0F) << 12
            | np.uint32(byte_at(data, i + 1) & 0x3F) << 6
            | np.uint32(byte_at(data, i + 2) & 0x3F)
        )
        return point, i + 3
    if i + 3 < stop:
        high = (byte & 0x07) << 18 | np.uint32(byte_at(data, i + 1) & 0x3F) << 12
        return high | np.uint32(byte_at(data, i + 2) & 0x3F) << 6 | np.uint32(
            byte_at(data, i + 3) & 0x3F
        ), i + 4
    return np.uint32(0x110000), stop


@compiled(inline="always")
def entry_of(point: Any, rule: Any) -> Any:
    """The entry of a code point; of what is none: a separator."""
    return rule.entries[point] if point < 0x110000 else np.uint32(0)


@compiled(inline="always")
def chain(word: Any, point: Any, prime: Any) -> Any:
    """The state after one more code point (FNV-1a)."""
    return (word ^ np.uint64(point)) * prime


@compiled(inline="always")
def syllable(word: Any, point: Any, prime: Any) -> Any:
    """The state after the conjoining letters of a Hangul syllable (Unicode 3.12)."""
    index = point - np.uint32(0xAC00)
    word = chain(word, np.uint32(0x1100) + index // np.uint32(588), prime)
    word = chain(word, np.uint32(0x1161) + index % np.uint32(588) // np.uint32(28), prime)
    final = index % np.uint32(28)
    return chain(word, np.uint32(0x11A7) + final, prime) if final else word


@compiled(inline="always")
def marked(word: Any, point: Any, prime: Any) -> Any:
    """The state with a mark more; the order of marks does not matter."""
    return word + mix64(np.uint64(point) * prime)


@compiled(inline="always")
def _begin(places: Any, count: int, at: int, paragraph: int, blank: bool) -> int:
    """Note where word `count` begins; the number of its paragraph, the next one after a blank line between two words."""
    starts, _, paragraphs = places
    if blank and count:
        paragraph += 1
    starts[count], paragraphs[count] = at, paragraph
    return paragraph


@compiled
def scan_words(
    data: Any, i: int, stop: int, rule: Any, prime: Any, state: int, word: Any, out: Any, count: int,
    places: Any = None,
) -> Any:  # fmt: skip
    """Hashes of words into `out[count:]`: (where it stopped, state, unfinished word, count).

    It stops at the end of the text, the last word finished, or where less than `RESERVE` of `out` is left.
    Begin with state OUTSIDE and `FNV_BASIS`. With `places` (starts, ends, paragraphs, as in `place_words`) it reads a
    whole text; without, Numba leaves out whatever only these need.
    """
    last = len(out) - RESERVE if places is None else len(out)
    paragraph = 0
    lines, blank = 0, False  # line feeds since anything but white space; a blank line since the last word
    while i < stop and count <= last:
        at = i
        letter = rule.ascii[byte_at(data, i)]
        if letter:
            if state == SINGLE:
                out[count] = mix64(word)
                count += 1
                word = FNV_BASIS
            if places is not None:
                if state != INSIDE:
                    paragraph = _begin(places, count, at, paragraph, blank)
                    blank = False
                lines = 0
            state = INSIDE
            while letter:
                word = chain(word, letter, prime)
                i += 1
                letter = rule.ascii[byte_at(data, i)] if i < stop else np.uint8(0)
            if places is not None:
                places[1][count] = i
            elif i < stop and byte_at(data, i) < 0x80:
                out[count] = mix64(word)
                count += 1
                word = FNV_BASIS
                state = OUTSIDE
                i += 1
            continue
        point, i = code_point(data, i, stop)
        if places is not None:
            if point == _NEWLINE:
                lines += 1
                blank |= lines == 2
            elif not (point == _BLANK or 9 <= point <= 13):
                lines = 0
        entry = entry_of(point, rule)
        pieces = 1
        composed = np.uint32(0)
        if entry >> _SHIFT == _COMPOSED:
            composed = entry & _FOLDED
            pieces = rule.pieces.shape[1]
        for k in range(pieces):
            if pieces > 1:
                entry = rule.pieces[composed, k]
            kind, point = entry >> _SHIFT, entry & _FOLDED
            if kind in (_LETTER, _HANGUL, _JOIN):
                if state == SINGLE:
                    out[count] = mix64(word)
                    count += 1
                    word = FNV_BASIS
                if places is not None:
                    if state != INSIDE:
                        paragraph = _begin(places, count, at, paragraph, blank)
                        blank = False
                    places[1][count] = i
                word = syllable(word, point, prime) if kind == _HANGUL else chain(word, point, prime)
                state = INSIDE
            elif kind == _SKIP:
                continue
            elif kind == _MARK and state != OUTSIDE:
                word = marked(word, point, prime)
                if places is not None:
                    places[1][count] = i
            else:
                if state != OUTSIDE:
                    out[count] = mix64(word)
                    count += 1
                    word = FNV_BASIS
                    state = OUTSIDE
                if kind == _ALONE:
                    if places is not None:
                        paragraph = _begin(places, count, at, paragraph, blank)
                        blank = False
                        places[1][count] = i
                    word = chain(word, point, prime)
                    state = SINGLE
    if i >= stop and state != OUTSIDE:
        out[count] = mix64(word)
        count += 1
        state = OUTSIDE
    return i, state, word, count


@compiled
def scan_characters(
    data: Any, i: int, stop: int, rule: Any, prime: Any, state: int, word: Any, out: Any, count: int
) -> Any:
    """As `scan_words`, of characters: letters with their marks, and one space between words."""
    last = len(out) - RESERVE
    while i < stop and count <= last:
        # As in `scan_words`: a helper for these lines cost that one 6 % or more on accented letters; one that
        # reads `rule.pieces` cost this one two thirds of its speed there.
        point, i = code_point(data, i, stop)
        entry = entry_of(point, rule)
        pieces = 1
        composed = np.uint32(0)
        if entry >> _SHIFT == _COMPOSED:
            composed = entry & _FOLDED
            pieces = rule.pieces.shape[1]
        for k in range(pieces):
            if pieces > 1:
                entry = rule.pieces[composed, k]
            kind, point = entry >> _SHIFT, entry & _FOLDED
            if kind == _SKIP:
                continue
            within = state in (INSIDE, SINGLE)
            if kind == _MARK and within:
                word = marked(word, point, prime)
            elif kind == _JOIN and state == INSIDE:
                word = chain(word, point, prime)
            elif kind == _MARK or kind == np.uint32(0):
                if within:
                    out[count] = mix64(word)
                    count += 1
                    state = GAP
            else:
                if state != OUTSIDE:
                    out[count] = mix64(word if within else chain(FNV_BASIS, _SPACE, prime))
                    count += 1
                word = FNV_BASIS
                word = syllable(word, point, prime) if kind == _HANGUL else chain(word, point, prime)
                state = SINGLE if kind == _ALONE else INSIDE
    if i >= stop and state in (INSIDE, SINGLE):
        out[count] = mix64(word)
        count += 1
        state = OUTSIDE
    return i, state, word, count


@compiled(inline="always")
def scan(
    data: Any, i: int, stop: int, rule: Any, characters: bool, state: int, word: Any, out: Any, count: int
) -> Any:
    """`scan_characters` or `scan_words`."""
    if characters:
        return scan_characters(data, i, stop, rule, FNV_PRIME, state, word, out, count)
    return scan_words(data, i, stop, rule, FNV_PRIME, state, word, out, count)


@compiled
def fingerprints(offsets: Any, data: Any, rows: Any, rule: Any) -> Any:
    """(hi, lo) uint64[rows]: two independent chains over the word hashes of each text, each of its own FNV
    multiplier; (0, 0) without words."""
    halves = np.zeros((2, len(rows)), np.uint64)
    buffer = np.empty(CHUNK, np.uint64)
    for half in range(2):
        prime = OTHER_PRIME if half == 0 else FNV_PRIME
        for k in range(len(rows)):
            i, stop = offsets[rows[k]], offsets[rows[k] + 1]
            state, word, total, value = OUTSIDE, FNV_BASIS, 0, prime
            while i < stop:
                i, state, word, count = scan_words(data, i, stop, rule, prime, state, word, buffer, 0)
                for j in range(count):
                    value = mix64(value + buffer[j])
                total += count
            if total:
                halves[half, k] = mix64(value ^ np.uint64(total))
    return halves[0], halves[1]


def most_words(size: int) -> int:
    """Words that `size` bytes of UTF-8 may hold, at most: a word of one byte needs another after it, and a letter
    that stands alone has three."""
    return size // 2 + 2


@compiled
def place_words(
    data: Any, i: int, stop: int, rule: Any, hashes: Any, starts: Any, ends: Any, paragraphs: Any
) -> Any:
    """The words of UTF-8 `data[i:stop]`; how many.

    Writes, for each word, `hashes` (uint64, those of `scan_words` with `FNV_PRIME`), `starts` and `ends` (int64,
    bytes of `data`; marks inside) and `paragraphs` (int32, those with words counted from 0; a blank line separates two). Each
    of the arrays must have `most_words(stop - i)` places.
    """
    places = (starts, ends, paragraphs)
    _, _, _, count = scan_words(data, i, stop, rule, FNV_PRIME, OUTSIDE, FNV_BASIS, hashes, 0, places)
    return count
