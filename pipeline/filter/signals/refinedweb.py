"""Lines that RefinedWeb's line rules remove, as shares of a document's lines."""

from __future__ import annotations

from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, signal
from corpusmill.pipeline.filter.text.line_kinds import COUNTER, PHRASE
from corpusmill.pipeline.filter.text.view import share

REFINEDWEB = "Penedo et al. 2023 (RefinedWeb), arXiv:2306.01116, as in DCLM: "

signal(
    "refinedweb.uppercase_lines",
    "share of lines with more than half of the characters in upper case",
    REFINEDWEB + "uppercase_ratio_line_modifier",
    range=SHARE,
)(lambda v: share(v.lines_where(2 * v.line_upper > v.line_chars), v.lines))
signal(
    "refinedweb.numeric_lines",
    "share of lines of digits alone",
    REFINEDWEB + "numeric_ratio_line_modifier",
    range=SHARE,
)(lambda v: share(v.lines_where(v.line_digits == v.line_chars), v.lines))
signal(
    "refinedweb.one_word_lines",
    "share of lines of one word",
    REFINEDWEB + "line_length_modifier",
    range=SHARE,
)(lambda v: share(v.lines_where(v.line_words == 1), v.lines))


def _of_kind(kind: int) -> Measure:
    return lambda v: share(v.lines_where(v.line_kinds & kind != 0), v.lines)


signal(
    "refinedweb.counter_lines",
    "share of lines such as '3 likes' or '1.2k followers'",
    REFINEDWEB + "counter_line_modifier",
    range=SHARE,
)(_of_kind(COUNTER))
signal(
    "refinedweb.phrase_lines",
    "share of lines of at most 10 words with 'items in cart', 'read more...' last or 'sign-in' first",
    REFINEDWEB + "substring_line_modifier",
    range=SHARE,
)(_of_kind(PHRASE))
