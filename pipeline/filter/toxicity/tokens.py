"""Words and signs of pieces of text as the toxicity model reads them, disguises undone, over Arrow buffers.

A word is a run of letters, digits and apostrophes in lower case without accents. Undone are: digits and signs for letters
(`sh1t`, `a$$hole`), letters repeated three times and more (`fuuuck`), letters spaced out one by one (`f.u.c.k`), letters of
mathematical alphabets and full width, characters of no width. Emoji (without skin tone), `!`, `?` and quotation marks
are tokens of their own; addresses (http), mentions (@name) and entities (&amp;) are left out.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.common.stored_tables import stored
from corpusmill.pipeline.filter.classifiers.model_words import address, mention
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.text.unicode_tables import (
    CODE_POINTS,
    OTHER,
    PUNCT,
    SPACE,
    TERMINAL,
    class_table,
    lower_table,
)
from corpusmill.pipeline.text.utf8 import decode

# Kinds of code points.
NOTHING, WORD, BLANK, IGNORED, SIGN, STOP = range(6)
_MARKS_OVER: Final = (0x300, 0x370)  # combining accents, which a fold leaves out
_IGNORED: Final = (
    (0x200B, 0x2010),
    (0x2060, 0x2070),
    (0xFE00, 0xFE10),
    (0xFEFF, 0xFF00),
    (0x1F3FB, 0x1F400),
    (0xE0000, 0xE0200),
)
_FOLDED: Final = (
    (0xAA, 0x250),
    (0x386, 0x3D7),
    (0x1D00, 0x2000),
    (0x2070, 0x24F0),
    (0xFF01, 0xFF5F),
    (0x1D400, 0x1D800),
)
_SYMBOLS: Final = (
    0x2190  # from here on, what is neither letter nor punctuation is a token: arrows, dingbats, emoji
)
_LETTERS: Final = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s", "!": "i"}


class Tokens(NamedTuple):
    """Tokens of many pieces of text. `bounds[p]` are the tokens [first, last) of piece p."""

    points: Array  # uint32: the code points that they are made of
    starts: Array  # int64[tokens]
    ends: Array  # int64[tokens]
    hashes: Array  # uint64[tokens]
    words: Array  # bool[tokens]: words, not signs
    breaks: Array  # bool[tokens]: whether a sentence may begin here
    bounds: Array  # int64[pieces, 2]


@lru_cache(maxsize=1)
def tables() -> tuple[Array, Array, Array, Array]:
    """(kind uint8, folded code point int32) of every code point, the letter that each of ASCII may stand for (0: none), and whether
    each byte is a character that ends a word whatever follows."""
    kinds = _kinds()
    letters = np.zeros(128, np.uint32)
    for sign, letter in _LETTERS.items():
        letters[ord(sign)] = ord(letter)
    ends_word = np.zeros(256, np.bool_)
    ends_word[:128] = (kinds[:128] != WORD) & (kinds[:128] != IGNORED)
    ends_word[[ord(sign) for sign in "'!$*@"]] = False  # part of a word before some characters (`_word`)
    letters.flags.writeable = ends_word.flags.writeable = False
    return kinds, _folded(), letters, ends_word


@stored()
def _kinds() -> Array:
    known = class_table()
    kinds = np.zeros(CODE_POINTS, np.uint8)
    kinds[known & (OTHER | SPACE) == 0] = WORD
    kinds[known & SPACE != 0] = BLANK
    points = np.arange(CODE_POINTS)
    kinds[(known & OTHER != 0) & (known & PUNCT == 0) & (points >= _SYMBOLS)] = SIGN
    kinds[known & TERMINAL != 0] = STOP
    for first, last in (_MARKS_OVER, *_IGNORED):
        kinds[first:last] = IGNORED
    kinds[[ord(sign) for sign in '!?"“”„«»']] = SIGN
    return kinds


@stored()
def _folded() -> Array:
    kinds, fold = _kinds(), lower_table().copy()
    for first, last in _FOLDED:
        for point in range(first, last):
            plain = [c for c in unicodedata.normalize("NFKD", chr(point)) if kinds[ord(c)] != IGNORED]
            if len(plain) == 1:
                fold[point] = ord(plain[0].lower()[0])
    fold[[ord(mark) for mark in "“”„«»"]] = ord('"')
    return fold


def tokens(data: Array, first: Array, last: Array) -> Tokens:
    """The tokens of the pieces data[first[p]:last[p]] of valid UTF-8."""
    size = int((last - first).sum())
    found = Tokens(
        np.empty(size + 1, np.uint32), np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint64),
        np.empty(size, np.bool_), np.empty(size, np.bool_), np.empty((len(first), 2), np.int64),
    )  # fmt: skip
    count = int(_tokens(data, first, last, *tables(), found))
    return found._replace(
        starts=found.starts[:count], ends=found.ends[:count], hashes=found.hashes[:count],
        words=found.words[:count], breaks=found.breaks[:count],
    )  # fmt: skip


def hash_of(word: str) -> int:
    """The hash of one token, as in `Tokens.hashes`."""
    points = np.array([ord(c) for c in word], np.uint32)
    return int(_hash(points, 0, len(points)))


@compiled(inline="always")
def mixed(h: Any, value: Any) -> Any:
    """A hash with one more value in it."""
    x = (h ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
    return x ^ (x >> np.uint64(29))


@compiled(inline="always")
def _hash(points: Any, first: Any, last: Any) -> Any:
    h = np.uint64(7)
    for k in range(first, last):
        h = mixed(h, points[k])
    return h


@compiled(inline="always")
def _swapped(c: Any) -> Any:
    return c == 33 or c == 36 or c == 42 or c == 64  # ! $ * @


@compiled(inline="always")
def _word(data: Any, i: Any, end: Any, kinds: Any, fold: Any, letters: Any, points: Any, o: Any) -> Any:
    """Read the word at byte `i` into points[o:]: (byte behind it, end in `points`, its letters)."""
    start, some, odd = o, 0, 0
    before, same, repeats = np.int64(-1), 0, False  # the last letter, and how often in a row
    numeric = 48 <= data[i] <= 57
    while i < end and 97 <= data[i] | 32 <= 122:  # most words are letters of ASCII and no more
        f = np.int64(data[i] | 32)
        points[o] = f
        o, i = o + 1, i + 1
        same = same + 1 if f == before else 1
        before = f
        repeats |= same > 2
    some = o - start
    if i < end and data[i] == 32 and not repeats:
        return i, o, some
    while i < end:
        c, size = decode(data, i)
        kind = kinds[c]
        if kind == WORD:
            f = fold[c]
            if 48 <= f <= 57:
                odd += 1
            else:
                some += 1
            points[o] = f
            o += 1
            same = same + 1 if f == before else 1
            before = f
            repeats |= same > 2
        elif kind != IGNORED:
            if i + size >= end:
                if c != 36 or some == 0:
                    break
                after, behind = np.int64(32), NOTHING
            else:
                after, _ = decode(data, i + size)
                behind = kinds[after]
            if (c == 39 or c == 0x2019) and o > start and behind == WORD:
                points[o] = 39
                o += 1
            elif _swapped(c) and (
                (c == 36 and (some > 0 or behind == WORD))
                or (some > 0 and (behind == WORD or (c != 33 and after == c)))
            ):
                points[o] = c
                o += 1
                odd += 1
            else:
                break
        i += size
    if odd > 0 and some > 0 and (some >= odd or not numeric):
        for k in range(start, o):
            if points[k] < 128 and letters[points[k]] > 0:
                points[k] = letters[points[k]]
    elif odd == 0 and not repeats:
        return i, o, some
    # A letter three times and more is one.
    kept, k = start, start
    while k < o:
        c, run = points[k], k
        while k < o and points[k] == c:
            k += 1
        times = 1 if k - run > 2 and not 48 <= c <= 57 else k - run
        for _ in range(times):
            points[kept] = c
            kept += 1
    return i, kept, some


@compiled
def _tokens(
    data: Any, first: Any, last: Any, kinds: Any, fold: Any, letters: Any, ends_word: Any, found: Any
) -> Any:
    points, starts, ends, hashes, words, breaks, bounds = found
    count, o = 0, 0
    fresh = True
    for p in range(len(first)):
        bounds[p, 0] = count
        i, end = first[p], last[p]
        ended = False
        alone, gap, behind = (
            0,
            np.int64(0),
            np.int64(-1),
        )  # single letters in a row, what parts them, where the last ended
        while i < end:
            # Most words are letters of ASCII, no more, and end at a blank or a mark.
            x, at, o_at = np.uint64(7), i, o
            before, same, repeats = np.uint8(0), 0, False
            while at < end:
                letter = data[at] | np.uint8(32)
                if np.uint8(letter - np.uint8(97)) > 25:
                    break
                points[o_at] = letter
                x = mixed(x, letter)
                same = same + 1 if letter == before else 1
                before = letter
                repeats |= same > 2
                o_at, at = o_at + 1, at + 1
            if (
                at > i + 1 and not repeats and (at == end or ends_word[data[at]])
                and not (at - i > 3 and data[i] | 32 == 104 and data[i + 1] | 32 == 116)
            ):  # fmt: skip
                starts[count], ends[count], hashes[count] = o, o_at, x
                words[count], breaks[count] = True, fresh or ended
                fresh, ended, alone = False, False, 0
                count, o = count + 1, o_at
                # A blank behind it changes nothing more.
                i = at + 1 if at < end and data[at] == 32 else at
                continue
            c, size = decode(data, i)
            kind = kinds[c]
            skip = i
            if c | 32 == 104:
                skip = address(data, i, end)
            elif c == 64 or c == 38:
                skip = mention(data, i + 1, end, fold)
            if skip > i + 1:
                i = skip
                continue
            begins = kind == WORD
            if c == 36 and i + 1 < end:
                after, _ = decode(data, i + 1)
                begins = kinds[after] == WORD and not 48 <= data[i + 1] <= 57
            if begins:
                start, at = o, i
                i, o, some = _word(data, i, end, kinds, fold, letters, points, o)
                if o - start == 1 and some == 1:
                    sign, width = np.int64(0), 0
                    if alone > 0:
                        sign, width = decode(data, behind)
                    joins = (
                        alone > 0 and behind + width == at and (sign == 32 or (33 < sign < 48) or sign == 95)
                    )
                    if joins and (alone == 1 or sign == gap):
                        alone, gap = alone + 1, sign
                    elif joins and alone == 2:
                        gap = sign
                    else:
                        alone = 1
                    behind = i
                    if alone > 2:
                        if alone == 3:
                            count -= 1  # the second letter becomes part of the first one's token
                        ends[count - 1] = o
                        hashes[count - 1] = _hash(points, starts[count - 1], o)
                        ended = False
                        continue
                else:
                    alone = 0
                starts[count], ends[count], hashes[count] = start, o, _hash(points, start, o)
                words[count], breaks[count] = True, fresh or ended
                fresh, ended = False, False
                count += 1
                continue
            if kind == SIGN:
                points[o] = fold[c]
                starts[count], ends[count], hashes[count] = o, o + 1, _hash(points, o, o + 1)
                words[count], breaks[count] = False, False
                o += 1
                count += 1
                alone = 0
                if c == 33 or c == 63:
                    ended = True
                    while i + 1 < end and (data[i + 1] == 33 or data[i + 1] == 63):
                        i += 1
            elif kind == STOP:
                ended = True
            if c == 10:
                fresh = True
            elif kind == BLANK:
                fresh = fresh or ended
            i += size
        bounds[p, 1] = count
    return count
