"""datatrove's `C4QualityFilter`: which lines it keeps, and their sentences by spaCy's sentencizer."""

from __future__ import annotations

from typing import Any, Final

import numba as nb
import numpy as np
import numpy.typing as npt

from pipeline.filter.signals.variants.codepoints import PUNCT, SENTENCE, SPACE, bits
from pipeline.filter.signals.variants.contractions import known_units, known_words
from pipeline.filter.signals.variants.once import once
from pipeline.filter.signals.variants.segments import SPLITLINES, segments
from pipeline.filter.signals.variants.spacy_words import words_of
from pipeline.filter.text.scan import decode
from pipeline.filter.text.view import TextView

# Columns of `c4_counts`.
KEPT_LINES: Final = 0
SENTENCES: Final = 1  # of the lines kept
LOREM: Final = 2  # lines with "lorem ipsum" that no rule on lines had dropped by then
BRACES: Final = 3  # such lines with {
COUNTS: Final = 4

LONG_WORD: Final = 1000
MIN_WORDS: Final = 3

_LOREM = np.frombuffer(b"lorem ipsum", np.uint8)
_JAVASCRIPT = np.frombuffer(b"javascript", np.uint8)
_EDIT = np.frombuffer(b"[edit]", np.uint8)
_NEEDED = np.frombuffer(b"[citation needed]", np.uint8)
_TERMS = np.frombuffer(b"terms of use", np.uint8)
_PRIVACY = np.frombuffer(b"privacy policy", np.uint8)
_COOKIE = np.frombuffer(b"cookie policy", np.uint8)
_USES = np.frombuffer(b"uses cookies", np.uint8)
_USE_OF = np.frombuffer(b"use of cookies", np.uint8)
_USE = np.frombuffer(b"use cookies", np.uint8)


@once
def c4_counts(view: TextView) -> npt.NDArray[np.int64]:
    """int64[D, COUNTS]."""
    lines = segments(view.data, view.offsets, SPLITLINES, strip=True)
    longest = int((lines.ends - lines.starts).max(initial=0))
    # A line without its citations, and its words: one place a byte.
    scratch = np.empty(longest, np.uint8)
    starts, ends = np.empty(longest + 1, np.int64), np.empty(longest + 1, np.int64)
    counts = np.zeros((len(view), COUNTS), np.int64)
    words, units = known_words(), known_units()
    _count(
        view.data, lines.offsets, lines.starts, lines.ends, bits(), *words, units.keys, units.longest,
        scratch, starts, ends, counts,
    )  # fmt: skip
    return counts


@nb.njit(cache=True, nogil=True)
def _holds(data: Any, first: int, last: int, phrase: Any) -> bool:
    """Whether the lower-case ASCII `phrase` stands in [first, last), in either case."""
    lead = phrase[0]
    for i in range(first, last - len(phrase) + 1):
        b = data[i]
        if (b | 32 if 65 <= b <= 90 else b) == lead and _at(data, i, last, phrase, True):
            return True
    return False


@nb.njit(cache=True, nogil=True)
def _at(data: Any, i: int, last: int, phrase: Any, either_case: bool) -> bool:
    if i + len(phrase) > last:
        return False
    for k in range(len(phrase)):
        b = data[i + k]
        if (b | 32 if either_case and 65 <= b <= 90 else b) != phrase[k]:
            return False
    return True


@nb.njit(cache=True, nogil=True)
def _citation(data: Any, i: int, last: int) -> int:
    """Bytes of the `[1]`, `[]`, `[edit]` or `[citation needed]` at byte `i`, 0 if there is none."""
    end = i + 1
    while end < last and 48 <= data[end] <= 57:
        end += 1
    if end < last and data[end] == 93:
        return end + 1 - i
    if _at(data, i, last, _EDIT, False):
        return len(_EDIT)
    return len(_NEEDED) if _at(data, i, last, _NEEDED, False) else 0


@nb.njit(cache=True, nogil=True)
def _line_words(data: Any, a: int, b: int, table: Any) -> Any:
    """(words of the line, characters of the longest)."""
    words, size, longest, i = 0, 0, 0, a
    while i < b:
        point, width = decode(data, i)
        if table[point] & SPACE:
            size = 0
        else:
            words += size == 0
            size += 1
            longest = max(longest, size)
        i += width
    return words, longest


@nb.njit(cache=True, nogil=True)
def _well_ended(line: Any, size: int) -> bool:
    """Whether the line ends in one of . ? ! " ' and not in three full stops."""
    if size == 0:
        return False
    b = line[size - 1]
    if b == 46:
        return not (size > 2 and line[size - 2] == 46 and line[size - 3] == 46)
    return b == 63 or b == 33 or b == 34 or b == 39


@nb.njit(cache=True, nogil=True)
def _sentences(line: Any, starts: Any, ends: Any, words: int, table: Any) -> int:
    """A sentence begins with a word that is no punctuation, after one that ends sentences."""
    total, ended = 1, False
    for k in range(words):
        point, size = decode(line, starts[k])
        mark = starts[k] + size == ends[k] and table[point] & SENTENCE
        if mark:
            ended = True
        elif ended:
            i, punctuation = starts[k], True
            while i < ends[k] and punctuation:
                point, size = decode(line, i)
                punctuation = (table[point] & PUNCT) != 0
                i += size
            if not punctuation:
                total += 1
                ended = False
    return total


@nb.njit(cache=True, nogil=True)
def _count(
    data: Any, offsets: Any, line_starts: Any, line_ends: Any, table: Any, keys: Any, parts: Any, sizes: Any,
    longest: int, unit_keys: Any, unit_longest: int, line: Any, starts: Any, ends: Any, counts: Any,
) -> None:  # fmt: skip
    for d in range(len(offsets) - 1):
        row = counts[d]
        for k in range(offsets[d], offsets[d + 1]):
            a, b = line_starts[k], line_ends[k]
            words, longest_word = _line_words(data, a, b, table)
            if longest_word > LONG_WORD:
                continue
            size, i = 0, a
            while i < b:
                cited = _citation(data, i, b) if data[i] == 91 else 0
                if cited:
                    i += cited
                    continue
                line[size] = data[i]
                size, i = size + 1, i + 1
            if not _well_ended(line, size) or words < MIN_WORDS:
                continue
            if _holds(line, 0, size, _LOREM):
                row[LOREM] += 1
                continue
            if _holds(line, 0, size, _JAVASCRIPT):
                continue
            brace = False
            for i in range(size):
                brace = brace or line[i] == 123
            if brace:
                row[BRACES] += 1
                continue
            if (
                _holds(line, 0, size, _TERMS) or _holds(line, 0, size, _PRIVACY) or _holds(line, 0, size, _COOKIE)
                or _holds(line, 0, size, _USES) or _holds(line, 0, size, _USE_OF) or _holds(line, 0, size, _USE)
            ):  # fmt: skip
                continue
            row[KEPT_LINES] += 1
            n = words_of(
                line, 0, size, table, keys, parts, sizes, longest, unit_keys, unit_longest, starts, ends, 0
            )
            row[SENTENCES] += _sentences(line, starts, ends, n, table)
