"""Every signal measured on the text alone. One small function each: a view in, a value a document out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.filter import kernels as k
from pipeline.filter.repetition import DUPLICATE, TOP
from pipeline.filter.view import TextView, share
from schemas.signals import SignalSpec

Measure = Callable[[TextView], npt.NDArray[Any]]
Dtype = Literal["float", "int", "bool", "string"]

MEASURES: dict[str, tuple[SignalSpec, Measure]] = {}

GOPHER = "Rae et al. 2021 (Gopher), arXiv:2112.11446, section A.1.1"
C4 = "Raffel et al. 2020 (C4), JMLR 21:140, section 2.2"
FINEWEB = "Penedo et al. 2024 (FineWeb), arXiv:2406.17557, section 3.6"
DATATROVE = "datatrove, text statistics"
SHARE = (0.0, 1.0)


def signal(
    name: str,
    unit: str,
    origin: str,
    dtype: Dtype = "float",
    range: tuple[float | None, float | None] = (0.0, None),
) -> Callable[[Measure], Measure]:
    """Register a function as the signal `name`: view -> array[D], finite and inside `range`."""

    def register(measure: Measure) -> Measure:
        if name in MEASURES:
            raise ValueError(f"signal {name} is defined twice")
        MEASURES[name] = (SignalSpec(name=name, dtype=dtype, unit=unit, range=range, origin=origin), measure)
        return measure

    return register


def text_specs() -> list[SignalSpec]:
    """The specs of all signals that need no model, in the order of their columns."""
    return [spec for spec, _ in MEASURES.values()]


def measure(view: TextView) -> dict[str, npt.NDArray[Any]]:
    """Every text signal of a view, by name."""
    return {name: function(view) for name, (_, function) in MEASURES.items()}


# --- the document as such -------------------------------------------------------------------------

signal("document.bytes", "UTF-8 bytes", DATATROVE, "int")(lambda v: np.diff(v.offsets))
signal("document.chars", "characters", DATATROVE, "int")(lambda v: v.count(k.CHARS))
signal("document.words", "words", DATATROVE, "int")(lambda v: v.words)
signal("document.lines", "lines that are not blank", DATATROVE, "int")(lambda v: v.lines)
signal("document.paragraphs", "paragraphs", DATATROVE, "int")(lambda v: v.paras)
signal("document.sentences", "sentences, by their last mark", DATATROVE, "int")(
    lambda v: v.lines_where(v.line_sentences)
)


def _of_chars(column: int) -> Measure:
    return lambda v: share(v.count(column), v.count(k.CHARS))


for _name, _column in (
    ("letters", k.ALPHAS),
    ("digits", k.DIGITS),
    ("uppercase", k.UPPERS),
    ("punctuation", k.PUNCTS),
    ("white_space", k.SPACES),
):
    signal(f"document.{_name}_ratio", "share of characters", DATATROVE, range=SHARE)(_of_chars(_column))


@signal("document.mean_line_length", "characters", DATATROVE)
def mean_line_length(view: TextView) -> npt.NDArray[Any]:
    """Characters per line, blank ones left out."""
    return share(view.lines_where(view.line_chars), view.lines)


# --- Gopher quality -------------------------------------------------------------------------------

signal("gopher.word_count", "words", GOPHER, "int")(lambda v: v.words)
signal("gopher.mean_word_length", "characters", GOPHER)(lambda v: share(v.all_word_chars, v.words))
signal("gopher.hash_ratio", "hash signs per word", GOPHER)(lambda v: share(v.count(k.HASHES), v.words))
signal("gopher.ellipsis_ratio", "'...' and '…' per word", GOPHER)(
    lambda v: share(v.count(k.ELLIPSES), v.words)
)


def _of_lines(flag: int) -> Measure:
    return lambda v: share(v.lines_where(v.line_flags & flag != 0), v.lines)


signal("gopher.bullet_lines", "share of lines that start with one of • ● * -", GOPHER, range=SHARE)(
    _of_lines(k.LINE_BULLET)
)
signal("gopher.ellipsis_lines", "share of lines that end in '...' or '…'", GOPHER, range=SHARE)(
    _of_lines(k.LINE_ELLIPSIS)
)
signal("gopher.alpha_words", "share of words with a letter", GOPHER, range=SHARE)(
    lambda v: share(v.count(k.ALPHA_WORDS), v.words)
)


@signal(
    "gopher.stop_words", "distinct words of the, be, to, of, and, that, have, with", GOPHER, "int", (0, 8)
)
def stop_words(view: TextView) -> npt.NDArray[Any]:
    """How many of the eight occur; upper case and the punctuation around a word play no part."""
    bits = view.count(k.STOPS)[:, None] >> np.arange(len(k.STOP_WORDS))
    total: npt.NDArray[Any] = (bits & 1).sum(axis=1)
    return total


# --- Gopher repetition ----------------------------------------------------------------------------

signal("gopher.dup_line_frac", "share of lines", GOPHER, range=SHARE)(
    lambda v: share(v.line_copies[:, 0], v.lines)
)
signal("gopher.dup_para_frac", "share of paragraphs", GOPHER, range=SHARE)(
    lambda v: share(v.para_copies[:, 0], v.paras)
)
signal("gopher.dup_line_chars", "share of characters", GOPHER, range=SHARE)(
    lambda v: share(v.line_copies[:, 1], v.count(k.CHARS))
)
signal("gopher.dup_para_chars", "share of characters", GOPHER, range=SHARE)(
    lambda v: share(v.para_copies[:, 1], v.count(k.CHARS))
)


def _ngram(column: int) -> Measure:
    return lambda v: v.ngrams[:, column]


for _n in TOP:
    signal(f"gopher.top_{_n}_gram", "share of the words' characters", GOPHER, range=SHARE)(_ngram(_n - 2))
for _n in DUPLICATE:
    signal(f"gopher.dup_{_n}_gram", "share of the words' characters", GOPHER, range=SHARE)(_ngram(_n - 2))


# --- C4 -------------------------------------------------------------------------------------------

C4_MIN_WORDS = 3  # of a line that C4 keeps


def c4_lines(view: TextView) -> npt.NDArray[Any]:
    """bool, one a line: whether C4 keeps it. It ends in a terminal mark, has 3 words, none of more than 1,000
    characters, and neither "javascript" nor a phrase about policies ("terms of use", "uses cookies", ...)."""
    bad = k.LINE_JAVASCRIPT | k.LINE_POLICY | k.LINE_LONG_WORD
    ends = view.line_flags & k.LINE_C4_END != 0
    kept: npt.NDArray[Any] = ends & (view.line_flags & bad == 0) & (view.line_words >= C4_MIN_WORDS)
    return kept


signal("c4.terminal_lines", "share of lines that end in . ! ? or a quotation mark", C4, range=SHARE)(
    _of_lines(k.LINE_C4_END)
)
signal("c4.kept_lines", "share of lines that C4's line rules keep", C4, range=SHARE)(
    lambda v: share(v.lines_where(c4_lines(v)), v.lines)
)
signal("c4.kept_sentences", "sentences in the lines that C4's line rules keep", C4, "int")(
    lambda v: v.lines_where(np.where(c4_lines(v), np.maximum(v.line_sentences, 1), 0))
)
signal("c4.javascript_lines", "lines with 'javascript'", C4, "int")(
    lambda v: v.lines_where(v.line_flags & k.LINE_JAVASCRIPT != 0)
)
signal("c4.policy_lines", "lines with a phrase about policies or cookies", C4, "int")(
    lambda v: v.lines_where(v.line_flags & k.LINE_POLICY != 0)
)
signal("c4.long_word_lines", "lines with a word of more than 1,000 characters", C4, "int")(
    lambda v: v.lines_where(v.line_flags & k.LINE_LONG_WORD != 0)
)
signal("c4.lorem_ipsum", "occurrences of 'lorem ipsum'", C4, "int")(lambda v: v.count(k.LOREMS))
signal("c4.curly_brackets", "occurrences of '{'", C4, "int")(lambda v: v.count(k.BRACES))


# --- FineWeb --------------------------------------------------------------------------------------

SHORT_LINE = 30  # characters; a line of exactly 30 is short, as in datatrove

signal(
    "fineweb.line_punct_ratio",
    "share of lines that end in a terminal mark of any script",
    FINEWEB,
    range=SHARE,
)(_of_lines(k.LINE_TERMINAL))
signal("fineweb.short_line_ratio", "share of lines of at most 30 characters", FINEWEB, range=SHARE)(
    lambda v: share(v.lines_where(v.line_chars <= SHORT_LINE), v.lines)
)
signal(
    "fineweb.char_dup_ratio",
    "share of characters, line feeds left out, in later copies",
    FINEWEB,
    range=SHARE,
)(lambda v: share(v.line_copies[:, 1], v.count(k.CHARS) - v.count(k.NEWLINES)))
signal("fineweb.newline_ratio", "line feeds per word", FINEWEB)(lambda v: share(v.count(k.NEWLINES), v.words))
