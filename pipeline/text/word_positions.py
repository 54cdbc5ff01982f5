"""Words by one rule for every stage that compares texts: the door to deduplication's kernels, and where words stand.

The rule (case, punctuation, canonical spelling, scripts without spaces) is that of `corpusmill.pipeline.text.word_rule`.
`scan_words` gives the hashes of words alone, fast; `place_words` the same hashes with the place of each word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.minhash import ROLL
from corpusmill.pipeline.text.shingles import I64, U64, one_array, view
from corpusmill.pipeline.text.word_hashes import (
    CHUNK,
    FNV_BASIS,
    FNV_PRIME,
    INSIDE,
    OTHER_PRIME,
    OUTSIDE,
    RESERVE,
    SINGLE,
    byte_at,
    chain,
    code_point,
    entry_of,
    marked,
    mix64,
    scan_words,
    syllable,
)
from corpusmill.pipeline.text.word_rule import RULE, rule

__all__ = [
    "CHUNK", "FNV_BASIS", "FNV_PRIME", "I64", "OTHER_PRIME", "OUTSIDE", "RESERVE", "ROLL", "RULE", "U64", "byte_at",
    "code_point", "mix64", "one_array", "place_words", "room", "rule", "scan_words", "view",
]  # fmt: skip

_SHIFT = np.uint32(21)
_FOLDED = np.uint32((1 << 21) - 1)
_LETTER, _MARK, _ALONE, _SKIP = np.uint32(1), np.uint32(2), np.uint32(3), np.uint32(4)
_JOIN, _COMPOSED, _HANGUL = np.uint32(5), np.uint32(6), np.uint32(7)
_NEWLINE, _SPACE = 10, 32


def room(size: int) -> int:
    """Words that `size` bytes of UTF-8 may hold, at most: a word of one byte needs another after it, and a letter
    that stands alone has three."""
    return size // 2 + 2


@compiled
def place_words(
    data: Any, i: int, stop: int, rule: Any, hashes: Any, starts: Any, ends: Any, paragraphs: Any
) -> int:
    """The words of UTF-8 `data[i:stop]`; how many.

    Writes, for each word, `hashes` (uint64, those of `scan_words` with `FNV_PRIME`), `starts` and `ends` (int64,
    bytes of `data`; marks inside) and `paragraphs` (int32, those with words counted from 0; a blank line parts two). Each of the
    arrays must have `room(stop - i)` places.
    """
    state, word, count, end = OUTSIDE, FNV_BASIS, 0, i
    paragraph = 0
    lines, blank = 0, False  # line feeds since anything but white space; a blank line since the last word
    while i < stop:
        at = i
        letter = rule.ascii[byte_at(data, i)]
        if letter:
            if state == SINGLE:
                hashes[count], ends[count] = mix64(word), end
                count += 1
                word = FNV_BASIS
            if state != INSIDE:
                if blank and count:
                    paragraph += 1
                starts[count], paragraphs[count], blank = at, paragraph, False
            state, lines = INSIDE, 0
            while letter:
                word = chain(word, letter, FNV_PRIME)
                i += 1
                letter = rule.ascii[byte_at(data, i)] if i < stop else np.uint8(0)
            end = i
            continue
        point, i = code_point(data, i, stop)
        if point == _NEWLINE:
            lines += 1
            if lines == 2:
                blank = True
        elif not (point == _SPACE or 9 <= point <= 13):
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
            kind, folded = entry >> _SHIFT, entry & _FOLDED
            if kind in (_LETTER, _HANGUL, _JOIN):
                if state == SINGLE:
                    hashes[count], ends[count] = mix64(word), end
                    count += 1
                    word = FNV_BASIS
                if state != INSIDE:
                    if blank and count:
                        paragraph += 1
                    starts[count], paragraphs[count], blank = at, paragraph, False
                word = (
                    syllable(word, folded, FNV_PRIME) if kind == _HANGUL else chain(word, folded, FNV_PRIME)
                )
                state, end = INSIDE, i
            elif kind == _SKIP:
                continue
            elif kind == _MARK and state != OUTSIDE:
                word = marked(word, folded, FNV_PRIME)
                end = i
            else:
                if state != OUTSIDE:
                    hashes[count], ends[count] = mix64(word), end
                    count += 1
                    word = FNV_BASIS
                    state = OUTSIDE
                if kind == _ALONE:
                    word = chain(word, folded, FNV_PRIME)
                    if blank and count:
                        paragraph += 1
                    starts[count], paragraphs[count], blank = at, paragraph, False
                    state, end = SINGLE, i
    if state != OUTSIDE:
        hashes[count], ends[count] = mix64(word), end
        count += 1
    return count
