"""datatrove's `C4QualityFilter`: which lines it keeps, and their sentences by spaCy's sentencizer."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.variants.codepoints import PUNCT, SENTENCE, SPACE, bits
from corpusmill.pipeline.filter.signals.variants.contractions import known_units, known_words
from corpusmill.pipeline.filter.signals.variants.segments import SPLITLINES, segments
from corpusmill.pipeline.filter.signals.variants.spacy_words import words_of
from corpusmill.pipeline.filter.text.view import TextView, once
from corpusmill.pipeline.text.unicode_tables import DIGIT, class_table
from corpusmill.pipeline.text.utf8 import (
    COOKIE,
    EDIT,
    JAVASCRIPT,
    LOREM,
    NEEDED,
    PRIVACY,
    TERMS,
    USE,
    USE_OF,
    USES,
    decode,
    ends_in_ellipsis,
    holds,
    is_just_at,
)

# Columns of `c4_counts`.
KEPT_LINES: Final = 0
SENTENCES: Final = 1  # of the lines kept
LOREM_LINES: Final = 2  # lines with "lorem ipsum" that no rule on lines had dropped by then
BRACE_LINES: Final = 3  # such lines with {
COUNTS: Final = 4

LONG_WORD: Final = 1000
MIN_WORDS: Final = 3


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
        view.data, lines.offsets, lines.starts, lines.ends, class_table(), bits(), *words, units.keys,
        units.longest, scratch, starts, ends, counts,
    )  # fmt: skip
    return counts


@compiled
def _citation(data: Any, i: int, last: int, classes: Any) -> int:
    """Bytes of the `[1]`, `[]`, `[edit]` or `[citation needed]` at byte `i`, 0 if there is none."""
    end = i + 1
    while end < last:
        point, size = decode(data, end)
        if not classes[point] & DIGIT:
            break
        end += size
    if end < last and data[end] == 93:
        return end + 1 - i
    if is_just_at(data, i, i, last, EDIT):
        return len(EDIT)
    return len(NEEDED) if is_just_at(data, i, i, last, NEEDED) else 0


@compiled
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


@compiled
def _well_ended(line: Any, size: int) -> bool:
    """Whether the line ends in one of . ? ! " ' and not in three full stops."""
    if size == 0:
        return False
    b = line[size - 1]
    if b == 46:
        return not ends_in_ellipsis(line, 0, size)
    return b == 63 or b == 33 or b == 34 or b == 39


@compiled
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


@compiled
def _count(
    data: Any, offsets: Any, line_starts: Any, line_ends: Any, classes: Any, table: Any, keys: Any,
    parts: Any, sizes: Any, longest: int, unit_keys: Any, unit_longest: int, line: Any, starts: Any, ends: Any, counts: Any,
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
                cited = _citation(data, i, b, classes) if data[i] == 91 else 0
                if cited:
                    i += cited
                    continue
                line[size] = data[i]
                size, i = size + 1, i + 1
            if not _well_ended(line, size) or words < MIN_WORDS:
                continue
            if holds(line, 0, size, LOREM):
                row[LOREM_LINES] += 1
                continue
            if holds(line, 0, size, JAVASCRIPT):
                continue
            brace = False
            for i in range(size):
                brace = brace or line[i] == 123
            if brace:
                row[BRACE_LINES] += 1
                continue
            if (
                holds(line, 0, size, TERMS) or holds(line, 0, size, PRIVACY) or holds(line, 0, size, COOKIE)
                or holds(line, 0, size, USES) or holds(line, 0, size, USE_OF) or holds(line, 0, size, USE)
            ):  # fmt: skip
                continue
            row[KEPT_LINES] += 1
            n = words_of(
                line, 0, size, table, keys, parts, sizes, longest, unit_keys, unit_longest, starts, ends, 0
            )
            row[SENTENCES] += _sentences(line, starts, ends, n, table)
