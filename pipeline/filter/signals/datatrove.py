"""`gopher_datatrove`, `c4_datatrove` and `fineweb_datatrove`: what datatrove's four quality filters look at.

Definitions are those of its code (0.10: `pipeline/filters/gopher_quality_filter.py`, `gopher_repetition_filter.py`,
`c4_filters.py`, `fineweb_quality_filter.py`), with its English words (`spacy_words.py`); C4's sentences are those of spaCy's
sentencizer.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals import spacy_words
from corpusmill.pipeline.filter.signals.contractions import known_units, known_words
from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, column, family, ratio
from corpusmill.pipeline.filter.signals.segments import (
    BLANK_LINES,
    NEWLINE,
    NEWLINES,
    SPLITLINES,
    Segments,
    marked,
    repeats,
    segments,
)
from corpusmill.pipeline.filter.signals.spacy_words import words_of
from corpusmill.pipeline.filter.text import scan
from corpusmill.pipeline.filter.text.repetition import DATATROVE, gram_characters, walked_duplicates
from corpusmill.pipeline.filter.text.view import Array, TextView, once, share
from corpusmill.pipeline.text import utf8
from corpusmill.pipeline.text.unicode_tables import (
    DIGIT,
    PUNCT,
    SENTENCE,
    SPACE,
    STOP,
    class_table,
    tool_table,
)
from corpusmill.pipeline.text.utf8 import before, decode, ends_in_ellipsis, is_at, is_just_at

# Columns of `c4_counts`.
KEPT_LINES: Final = 0
SENTENCES: Final = 1  # of the lines kept
LOREM_LINES: Final = 2  # lines with "lorem ipsum" that no rule on lines had dropped by then
BRACE_LINES: Final = 3  # such lines with {
COUNTS: Final = 4

LONG_WORD: Final = 1000
MIN_WORDS: Final = 3


@once
def lines_of(view: TextView) -> Segments:
    """The lines of `str.splitlines`, white space off."""
    return segments(view.data, view.offsets, SPLITLINES, strip=True)


@once
def c4_counts(view: TextView) -> Array:
    """int64[D, COUNTS]."""
    lines = lines_of(view)
    longest = int((lines.ends - lines.starts).max(initial=0))
    # A line without its citations, and its words: one place per byte.
    scratch = np.empty(longest, np.uint8)
    starts, ends = np.empty(longest + 1, np.int64), np.empty(longest + 1, np.int64)
    counts = np.zeros((len(view), COUNTS), np.int64)
    _count(
        view.data, lines.offsets, lines.starts, lines.ends, class_table(), tool_table(), known_words(),
        known_units(), scratch, starts, ends, counts,
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
    if is_just_at(data, i, i, last, utf8.EDIT):
        return len(utf8.EDIT)
    return len(utf8.NEEDED) if is_just_at(data, i, i, last, utf8.NEEDED) else 0


@compiled
def _line_words(data: Any, a: int, b: int, table: Any) -> Any:
    """(words of the line, characters of the longest, whether it has a bracket)."""
    words, size, longest, i, bracket = 0, 0, 0, a, False
    while i < b:
        point, width = decode(data, i)
        if table[point] & SPACE:
            size = 0
        else:
            words += size == 0
            size += 1
            longest = max(longest, size)
            bracket |= point == 91
        i += width
    return words, longest, bracket


@compiled
def _well_ended(line: Any, first: int, last: int) -> Any:
    """Whether the line ends in one of . ? ! " ' and not in three full stops."""
    if first == last:
        return False
    b = line[last - 1]
    if b == 46:
        return not ends_in_ellipsis(line, first, last)
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


# What a line holds.
_LOREM, _SCRIPT, _BRACE, _POLICY = 1, 2, 4, 8


@compiled
def _held(line: Any, first: int, last: int) -> int:
    """Bits of what [first, last) holds, in either case, in one pass."""
    seen = 0
    for i in range(first, last):
        b = line[i]
        if b < 99:  # below c, but for capitals
            if b < 67 or b > 85:
                continue
            b |= 32
        if b == 99:
            seen |= _POLICY * is_at(line, i, first, last, utf8.COOKIE)
        elif b == 106:
            seen |= _SCRIPT * is_at(line, i, first, last, utf8.JAVASCRIPT)
        elif b == 108:
            seen |= _LOREM * is_at(line, i, first, last, utf8.LOREM)
        elif b == 112:
            seen |= _POLICY * is_at(line, i, first, last, utf8.PRIVACY)
        elif b == 116:
            seen |= _POLICY * is_at(line, i, first, last, utf8.TERMS)
        elif b == 117:
            uses = is_at(line, i, first, last, utf8.USES) or is_at(line, i, first, last, utf8.USE_OF)
            seen |= _POLICY * (uses or is_at(line, i, first, last, utf8.USE))
        elif b == 123:
            seen |= _BRACE
    return seen


