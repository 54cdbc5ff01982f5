"""`gopher_datatrove`, `c4_datatrove` and `fineweb_datatrove`: what datatrove's four quality filters look at.

Definitions are those of its code (0.10: `pipeline/filters/gopher_quality_filter.py`, `gopher_repetition_filter.py`,
`c4_filters.py`, `fineweb_quality_filter.py`), with its English words (`spacy_words.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, signal
from corpusmill.pipeline.filter.signals.variants import c4_lines, tokens
from corpusmill.pipeline.filter.signals.variants.codepoints import STOP, bits
from corpusmill.pipeline.filter.signals.variants.grams import DATATROVE, gram_characters, walked_duplicates
from corpusmill.pipeline.filter.signals.variants.segments import (
    BLANK_LINES,
    NEWLINE,
    NEWLINES,
    SPLITLINES,
    marked,
    repeats,
    segments,
)
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import TextView, once, share
from corpusmill.pipeline.text.utf8 import before, decode

Array = npt.NDArray[Any]
ORIGIN: Final = "datatrove 0.10, {}"
GOPHER: Final = ORIGIN.format("GopherQualityFilter")
REPETITION: Final = ORIGIN.format("GopherRepetitionFilter")
C4: Final = ORIGIN.format("C4QualityFilter")
FINEWEB: Final = ORIGIN.format("FineWebQualityFilter")
SHORT_LINE: Final = 30


def _signal(
    name: str, unit: str, origin: str, measure: Measure, dtype: Any = "float", range: Any = (0.0, None),
    version: str = "1",
) -> None:  # fmt: skip
    signal(name, unit, origin, dtype, range, version, on_demand=True)(measure)


@once
def line_counts(view: TextView) -> Array:
    """int64[D, 3]: lines of `str.splitlines` that start with • or -; that end in ... or …; all of them."""
    lines = segments(view.data, view.offsets, SPLITLINES, strip=True)
    found = marked(view.data, lines, ("•", "-"), ("...", "…"))
    return np.column_stack([found, np.diff(lines.offsets)])


@once
def mark_counts(view: TextView) -> Array:
    """int64[D, 2]: hash signs; "..." and "…", each counted from the left."""
    return _marks(view.data, view.offsets)


@once
def grams(view: TextView) -> Array:
    """int64[D, 9]: characters of the top and duplicate n-grams."""
    words = tokens.tokens(view)
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
    _fineweb(view.data, lines.offsets, lines.starts, lines.ends, lines.chars, bits(), counts)
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
def _fineweb(data: Any, offsets: Any, starts: Any, ends: Any, chars: Any, table: Any, out: Any) -> None:
    for d in range(len(offsets) - 1):
        for line in range(offsets[d], offsets[d + 1]):
            i = before(data, starts[line], ends[line])
            out[d, 0] += 1
            out[d, 1] += (table[decode(data, i)[0]] & STOP) != 0
            out[d, 2] += chars[line] <= SHORT_LINE


def _ratio(found: Callable[[TextView], Array], part: int, whole: Callable[[TextView], Array]) -> Measure:
    return lambda v: share(found(v)[:, part], whole(v))


def _column(found: Callable[[TextView], Array], column: int) -> Measure:
    return lambda v: found(v)[:, column]


def _chars(view: TextView) -> Array:
    return view.count(k.CHARS)


def _token(column: int) -> Measure:
    return lambda v: tokens.tokens(v).counts[:, column]


def _all_words(view: TextView) -> Array:
    return np.diff(tokens.tokens(view).offsets)


_NAME = "gopher_datatrove.{}".format
_signal(_NAME("word_count"), "words of other than symbols", GOPHER, _token(tokens.WORDS), "int")
_signal(
    _NAME("mean_word_length"), "characters", GOPHER,
    lambda v: share(tokens.tokens(v).counts[:, tokens.WORD_CHARS], tokens.tokens(v).counts[:, tokens.WORDS]),
)  # fmt: skip
_signal(_NAME("hash_ratio"), "hash signs per word", GOPHER, _ratio(mark_counts, 0, _all_words))
_signal(
    _NAME("ellipsis_ratio"), "'...' and '…' per word", GOPHER,
    _ratio(mark_counts, 1, _all_words),
)  # fmt: skip
_signal(
    _NAME("bullet_lines"), "share of lines that start with • or -, blank lines too", GOPHER,
    _ratio(line_counts, 0, _column(line_counts, 2)), range=SHARE,
)  # fmt: skip
_signal(
    _NAME("ellipsis_lines"), "share of lines that end in '...' or '…', blank lines too", GOPHER,
    _ratio(line_counts, 1, _column(line_counts, 2)), range=SHARE,
)  # fmt: skip
_signal(
    _NAME("alpha_words"), "share of words with a letter, punctuation being words too", GOPHER,
    lambda v: share(tokens.tokens(v).counts[:, tokens.ALPHA_WORDS], _all_words(v)), range=SHARE,
)  # fmt: skip
_signal(
    _NAME("stop_words"), "distinct words of the, be, to, of, and, that, have, with, in lower case", GOPHER,
    lambda v: (tokens.tokens(v).counts[:, tokens.STOPS, None] >> np.arange(8) & 1).sum(axis=1), "int", (0, 8),
)  # fmt: skip
for _unit, _repeats in (("line", line_repeats), ("para", paragraph_repeats)):
    _signal(
        _NAME(f"dup_{_unit}_frac"), "share of segments that are later copies", REPETITION,
        _ratio(_repeats, 2, _column(_repeats, 0)), range=SHARE,
    )  # fmt: skip
    _signal(
        _NAME(f"dup_{_unit}_chars"), "characters of later copies, share of the text", REPETITION,
        _ratio(_repeats, 3, _chars), range=SHARE,
    )  # fmt: skip
for _n in range(2, 11):
    _kind = "top" if _n < 5 else "dup"
    _signal(
        # Of two words with a wide space between, n-gram and its single space are longer than the text: no share.
        _NAME(f"{_kind}_{_n}_gram"), "characters per character of the text", REPETITION,
        _ratio(grams, _n - 2, _chars),
    )  # fmt: skip


for _value, _unit, _place in (
    ("kept_lines", "lines that its rules on lines keep", c4_lines.KEPT_LINES),
    ("kept_sentences", "sentences in those lines", c4_lines.SENTENCES),
    ("lorem_ipsum", "lines with 'lorem ipsum', of those kept so far", c4_lines.LOREM_LINES),
    ("curly_brackets", "lines with '{', of those kept so far", c4_lines.BRACE_LINES),
):
    _signal(f"c4_datatrove.{_value}", _unit, C4, _column(c4_lines.c4_counts, _place), "int", version="2")

_signal("fineweb_datatrove.line_punct_ratio", "share of lines whose last character is a sentence mark", FINEWEB,
        _ratio(fineweb_lines, 1, _column(fineweb_lines, 0)), range=SHARE)  # fmt: skip
_signal("fineweb_datatrove.short_line_ratio", "share of lines of at most 30 characters, white space too", FINEWEB,
        _ratio(fineweb_lines, 2, _column(fineweb_lines, 0)), range=SHARE)  # fmt: skip
_signal("fineweb_datatrove.char_dup_ratio", "share of characters, line feeds left out, in later copies", FINEWEB,
        lambda v: share(fineweb_lines(v)[:, 3], v.count(k.CHARS) - v.count(k.NEWLINES)), range=SHARE)  # fmt: skip
_signal("fineweb_datatrove.newline_ratio", "line feeds per word", FINEWEB,
        lambda v: share(v.count(k.NEWLINES), _all_words(v)))  # fmt: skip
