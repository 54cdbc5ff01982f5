"""`gopher_dolma`: the values of Dolma's `gopher_v1` tagger (`dolma/taggers/gopher.py`, 1.2)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, signal
from corpusmill.pipeline.filter.signals.variants import white_words as words
from corpusmill.pipeline.filter.signals.variants.grams import DOLMA, all_gram_characters, gram_characters
from corpusmill.pipeline.filter.signals.variants.segments import NEWLINE, marked, repeats, segments
from corpusmill.pipeline.filter.signals.variants.white_words import white_words, word_characters, word_total
from corpusmill.pipeline.filter.text.view import TextView, once, share

Array = npt.NDArray[Any]
ORIGIN: Final = "Dolma 1.2, tagger gopher_v1"


def _signal(name: str, unit: str, measure: Measure, dtype: Any = "float", range: Any = (0.0, None)) -> None:
    signal(f"gopher_dolma.{name}", unit, ORIGIN, dtype, range, on_demand=True)(measure)


@once
def _lines(view: TextView) -> tuple[Array, Array]:
    """(int64[D, 2]: lines that start with * or -, that end in …; int64[D, 6]: `repeats` of all lines)."""
    lines = segments(view.data, view.offsets, NEWLINE)
    return marked(view.data, lines, "*-", "…"), repeats(lines)


@once
def _grams(view: TextView) -> Array:
    """float64[D, 9]: shares of the top and duplicate n-grams."""
    found = white_words(view)
    characters, _ = gram_characters(found.hashes, found.chars, found.offsets, DOLMA)
    whole = all_gram_characters(found.chars, found.offsets)
    shares = [share(characters[:, n], word_characters(view)) for n in range(3)]
    shares += [share(characters[:, n + 3], whole[:, n]) for n in range(6)]
    return np.stack(shares, axis=1)


@compiled
def _medians(chars: Any, offsets: Any) -> Any:
    out = np.zeros(len(offsets) - 1, np.float64)
    for d in range(len(offsets) - 1):
        if offsets[d + 1] > offsets[d]:
            out[d] = np.median(chars[offsets[d] : offsets[d + 1]])
    return out


def _per_word(column: int) -> Measure:
    return lambda v: share(white_words(v).counts[:, column], word_total(v))


def _gram(column: int) -> Measure:
    return lambda v: _grams(v)[:, column]


_signal("word_count", "words", word_total, "int")
_signal(
    "median_word_length",
    "characters, median",
    lambda v: _medians(white_words(v).chars, white_words(v).offsets),
)
_signal("symbol_ratio", "share of words with # or …", _per_word(words.MARKED), range=SHARE)
_signal("alpha_words", "share of words with a letter", _per_word(words.ALPHA_WORDS), range=SHARE)
_signal("stop_words", "occurrences of the, be, to, of, and, that, have, with",
        lambda v: white_words(v).counts[:, words.STOPS], "int")  # fmt: skip
_signal("bullet_lines", "share of lines whose first character is * or -, blank lines too",
        lambda v: share(_lines(v)[0][:, 0], _lines(v)[1][:, 0]), range=SHARE)  # fmt: skip
_signal("ellipsis_lines", "share of lines whose last character is …, blank lines too",
        lambda v: share(_lines(v)[0][:, 1], _lines(v)[1][:, 0]), range=SHARE)  # fmt: skip
_signal("dup_line_frac", "share of lines that come twice, all copies and blank lines",
        lambda v: share(_lines(v)[1][:, 4], _lines(v)[1][:, 0]), range=SHARE)  # fmt: skip
_signal("dup_line_chars", "characters of those per character of the words: more than 1 where lines hold white space",
        lambda v: share(_lines(v)[1][:, 5], word_characters(v)))  # fmt: skip
for _n in (2, 3, 4):
    # "a a a": the 2-gram occurs twice, with four characters of three.
    _signal(f"top_{_n}_gram", "characters per character of the words, overlaps counted twice", _gram(_n - 2))
for _n in range(5, 11):
    _signal(
        f"dup_{_n}_gram",
        "share of the characters of all such n-grams, all copies",
        _gram(_n - 2),
        range=SHARE,
    )