@compiled
def _judged(
    line: Any, first: int, last: int, words: int, table: Any, known: Any, units: Any, starts: Any, ends: Any, row: Any
) -> None:  # fmt: skip
    """Count a line without citations; `words` are those that it had with them."""
    if not _well_ended(line, first, last) or words < MIN_WORDS:
        return
    seen = _held(line, first, last)
    if seen & _LOREM:
        row[LOREM_LINES] += 1
    elif seen & _SCRIPT:
        return
    elif seen & _BRACE:
        row[BRACE_LINES] += 1
    elif not seen & _POLICY:
        row[KEPT_LINES] += 1
        n = words_of(line, first, last, table, known, units, starts, ends, 0)
        row[SENTENCES] += _sentences(line, starts, ends, n, table)


@compiled
def _count(
    data: Any, offsets: Any, line_starts: Any, line_ends: Any, classes: Any, table: Any, known: Any, units: Any,
    line: Any, starts: Any, ends: Any, counts: Any,
) -> None:  # fmt: skip
    for d in range(len(offsets) - 1):
        row = counts[d]
        for k in range(offsets[d], offsets[d + 1]):
            a, b = line_starts[k], line_ends[k]
            words, longest_word, bracket = _line_words(data, a, b, table)
            if longest_word > LONG_WORD:
                continue
            if not bracket:
                _judged(data, a, b, words, table, known, units, starts, ends, row)
                continue
            size, i = 0, a
            while i < b:
                cited = _citation(data, i, b, classes) if data[i] == 91 else 0
                if cited:
                    i += cited
                    continue
                line[size] = data[i]
                size, i = size + 1, i + 1
            _judged(line, 0, size, words, table, known, units, starts, ends, row)


SHORT_LINE: Final = 30


@once
def line_counts(view: TextView) -> Array:
    """int64[D, 3]: lines of `str.splitlines` that start with • or -; that end in ... or …; all of them."""
    lines = lines_of(view)
    found = marked(view.data, lines, ("•", "-"), ("...", "…"))
    return np.column_stack([found, np.diff(lines.offsets)])


@once
def mark_counts(view: TextView) -> Array:
    """int64[D, 2]: hash signs; "..." and "…", each counted from the left."""
    return np.asarray(_marks(view.data, view.offsets))


@once
def grams(view: TextView) -> Array:
    """int64[D, 9]: characters of the top and duplicate n-grams."""
    words = spacy_words.tokens(view)
    found: Array = gram_characters(words.hashes, words.chars, words.offsets, DATATROVE)[0]
    found[:, 3:] = walked_duplicates(words.joins, words.powers, words.chars, words.offsets)
    return found


@once
def line_repeats(view: TextView) -> Array:
    """int64[D, 6]: `repeats` of the lines between runs of line feeds."""
    return repeats(segments(view.data, view.offsets, NEWLINES))


@once
def paragraph_repeats(view: TextView) -> Array:
    """int64[D, 6]: `repeats` of the paragraphs."""
    return repeats(segments(view.data, view.offsets, BLANK_LINES))


@once
def fineweb_lines(view: TextView) -> Array:
    """int64[D, 4]: lines that are not blank; with a sentence mark at the very end; of up to 30 characters; characters
    of later copies."""
    lines = segments(view.data, view.offsets, NEWLINE, blank=False)
    counts = np.zeros((len(view), 4), np.int64)
    _count_lines(view.data, lines.offsets, lines.starts, lines.ends, lines.chars, tool_table(), counts)
    counts[:, 3] = repeats(lines)[:, 3]
    return counts


@compiled
def _marks(data: Any, offsets: Any) -> Any:
    out = np.zeros((len(offsets) - 1, 2), np.int64)
    for d in range(len(offsets) - 1):
        i, last = offsets[d], offsets[d + 1]
        while i < last:
            b = data[i]
            out[d, 0] += b == 35
            if b == 46 and i + 2 < last and data[i + 1] == 46 and data[i + 2] == 46:
                out[d, 1] += 1
                i += 2
            elif b == 0xE2 and data[i + 1] == 0x80 and data[i + 2] == 0xA6:
                out[d, 1] += 1
            i += 1
    return out


