"""Gopher's rules as three tools read them, each signal as its tool's code has it:

- `gopher_dolma`: the values of Dolma's `gopher_v1` tagger (`dolma/taggers/gopher.py`, 1.2);
- `gopher_dclm`: what DCLM's Gopher filters look at (`baselines/mappers/filters/content_filters.py`, 2024);
- `gopher_nemo`: what NeMo Curator's filters after Gopher look at (`nemo_curator/stages/text/filters/heuristic`, 1.4). Of
  n-grams that are equally frequent NeMo takes the one that Python's hash seed brings first; here it is the first in the text.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals import white_words as words
from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, column, family, ratio
from corpusmill.pipeline.filter.signals.segments import NEWLINE, TWO_NEWLINES, marked, repeats, segments
from corpusmill.pipeline.filter.signals.white_words import (
    unicode_words,
    white_words,
    word_characters,
    word_total,
)
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.repetition import DCLM, DOLMA, NEMO, all_gram_characters, gram_characters
from corpusmill.pipeline.filter.text.view import Array, TextView, once, per_document, share

_dolma = family("gopher_dolma", "Dolma 1.2, tagger gopher_v1", on_demand=True)
_dclm = family("gopher_dclm", "DCLM-baseline, content_filters.py", on_demand=True)
_nemo = family("gopher_nemo", "NeMo Curator 1.4, ", on_demand=True)

_BULLETS: Final = "•‣⁃⁌⁍∙○●◘◦⦾⦿"  # NeMo's
_ENDS: Final = (*words.OMISSIONS, "read more..", "read more")  # of lines, in either case

# Columns of what is counted of lines and paragraphs: those of `repeats`; of lines also those that begin with a bullet and
# those that end in an ellipsis.
SEGMENTS, CHARS, LATER, LATER_CHARS, SEVERAL, SEVERAL_CHARS, BULLETS, ELLIPSES = range(8)


def _ratio(table: Measure, part: int, whole: int) -> Measure:
    return ratio(column(table, part), column(table, whole))


def _stays(table: Measure, later: int, whole: int) -> Measure:
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


def _median_word_length(view: TextView) -> Array:
    return np.asarray(_medians(white_words(view).chars, white_words(view).offsets))


_dolma("word_count", "words", word_total, dtype="int")
_dolma("median_word_length", "characters, median", _median_word_length)
_dolma("symbol_ratio", "share of words with # or …", _per_word(words.MARKED), range=SHARE)
_dolma("alpha_words", "share of words with a letter", _per_word(words.ALPHA_WORDS), range=SHARE)
_dolma(
    "stop_words", "occurrences of the, be, to, of, and, that, have, with", _words(words.STOPS), dtype="int"
)
for _value, _unit, _part in (
    ("bullet_lines", "whose first character is * or -, blank lines too", BULLETS),
    ("ellipsis_lines", "whose last character is …, blank lines too", ELLIPSES),
    ("dup_line_frac", "that come twice, all copies and blank lines", SEVERAL),
):
    _dolma(_value, f"share of lines {_unit}", _ratio(_dolma_lines, _part, SEGMENTS), range=SHARE)
_dolma(
    "dup_line_chars",
    "characters of those per character of the words: more than 1 where lines hold white space",
    lambda v: share(_dolma_lines(v)[:, SEVERAL_CHARS], word_characters(v)),
)
_overlaps = "characters per character of the words, overlaps counted twice"
for _n in (2, 3, 4):
    # "a a a": the 2-gram occurs twice, with four characters of three.
    _dolma(f"top_{_n}_gram", _overlaps, column(_dolma_grams, _n - 2))
for _n in range(5, 11):
    _unit = "share of the characters of all such n-grams, all copies"
    _dolma(f"dup_{_n}_gram", _unit, column(_dolma_grams, _n - 2), range=SHARE)


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


def _without_letter(view: TextView) -> Array:
    return share(word_total(view) - white_words(view).counts[:, words.ALPHA_WORDS], word_total(view))


_dclm(
    "word_count",
    "words of UAX #29 that begin with a letter or digit",
    lambda v: np.diff(unicode_words(v).offsets),
    dtype="int",
)
_dclm("mean_word_length", "characters", _mean_word_length)
_dclm("symbol_ratio", "#, '...', '. . .' and '…' per word", _per_word(words.MARKS))
for _value, _unit, _measure in (
    ("bullet_lines", "lines that start with one of ● • * -", _ratio(_dclm_lines, BULLETS, SEGMENTS)),
    ("ellipsis_lines", "lines that end in '...', '. . .' or '…'", _ratio(_dclm_lines, ELLIPSES, SEGMENTS)),
    ("non_alpha_words", "words without a letter", _without_letter),
):
    _dclm(_value, f"share of {_unit}", _measure, range=SHARE)
_dclm(
    "stop_words",
    "occurrences of the, be, to, of, and, that, have, with, in either case",
    _words(words.STOPS_LOWER),
    dtype="int",
)
for _value, _unit, _measure in (
    ("line_frac", "lines that come twice", _ratio(_dclm_lines, SEVERAL, SEGMENTS)),
    ("para_frac", "paragraphs that come twice", _ratio(_dclm_paragraphs, SEVERAL, SEGMENTS)),
    ("line_chars", "the lines' characters", _ratio(_dclm_lines, SEVERAL_CHARS, CHARS)),
    ("para_chars", "the paragraphs' characters", _ratio(_dclm_paragraphs, SEVERAL_CHARS, CHARS)),
):
    _dclm(f"dup_{_value}", f"share of {_unit}, all copies", _measure, range=SHARE)
for _n in (2, 3, 4):
    _dclm(f"top_{_n}_gram", _overlaps, column(_dclm_grams, _n - 2))
for _n in range(5, 11):
    _unit = "share of the words' characters, all copies"
    _dclm(f"dup_{_n}_gram", _unit, column(_dclm_grams, _n - 2), range=SHARE)


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
        for top in range(3):
            if places[d, top] < 0:
                continue
            first = word_offsets[d] + places[d, top]
            last = first + top + 2
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
            characters[d, top] = total


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
    _nemo(_name, _unit, _measure, _filter, dtype=_dtype, range=_range)
for _n in range(2, 11):
    _kind, _filter, _unit = (
        ("top", "RepeatingTopNGramsFilter", "that go with it")
        if _n < 5
        else ("dup", "RepeatingDuplicateNGramsFilter", "in later copies")
    )
    _grams = column(_nemo_grams, _n - 2)
    _nemo(f"{_kind}_{_n}_gram", f"share of characters {_unit}", _grams, _filter, range=SHARE)
