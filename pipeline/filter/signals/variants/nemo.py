"""`gopher_nemo`: what NeMo Curator's filters after Gopher look at (`nemo_curator/stages/text/filters/heuristic`, 1.4).

Of n-grams that are equally frequent NeMo takes whichever Python's hash seed brings first; here it is the first in the
text.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, signal
from corpusmill.pipeline.filter.signals.variants import white_words as words
from corpusmill.pipeline.filter.signals.variants.grams import NEMO, gram_characters
from corpusmill.pipeline.filter.signals.variants.segments import (
    NEWLINE,
    TWO_NEWLINES,
    marked,
    repeats,
    segments,
)
from corpusmill.pipeline.filter.signals.variants.white_words import white_words, word_characters, word_total
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import TextView, once, share

Array = npt.NDArray[Any]
ORIGIN: Final = "NeMo Curator 1.4, {}"

_BULLETS: Final = "•‣⁃⁌⁍∙○●◘◦⦾⦿"
_ENDS: Final = (*words.OMISSIONS, "read more..", "read more")  # of lines, in either case


def _signal(
    name: str, unit: str, filter_name: str, measure: Measure, dtype: Any = "float", range: Any = (0.0, None)
) -> None:
    signal(f"gopher_nemo.{name}", unit, ORIGIN.format(filter_name), dtype, range, on_demand=True)(measure)


@once
def _lines(view: TextView) -> tuple[Array, Array]:
    """(int64[D, 2]: lines that start with a bullet, that end in an ellipsis; int64[D, 6]: `repeats`)."""
    lines = segments(view.data, view.offsets, NEWLINE, blank=False)
    return marked(view.data, lines, _BULLETS, _ENDS, strip=True), repeats(lines)


@once
def _paragraphs(view: TextView) -> Array:
    """int64[D, 6]: `repeats` of what stands between two line feeds, nothing at all included."""
    return repeats(segments(view.data, view.offsets, TWO_NEWLINES))


@once
def _grams(view: TextView) -> Array:
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


def _gram(column: int) -> Measure:
    return lambda v: _grams(v)[:, column]


def _kept(counts: Array, unique: int, whole: int) -> Array:
    """Share that stays when later copies go; 1 where there is nothing."""
    return 1.0 - share(counts[:, unique], counts[:, whole])


_signal("word_count", "words", "WordCountFilter", word_total, "int")
_signal("mean_word_length", "characters", "MeanWordLengthFilter",
        lambda v: share(word_characters(v), word_total(v)))  # fmt: skip
_signal("symbol_ratio", "share of words that are an ellipsis, or # for more than a half", "SymbolsToWordsFilter",
        lambda v: share(white_words(v).counts[:, words.SYMBOLS], word_total(v)), range=SHARE)  # fmt: skip
_signal("bullet_lines", "share of lines that start with one of 12 bullets, - and * not among them", "BulletsFilter",
        lambda v: share(_lines(v)[0][:, 0], _lines(v)[1][:, 0]), range=SHARE)  # fmt: skip
_signal("ellipsis_lines", "share of lines that end in one of 8 marks, such as 'read more'", "EllipsisFilter",
        lambda v: share(_lines(v)[0][:, 1], _lines(v)[1][:, 0]), range=SHARE)  # fmt: skip
_signal("alpha_words", "share of words with a letter", "WordsWithoutAlphabetsFilter",
        lambda v: share(white_words(v).counts[:, words.ALPHA_WORDS], word_total(v)), range=SHARE)  # fmt: skip
_signal("stop_words", "occurrences of the, be, to, of, and, that, have, with", "CommonEnglishWordsFilter",
        lambda v: white_words(v).counts[:, words.STOPS], "int")  # fmt: skip
_signal("unique_line_frac", "share of lines that stay without later copies", "RepeatedLinesFilter",
        lambda v: _kept(_lines(v)[1], 2, 0), range=SHARE)  # fmt: skip
_signal("unique_para_frac", "share of paragraphs that stay without later copies", "RepeatedParagraphsFilter",
        lambda v: _kept(_paragraphs(v), 2, 0), range=SHARE)  # fmt: skip
_signal("unique_line_chars", "share of the lines' characters that stay", "RepeatedLinesByCharFilter",
        lambda v: _kept(_lines(v)[1], 3, 1), range=SHARE)  # fmt: skip
_signal("unique_para_chars", "share of the paragraphs' characters that stay", "RepeatedParagraphsByCharFilter",
        lambda v: _kept(_paragraphs(v), 3, 1), range=SHARE)  # fmt: skip
for _n in (2, 3, 4):
    _signal(f"top_{_n}_gram", "share of characters that go with it", "RepeatingTopNGramsFilter",
            _gram(_n - 2), range=SHARE)  # fmt: skip
for _n in range(5, 11):
    _signal(f"dup_{_n}_gram", "share of characters in later copies", "RepeatingDuplicateNGramsFilter",
            _gram(_n - 2), range=SHARE)  # fmt: skip
