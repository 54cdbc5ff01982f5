"""Gopher's rules as three tools read them, each signal as its tool's code has it:

- `gopher_dolma`: the values of Dolma's `gopher_v1` tagger (`dolma/taggers/gopher.py`, 1.2);
- `gopher_dclm`: what DCLM's Gopher filters look at (`baselines/mappers/filters/content_filters.py`, 2024);
- `gopher_nemo`: what NeMo Curator's filters after Gopher look at (`nemo_curator/stages/text/filters/heuristic`, 1.4). Of
  n-grams that are equally frequent NeMo takes the one that Python's hash seed brings first; here it is the first in the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals import white_words as words
from corpusmill.pipeline.filter.signals.grams import (
    DCLM,
    DOLMA,
    NEMO,
    all_gram_characters,
    gram_characters,
)
from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, signal
from corpusmill.pipeline.filter.signals.segments import (
    NEWLINE,
    TWO_NEWLINES,
    marked,
    repeats,
    segments,
)
from corpusmill.pipeline.filter.signals.white_words import (
    unicode_words,
    white_words,
    word_characters,
    word_total,
)
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import TextView, once, per_document, share

Array = npt.NDArray[Any]
Table = Callable[[TextView], Array]

_DOLMA: Final = "Dolma 1.2, tagger gopher_v1"
_DCLM: Final = "DCLM-baseline, content_filters.py"
_NEMO: Final = "NeMo Curator 1.4, {}"

_BULLETS: Final = "•‣⁃⁌⁍∙○●◘◦⦾⦿"  # NeMo's
_ENDS: Final = (*words.OMISSIONS, "read more..", "read more")  # of lines, in either case

# Columns of what is counted of lines and paragraphs: those of `repeats`; of lines also those that begin with a bullet and
# those that end in an ellipsis.
SEGMENTS, CHARS, LATER, LATER_CHARS, SEVERAL, SEVERAL_CHARS, BULLETS, ELLIPSES = range(8)


def _signal(
    name: str, unit: str, origin: str, measure: Measure, dtype: Any = "float", range: Any = (0.0, None)
) -> None:
    signal(name, unit, origin, dtype, range, on_demand=True)(measure)


def _ratio(table: Table, part: int, whole: int) -> Measure:
    return lambda v: share(table(v)[:, part], table(v)[:, whole])


def _column(table: Table, column: int) -> Measure:
    return lambda v: table(v)[:, column]


def _stays(table: Table, later: int, whole: int) -> Measure:
    """The share that stays when later copies go; 1 where there is nothing."""
    return lambda v: 1.0 - share(table(v)[:, later], table(v)[:, whole])


def _words(column: int) -> Measure:
    """A count of the words between white space."""
    return lambda v: white_words(v).counts[:, column]


def _per_word(column: int) -> Measure:
    return lambda v: share(white_words(v).counts[:, column], word_total(v))


def _mean_word_length(view: TextView) -> Array:
    return share(word_characters(view), word_total(view))


@compiled
def _medians(chars: Any, offsets: Any) -> Any:
    out = np.zeros(len(offsets) - 1, np.float64)
    for d in range(len(offsets) - 1):
        if offsets[d + 1] > offsets[d]:
            out[d] = np.median(chars[offsets[d] : offsets[d + 1]])
    return out


@once
def _dolma_lines(view: TextView) -> Array:
    """int64[D, 8]: all lines; those that start with * or -, that end in …."""
    lines = segments(view.data, view.offsets, NEWLINE)
    return np.column_stack([repeats(lines), marked(view.data, lines, "*-", "…")])


@once
def _dolma_grams(view: TextView) -> Array:
    """float64[D, 9]: shares of the top and duplicate n-grams."""
    found = white_words(view)
    characters, _ = gram_characters(found.hashes, found.chars, found.offsets, DOLMA)
    whole = all_gram_characters(found.chars, found.offsets)
    shares = [share(characters[:, n], word_characters(view)) for n in range(3)]
    shares += [share(characters[:, n + 3], whole[:, n]) for n in range(6)]
    return np.stack(shares, axis=1)


_signal("gopher_dolma.word_count", "words", _DOLMA, word_total, "int")
_signal(
    "gopher_dolma.median_word_length", "characters, median", _DOLMA,
    lambda v: _medians(white_words(v).chars, white_words(v).offsets),
)  # fmt: skip
_signal(
    "gopher_dolma.symbol_ratio", "share of words with # or …", _DOLMA, _per_word(words.MARKED), range=SHARE
)
_signal(
    "gopher_dolma.alpha_words", "share of words with a letter", _DOLMA, _per_word(words.ALPHA_WORDS), range=SHARE
)  # fmt: skip
_signal(
    "gopher_dolma.stop_words", "occurrences of the, be, to, of, and, that, have, with", _DOLMA,
    _words(words.STOPS), "int",
)  # fmt: skip
_signal(
    "gopher_dolma.bullet_lines", "share of lines whose first character is * or -, blank lines too", _DOLMA,
    _ratio(_dolma_lines, BULLETS, SEGMENTS), range=SHARE,
)  # fmt: skip
_signal(
    "gopher_dolma.ellipsis_lines", "share of lines whose last character is …, blank lines too", _DOLMA,
    _ratio(_dolma_lines, ELLIPSES, SEGMENTS), range=SHARE,
)  # fmt: skip
_signal(
    "gopher_dolma.dup_line_frac", "share of lines that come twice, all copies and blank lines", _DOLMA,
    _ratio(_dolma_lines, SEVERAL, SEGMENTS), range=SHARE,
)  # fmt: skip
_signal(
    "gopher_dolma.dup_line_chars",
    "characters of those per character of the words: more than 1 where lines hold white space", _DOLMA,
    lambda v: share(_dolma_lines(v)[:, SEVERAL_CHARS], word_characters(v)),
)  # fmt: skip
for _n in (2, 3, 4):
    # "a a a": the 2-gram occurs twice, with four characters of three.
    _signal(
        f"gopher_dolma.top_{_n}_gram", "characters per character of the words, overlaps counted twice", _DOLMA,
        _column(_dolma_grams, _n - 2),
    )  # fmt: skip
for _n in range(5, 11):
    _signal(
        f"gopher_dolma.dup_{_n}_gram", "share of the characters of all such n-grams, all copies", _DOLMA,
        _column(_dolma_grams, _n - 2), range=SHARE,
    )  # fmt: skip


@once
def _dclm_lines(view: TextView) -> Array:
    """int64[D, 8]: lines that are not blank; those that start with one of ● • * -, that end in an ellipsis."""
    lines = segments(view.data, view.offsets, NEWLINE, strip=True, blank=False)
    return np.column_stack([repeats(lines), marked(view.data, lines, "●•*-", ("...", ". . .", "…"))])


@once
def _dclm_paragraphs(view: TextView) -> Array:
    """int64[D, 6]: paragraphs."""
    return repeats(segments(view.data, view.offsets, TWO_NEWLINES, strip=True, blank=False))


@once
def _dclm_grams(view: TextView) -> Array:
    """float64[D, 9]: shares of the top and duplicate n-grams."""
    found = unicode_words(view)
    characters, _ = gram_characters(found.hashes, found.chars, found.offsets, DCLM)
    whole = per_document(found.chars, found.offsets)
    return np.stack([share(characters[:, n], whole) for n in range(9)], axis=1)


_signal(
    "gopher_dclm.word_count", "words of UAX #29 that begin with a letter or digit", _DCLM,
    lambda v: np.diff(unicode_words(v).offsets), "int",
)  # fmt: skip
_signal("gopher_dclm.mean_word_length", "characters", _DCLM, _mean_word_length)
_signal(
    "gopher_dclm.symbol_ratio", "#, '...', '. . .' and '…' per word", _DCLM, _per_word(words.MARKS)
)  # fmt: skip
_signal(
    "gopher_dclm.bullet_lines", "share of lines that start with one of ● • * -", _DCLM,
    _ratio(_dclm_lines, BULLETS, SEGMENTS), range=SHARE,
)  # fmt: skip
_signal(
    "gopher_dclm.ellipsis_lines", "share of lines that end in '...', '. . .' or '…'", _DCLM,
    _ratio(_dclm_lines, ELLIPSES, SEGMENTS), range=SHARE,
)  # fmt: skip
_signal(
    "gopher_dclm.non_alpha_words", "share of words without a letter", _DCLM,
    lambda v: share(word_total(v) - white_words(v).counts[:, words.ALPHA_WORDS], word_total(v)), range=SHARE,
)  # fmt: skip
_signal(
    "gopher_dclm.stop_words", "occurrences of the, be, to, of, and, that, have, with, in either case", _DCLM,
    _words(words.STOPS_LOWER), "int",
)  # fmt: skip
for _unit, _name, _table in (("line", "lines", _dclm_lines), ("para", "paragraphs", _dclm_paragraphs)):
    _signal(
        f"gopher_dclm.dup_{_unit}_frac", f"share of {_name} that come twice, all copies", _DCLM,
        _ratio(_table, SEVERAL, SEGMENTS), range=SHARE,
    )  # fmt: skip
for _unit, _name, _table in (("line", "lines", _dclm_lines), ("para", "paragraphs", _dclm_paragraphs)):
    _signal(
        f"gopher_dclm.dup_{_unit}_chars", f"share of the {_name}' characters, all copies", _DCLM,
        _ratio(_table, SEVERAL_CHARS, CHARS), range=SHARE,
    )  # fmt: skip
for _n in (2, 3, 4):
    _signal(
        f"gopher_dclm.top_{_n}_gram", "characters per character of the words, overlaps counted twice", _DCLM,
        _column(_dclm_grams, _n - 2),
    )  # fmt: skip
for _n in range(5, 11):
    _signal(
        f"gopher_dclm.dup_{_n}_gram", "share of the words' characters, all copies", _DCLM,
        _column(_dclm_grams, _n - 2), range=SHARE,
    )  # fmt: skip


@once
def _nemo_lines(view: TextView) -> Array:
    """int64[D, 8]: lines that are not blank; those that start with a bullet, that end in an ellipsis."""
    lines = segments(view.data, view.offsets, NEWLINE, blank=False)
    return np.column_stack([repeats(lines), marked(view.data, lines, _BULLETS, _ENDS, strip=True)])


@once
def _nemo_paragraphs(view: TextView) -> Array:
    """int64[D, 6]: what stands between two line feeds, nothing at all included."""
    return repeats(segments(view.data, view.offsets, TWO_NEWLINES))


@once
def _nemo_grams(view: TextView) -> Array:
    """float64[D, 9]: shares of the top and duplicate n-grams; 1 where there are fewer than n words."""
    found = white_words(view)
    characters, places = gram_characters(found.hashes, found.chars, found.offsets, NEMO)
    removed(view.data, view.offsets, found.offsets, found.starts, found.ends, places, characters)
    shares = [share(characters[:, n], view.count(k.CHARS)) for n in range(9)]
    return np.stack([np.where(word_total(view) < n + 2, 1.0, own) for n, own in enumerate(shares)], axis=1)


@compiled
def removed(
    data: Any, offsets: Any, word_offsets: Any, starts: Any, ends: Any, places: Any, characters: Any
) -> None:
    """Write to `characters[:, 0:3]` how many characters `text.replace(n-gram, "")` takes out: the n-gram with
    single spaces wherever it stands, inside longer words too, not where white space is wider."""
    for d in range(len(offsets) - 1):
        for column in range(3):
            if places[d, column] < 0:
                continue
            first = word_offsets[d] + places[d, column]
            last = first + column + 2
            size = last - first - 1
            for w in range(first, last):
                size += ends[w] - starts[w]
            gram, border = np.empty(size, np.uint8), np.zeros(size, np.int64)
            n, chars = 0, 0
            for w in range(first, last):
                if n:
                    gram[n] = 32
                    n += 1
                for i in range(starts[w], ends[w]):
                    gram[n] = data[i]
                    n += 1
            for i in range(size):
                chars += (gram[i] & 0xC0) != 0x80
            # Knuth, Morris, Pratt: linear whatever the text repeats.
            matched = 0
            for i in range(1, size):
                while matched and gram[i] != gram[matched]:
                    matched = border[matched - 1]
                matched += gram[i] == gram[matched]
                border[i] = matched
            matched, total = 0, 0
            for i in range(offsets[d], offsets[d + 1]):
                while matched and data[i] != gram[matched]:
                    matched = border[matched - 1]
                matched += data[i] == gram[matched]
                if matched == size:
                    total += chars
                    matched = 0
            characters[d, column] = total


for _name, _unit, _filter, _measure, _dtype, _range in (
    ("word_count", "words", "WordCountFilter", word_total, "int", (0.0, None)),
    ("mean_word_length", "characters", "MeanWordLengthFilter", _mean_word_length, "float", (0.0, None)),
    ("symbol_ratio", "share of words that are an ellipsis, or # for more than a half", "SymbolsToWordsFilter",
     _per_word(words.SYMBOLS), "float", SHARE),
    ("bullet_lines", "share of lines that start with one of 12 bullets, - and * not among them", "BulletsFilter",
     _ratio(_nemo_lines, BULLETS, SEGMENTS), "float", SHARE),
    ("ellipsis_lines", "share of lines that end in one of 8 marks, such as 'read more'", "EllipsisFilter",
     _ratio(_nemo_lines, ELLIPSES, SEGMENTS), "float", SHARE),
    ("alpha_words", "share of words with a letter", "WordsWithoutAlphabetsFilter",
     _per_word(words.ALPHA_WORDS), "float", SHARE),
    ("stop_words", "occurrences of the, be, to, of, and, that, have, with", "CommonEnglishWordsFilter",
     _words(words.STOPS), "int", (0.0, None)),
    ("unique_line_frac", "share of lines that stay without later copies", "RepeatedLinesFilter",
     _stays(_nemo_lines, LATER, SEGMENTS), "float", SHARE),
    ("unique_para_frac", "share of paragraphs that stay without later copies", "RepeatedParagraphsFilter",
     _stays(_nemo_paragraphs, LATER, SEGMENTS), "float", SHARE),
    ("unique_line_chars", "share of the lines' characters that stay", "RepeatedLinesByCharFilter",
     _stays(_nemo_lines, LATER_CHARS, CHARS), "float", SHARE),
    ("unique_para_chars", "share of the paragraphs' characters that stay", "RepeatedParagraphsByCharFilter",
     _stays(_nemo_paragraphs, LATER_CHARS, CHARS), "float", SHARE),
):  # fmt: skip
    _signal(f"gopher_nemo.{_name}", _unit, _NEMO.format(_filter), _measure, _dtype, _range)
for _n in (2, 3, 4):
    _signal(
        f"gopher_nemo.top_{_n}_gram", "share of characters that go with it",
        _NEMO.format("RepeatingTopNGramsFilter"), _column(_nemo_grams, _n - 2), range=SHARE,
    )  # fmt: skip
for _n in range(5, 11):
    _signal(
        f"gopher_nemo.dup_{_n}_gram", "share of characters in later copies",
        _NEMO.format("RepeatingDuplicateNGramsFilter"), _column(_nemo_grams, _n - 2), range=SHARE,
    )  # fmt: skip
