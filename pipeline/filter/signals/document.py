"""The document as such: sizes, kinds of characters, words, lines, paragraphs, sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, signal
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import TextView, share

DATATROVE = "datatrove, text statistics"
RPV2 = "RedPajama-V2"
NEMO = "NeMo Curator"

# In characters: the defaults of datatrove's statistics. Lines of at most 30 are `fineweb.short_line_ratio`.
SHORT_LINE, LONG_LINES = 10, (2000, 10000)
SHORT_PARA, LONG_PARA = 100, 1000

signal("document.bytes", "UTF-8 bytes", DATATROVE, "int")(lambda v: np.diff(v.offsets))
signal("document.chars", "characters", f"{DATATROVE}: length", "int")(lambda v: v.count(k.CHARS))
signal("document.words", "words", f"{DATATROVE}: n_words", "int")(lambda v: v.words)
signal("document.lines", "lines that are not blank", f"{DATATROVE}: n_lines", "int")(lambda v: v.lines)
signal("document.paragraphs", "paragraphs", f"{DATATROVE}: n_paragraphs", "int")(lambda v: v.paras)
signal(
    "document.sentences",
    "sentences, by their last mark",
    f"{DATATROVE}: n_sentences; {RPV2}: rps_doc_num_sentences",
    "int",
)(lambda v: v.lines_where(v.line_sentences))


def _of_chars(column: int) -> Measure:
    return lambda v: share(v.count(column), v.count(k.CHARS))


def _of_words(column: int) -> Measure:
    return lambda v: share(v.count(column), v.words)


for _name, _column, _what, _origin in (
    ("letters", k.ALPHAS, "letters of all scripts", DATATROVE),
    ("digits", k.DIGITS, "decimal digits of all scripts", f"{DATATROVE}: digit_ratio; {NEMO}: NumbersFilter"),
    ("uppercase", k.UPPERS, "upper case letters", f"{DATATROVE}: uppercase_ratio"),
    ("punctuation", k.PUNCTS, "punctuation", f"{DATATROVE}: punctuation_ratio"),
    ("white_space", k.SPACES, "white space", f"{DATATROVE}: white_space_ratio; {NEMO}: WhiteSpaceFilter"),
    ("marks", k.MARKS, "combining marks", "Unicode, general category M"),
    ("cjk", k.CJKS, "letters of Han, kana, Bopomofo and Hangul", "Unicode blocks"),
):
    signal(f"document.{_name}_ratio", f"share of characters: {_what}", _origin, range=SHARE)(
        _of_chars(_column)
    )


@signal(
    "document.non_alnum_ratio",
    "share of characters that are neither letters nor decimal digits",
    f"{DATATROVE}: non_alpha_digit_ratio",
    range=SHARE,
)
def non_alnum(view: TextView) -> npt.NDArray[Any]:
    """White space and marks among them; `nemo.non_alnum_ratio` spares some."""
    return share(view.count(k.CHARS) - view.count(k.ALPHAS) - view.count(k.DIGITS), view.count(k.CHARS))


signal(
    "document.ellipsis_ratio",
    "share of characters in '...' and '…'",
    f"{DATATROVE}: elipsis_ratio",
    range=SHARE,
)(lambda v: share(v.count(k.ELLIPSES) + 2 * v.count(k.DOT_ELLIPSES), v.count(k.CHARS)))

for _name, _column, _what, _origin in (
    ("short_words", k.SHORT_WORDS, "of at most 3 characters", f"{DATATROVE}: short_word_ratio_3"),
    ("long_words", k.LONG_WORDS, "of at least 7 characters", f"{DATATROVE}: long_word_ratio_7"),
    (
        "all_caps_words", k.CAPS_WORDS, "with upper case letters and no lower case ones",
        f"{DATATROVE}: uppercase_word_ratio; {RPV2}: rps_doc_frac_all_caps_words",
    ),
    (
        "capitalized_words", k.TITLE_WORDS, "whose first letter is the one in upper case",
        f"{DATATROVE}: capitalized_word_ratio",
    ),
    (
        "stop_words", k.STOP_COUNT, "that are one of the eight of gopher.stop_words",
        f"{DATATROVE}: stop_word_ratio",
    ),
):  # fmt: skip
    signal(f"document.{_name}_ratio", f"share of words {_what}", _origin, range=SHARE)(_of_words(_column))

signal("document.longest_word", "characters", f"{NEMO}: LongWordFilter", "int")(
    lambda v: v.count(k.LONGEST_WORD)
)
signal(
    "document.type_token_ratio",
    "distinct bare words per bare word",
    f"{DATATROVE}: type_token_ratio; {RPV2}: rps_doc_frac_unique_words",
    range=SHARE,
)(lambda v: share(v.vocabulary[:, 0], v.count(k.BARE_WORDS)))

signal("document.mean_line_length", "characters", f"{DATATROVE}: avg_line_length")(
    lambda v: share(v.lines_where(v.line_chars), v.lines)
)
signal(
    "document.mean_line_words",
    "words per line",
    f"{DATATROVE}: avg_words_per_line; {RPV2}: rps_lines_num_words",
)(lambda v: share(v.words, v.lines))
signal(
    "document.short_lines_ratio", f"share of lines of at most {SHORT_LINE} characters",
    f"{DATATROVE}: short_line_ratio_chars_{SHORT_LINE}", range=SHARE,
)(lambda v: share(v.lines_where(v.line_chars <= SHORT_LINE), v.lines))  # fmt: skip


def _long_lines(limit: int) -> Measure:
    return lambda v: share(v.lines_where(v.line_chars >= limit), v.lines)


for _limit in LONG_LINES:
    signal(
        f"document.lines_of_{_limit}_ratio", f"share of lines of at least {_limit:,} characters",
        f"{DATATROVE}: long_line_ratio_chars_{_limit}", range=SHARE,
    )(_long_lines(_limit))  # fmt: skip

signal("document.mean_paragraph_length", "characters", f"{DATATROVE}: avg_paragraph_length")(
    lambda v: share(v.paras_where(v.para_chars), v.paras)
)
signal(
    "document.short_paragraphs_ratio", f"share of paragraphs of at most {SHORT_PARA} characters",
    f"{DATATROVE}: short_paragraph_ratio_{SHORT_PARA}", range=SHARE,
)(lambda v: share(v.paras_where(v.para_chars <= SHORT_PARA), v.paras))  # fmt: skip
signal(
    "document.long_paragraphs_ratio", f"share of paragraphs of at least {LONG_PARA:,} characters",
    f"{DATATROVE}: long_paragraph_ratio_{LONG_PARA}", range=SHARE,
)(lambda v: share(v.paras_where(v.para_chars >= LONG_PARA), v.paras))  # fmt: skip


def _sentences(column: int) -> Measure:
    return lambda v: share(v.count(column), v.lines_where(v.line_sentences))


signal("document.mean_sentence_length", "characters", f"{DATATROVE}: avg_sentence_length")(
    _sentences(k.SENTENCE_CHARS)
)
signal(
    "document.short_sentences_ratio", f"share of sentences of at most {k.SHORT_SENTENCE} characters",
    f"{DATATROVE}: short_sentence_ratio_{k.SHORT_SENTENCE}", range=SHARE,
)(_sentences(k.SHORT_SENTENCES))  # fmt: skip
signal(
    "document.long_sentences_ratio", f"share of sentences of at least {k.LONG_SENTENCE} characters",
    f"{DATATROVE}: long_sentence_ratio_{k.LONG_SENTENCE}", range=SHARE,
)(_sentences(k.LONG_SENTENCES))  # fmt: skip
