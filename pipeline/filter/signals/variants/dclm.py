"""`gopher_dclm`: what DCLM's Gopher filters look at (`baselines/mappers/filters/content_filters.py`, 2024)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, signal
from corpusmill.pipeline.filter.signals.variants import white_words as words
from corpusmill.pipeline.filter.signals.variants.grams import DCLM, gram_characters
from corpusmill.pipeline.filter.signals.variants.segments import (
    NEWLINE,
    TWO_NEWLINES,
    marked,
    repeats,
    segments,
)
from corpusmill.pipeline.filter.signals.variants.unicode_words import unicode_words
from corpusmill.pipeline.filter.signals.variants.white_words import white_words, word_characters, word_total
from corpusmill.pipeline.filter.text.view import TextView, once, per_document, share

Array = npt.NDArray[Any]
ORIGIN: Final = "DCLM-baseline, content_filters.py"


def _signal(name: str, unit: str, measure: Measure, dtype: Any = "float", range: Any = (0.0, None)) -> None:
    signal(f"gopher_dclm.{name}", unit, ORIGIN, dtype, range, on_demand=True)(measure)


@once
def _lines(view: TextView) -> tuple[Array, Array]:
    """(int64[D, 2]: lines that start with one of ● • * -, that end in an ellipsis; int64[D, 6]: `repeats`)."""
    lines = segments(view.data, view.offsets, NEWLINE, strip=True, blank=False)
    return marked(view.data, lines, "●•*-", ("...", ". . .", "…")), repeats(lines)


@once
def _paragraphs(view: TextView) -> Array:
    """int64[D, 6]: `repeats` of the paragraphs."""
    return repeats(segments(view.data, view.offsets, TWO_NEWLINES, strip=True, blank=False))


@once
def _grams(view: TextView) -> Array:
    """float64[D, 9]: shares of the top and duplicate n-grams."""
    found = unicode_words(view)
    characters, _ = gram_characters(found.hashes, found.chars, found.offsets, DCLM)
    whole = per_document(found.chars, found.offsets)
    return np.stack([share(characters[:, n], whole) for n in range(9)], axis=1)


def _gram(column: int) -> Measure:
    return lambda v: _grams(v)[:, column]


_signal("word_count", "words of UAX #29 that begin with a letter or digit",
        lambda v: np.diff(unicode_words(v).offsets), "int")  # fmt: skip
_signal("mean_word_length", "characters", lambda v: share(word_characters(v), word_total(v)))
_signal("symbol_ratio", "#, '...', '. . .' and '…' per word",
        lambda v: share(white_words(v).counts[:, words.MARKS], word_total(v)))  # fmt: skip
_signal("bullet_lines", "share of lines that start with one of ● • * -",
        lambda v: share(_lines(v)[0][:, 0], _lines(v)[1][:, 0]), range=SHARE)  # fmt: skip
_signal("ellipsis_lines", "share of lines that end in '...', '. . .' or '…'",
        lambda v: share(_lines(v)[0][:, 1], _lines(v)[1][:, 0]), range=SHARE)  # fmt: skip
_signal("non_alpha_words", "share of words without a letter",
        lambda v: share(word_total(v) - white_words(v).counts[:, words.ALPHA_WORDS], word_total(v)), range=SHARE)  # fmt: skip
_signal("stop_words", "occurrences of the, be, to, of, and, that, have, with, in either case",
        lambda v: white_words(v).counts[:, words.STOPS_LOWER], "int")  # fmt: skip
_signal("dup_line_frac", "share of lines that come twice, all copies",
        lambda v: share(_lines(v)[1][:, 4], _lines(v)[1][:, 0]), range=SHARE)  # fmt: skip
_signal("dup_para_frac", "share of paragraphs that come twice, all copies",
        lambda v: share(_paragraphs(v)[:, 4], _paragraphs(v)[:, 0]), range=SHARE)  # fmt: skip
_signal("dup_line_chars", "share of the lines' characters, all copies",
        lambda v: share(_lines(v)[1][:, 5], _lines(v)[1][:, 1]), range=SHARE)  # fmt: skip
_signal("dup_para_chars", "share of the paragraphs' characters, all copies",
        lambda v: share(_paragraphs(v)[:, 5], _paragraphs(v)[:, 1]), range=SHARE)  # fmt: skip
for _n in (2, 3, 4):
    # "a a a": the 2-gram occurs twice, with four characters of three.
    _signal(f"top_{_n}_gram", "characters per character of the words, overlaps counted twice", _gram(_n - 2))
for _n in range(5, 11):
    _signal(f"dup_{_n}_gram", "share of the words' characters, all copies", _gram(_n - 2), range=SHARE)