@compiled
def _count_lines(data: Any, offsets: Any, starts: Any, ends: Any, chars: Any, table: Any, out: Any) -> None:
    for d in range(len(offsets) - 1):
        for line in range(offsets[d], offsets[d + 1]):
            i = before(data, starts[line], ends[line])
            out[d, 0] += 1
            out[d, 1] += (table[decode(data, i)[0]] & STOP) != 0
            out[d, 2] += chars[line] <= SHORT_LINE


def _ratio(table: Measure, part: int, whole: Measure) -> Measure:
    return ratio(column(table, part), whole)


def _chars(view: TextView) -> Array:
    return view.count(scan.CHARS)


def _token(column: int) -> Measure:
    return lambda v: spacy_words.tokens(v).counts[:, column]


def _all_words(view: TextView) -> Array:
    return np.diff(spacy_words.tokens(view).offsets)


def _stop_words(view: TextView) -> Array:
    return np.asarray((_token(spacy_words.STOPS)(view)[:, None] >> np.arange(8) & 1).sum(axis=1))


_gopher = family("gopher_datatrove", "datatrove 0.10, GopherQualityFilter", on_demand=True)
_gopher("word_count", "words of other than symbols", _token(spacy_words.WORDS), dtype="int")
_gopher("mean_word_length", "characters", ratio(_token(spacy_words.WORD_CHARS), _token(spacy_words.WORDS)))
_gopher("hash_ratio", "hash signs per word", _ratio(mark_counts, 0, _all_words))
_gopher("ellipsis_ratio", "'...' and '…' per word", _ratio(mark_counts, 1, _all_words))
for _value, _unit, _measure in (
    (
        "bullet_lines", "lines that start with • or -, blank lines too",
        _ratio(line_counts, 0, column(line_counts, 2)),
    ),
    (
        "ellipsis_lines", "lines that end in '...' or '…', blank lines too",
        _ratio(line_counts, 1, column(line_counts, 2)),
    ),
    (
        "alpha_words", "words with a letter, punctuation being words too",
        ratio(_token(spacy_words.ALPHA_WORDS), _all_words),
    ),
):  # fmt: skip
    _gopher(_value, f"share of {_unit}", _measure, range=SHARE)
_gopher(
    "stop_words",
    "distinct words of the, be, to, of, and, that, have, with, in lower case",
    _stop_words,
    dtype="int",
    range=(0, 8),
)
_repetition = family("gopher_datatrove", "datatrove 0.10, GopherRepetitionFilter", on_demand=True)
for _kind, _table in (("line", line_repeats), ("para", paragraph_repeats)):
    _copies, _characters = _ratio(_table, 2, column(_table, 0)), _ratio(_table, 3, _chars)
    _repetition(f"dup_{_kind}_frac", "share of segments that are later copies", _copies, range=SHARE)
    _repetition(
        f"dup_{_kind}_chars", "characters of later copies, share of the text", _characters, range=SHARE
    )
for _n in range(2, 11):
    # Of two words with a wide space between, n-gram and its single space are longer than the text: no share.
    _gram = f"{'top' if _n < 5 else 'dup'}_{_n}_gram"
    _repetition(_gram, "characters per character of the text", _ratio(grams, _n - 2, _chars))


_c4 = family("c4_datatrove", "datatrove 0.10, C4QualityFilter", on_demand=True)
for _value, _unit, _place in (
    ("kept_lines", "lines that its rules on lines keep", KEPT_LINES),
    ("kept_sentences", "sentences in those lines", SENTENCES),
    ("lorem_ipsum", "lines with 'lorem ipsum', of those kept so far", LOREM_LINES),
    ("curly_brackets", "lines with '{', of those kept so far", BRACE_LINES),
):
    _c4(_value, _unit, column(c4_counts, _place), dtype="int", version="2")


def _new_lines(view: TextView) -> Array:
    return view.count(scan.NEWLINES)


_fineweb = family("fineweb_datatrove", "datatrove 0.10, FineWebQualityFilter", on_demand=True)
for _value, _unit, _measure in (
    (
        "line_punct_ratio", "lines whose last character is a sentence mark",
        _ratio(fineweb_lines, 1, column(fineweb_lines, 0)),
    ),
    (
        "short_line_ratio", "lines of at most 30 characters, white space too",
        _ratio(fineweb_lines, 2, column(fineweb_lines, 0)),
    ),
    (
        "char_dup_ratio", "characters, line feeds left out, in later copies",
        _ratio(fineweb_lines, 3, lambda v: _chars(v) - _new_lines(v)),
    ),
):  # fmt: skip
    _fineweb(_value, f"share of {_unit}", _measure, range=SHARE)
_fineweb("newline_ratio", "line feeds per word", lambda v: share(_new_lines(v), _all_words(v)))
