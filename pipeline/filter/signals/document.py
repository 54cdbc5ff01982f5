"""The document as such: sizes, kinds of characters, words, lines, paragraphs, sentences."""

from __future__ import annotations

import numpy as np

from corpusmill.pipeline.filter.signals.registry import (
    SHARE,
    Measure,
    counted,
    family,
    per_char,
    per_word,
    share_of_lines,
)
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import share

DATATROVE = "datatrove, text statistics"
RPV2 = "RedPajama-V2"
NEMO = "NeMo Curator"

# In characters: the defaults of datatrove's statistics. Lines of at most 30 are `fineweb.short_line_ratio`.
SHORT_LINE, LONG_LINES = 10, (2000, 10000)
SHORT_PARA, LONG_PARA = 100, 1000

_signal = family("document")
_datatrove = family("document", DATATROVE)
_nemo = family("document", NEMO)

_datatrove("bytes", "UTF-8 bytes", lambda v: np.diff(v.offsets), dtype="int")
_datatrove("chars", "characters", counted(k.CHARS), ": length", dtype="int")
_datatrove("words", "words", lambda v: v.words, ": n_words", dtype="int")
_datatrove("lines", "lines that are not blank", lambda v: v.lines, ": n_lines", dtype="int")
_datatrove("paragraphs", "paragraphs", lambda v: v.paras, ": n_paragraphs", dtype="int")
_datatrove(
    "sentences",
    "sentences, by their last mark",
    lambda v: v.lines_where(v.line_sentences),
    f": n_sentences; {RPV2}: rps_doc_num_sentences",
    dtype="int",
)

for _name, _column, _what, _origin in (
    ("letters", k.ALPHAS, "letters of all scripts", DATATROVE),
    ("digits", k.DIGITS, "decimal digits of all scripts", f"{DATATROVE}: digit_ratio; {NEMO}: NumbersFilter"),
    ("uppercase", k.UPPERS, "upper case letters", f"{DATATROVE}: uppercase_ratio"),
    ("punctuation", k.PUNCTS, "punctuation", f"{DATATROVE}: punctuation_ratio"),
    ("white_space", k.SPACES, "white space", f"{DATATROVE}: white_space_ratio; {NEMO}: WhiteSpaceFilter"),
    ("marks", k.MARKS, "combining marks", "Unicode, general category M"),
    ("cjk", k.CJKS, "letters of Han, kana, Bopomofo and Hangul", "Unicode blocks"),
):
    _signal(f"{_name}_ratio", f"share of characters: {_what}", per_char(_column), _origin, range=SHARE)

_datatrove(  # White space and marks among them; `nemo.non_alnum_ratio` spares some.
    "non_alnum_ratio",
    "share of characters that are neither letters nor decimal digits",
    lambda v: share(v.count(k.CHARS) - v.count(k.ALPHAS) - v.count(k.DIGITS), v.count(k.CHARS)),
    ": non_alpha_digit_ratio",
    range=SHARE,
)
_datatrove(
    "ellipsis_ratio",
    "share of characters in '...' and '…'",
    per_char(k.ELLIPSES, k.DOT_ELLIPSES, k.DOT_ELLIPSES),
    ": elipsis_ratio",
    range=SHARE,
)

for _name, _column, _what, _origin in (
    ("short_words", k.SHORT_WORDS, "of at most 3 characters", "short_word_ratio_3"),
    ("long_words", k.LONG_WORDS, "of at least 7 characters", "long_word_ratio_7"),
    (
        "all_caps_words", k.CAPS_WORDS, "with upper case letters and no lower case ones",
        f"uppercase_word_ratio; {RPV2}: rps_doc_frac_all_caps_words",
    ),
    ("capitalized_words", k.TITLE_WORDS, "whose first letter is the one in upper case", "capitalized_word_ratio"),
    ("stop_words", k.STOP_COUNT, "that are one of the eight of gopher.stop_words", "stop_word_ratio"),
):  # fmt: skip
    _datatrove(f"{_name}_ratio", f"share of words {_what}", per_word(_column), f": {_origin}", range=SHARE)

_nemo("longest_word", "characters", counted(k.LONGEST_WORD), ": LongWordFilter", dtype="int")
_datatrove(
    "type_token_ratio",
    "distinct bare words per bare word",
    lambda v: share(v.vocabulary[:, 0], v.count(k.BARE_WORDS)),
    f": type_token_ratio; {RPV2}: rps_doc_frac_unique_words",
    range=SHARE,
)


def _share_of_paragraphs(chosen: Measure) -> Measure:
    return lambda v: share(v.paras_where(chosen(v)), v.paras)


def _per_sentence(column: int) -> Measure:
    return lambda v: share(v.count(column), v.lines_where(v.line_sentences))


def _at_least(limit: int) -> Measure:
    return lambda v: v.line_chars >= limit


for _value, _measure, _unit, _origin in (
    ("mean_line_length", lambda v: share(v.lines_where(v.line_chars), v.lines), "characters", "avg_line_length"),
    (
        "mean_line_words", lambda v: share(v.words, v.lines), "words per line",
        f"avg_words_per_line; {RPV2}: rps_lines_num_words",
    ),
    (
        "short_lines_ratio", share_of_lines(lambda v: v.line_chars <= SHORT_LINE),
        f"share of lines of at most {SHORT_LINE} characters", f"short_line_ratio_chars_{SHORT_LINE}",
    ),
    *(
        (
            f"lines_of_{limit}_ratio", share_of_lines(_at_least(limit)),
            f"share of lines of at least {limit:,} characters", f"long_line_ratio_chars_{limit}",
        )
        for limit in LONG_LINES
    ),
    (
        "mean_paragraph_length", lambda v: share(v.paras_where(v.para_chars), v.paras), "characters",
        "avg_paragraph_length",
    ),
    (
        "short_paragraphs_ratio", _share_of_paragraphs(lambda v: v.para_chars <= SHORT_PARA),
        f"share of paragraphs of at most {SHORT_PARA} characters", f"short_paragraph_ratio_{SHORT_PARA}",
    ),
    (
        "long_paragraphs_ratio", _share_of_paragraphs(lambda v: v.para_chars >= LONG_PARA),
        f"share of paragraphs of at least {LONG_PARA:,} characters", f"long_paragraph_ratio_{LONG_PARA}",
    ),
    ("mean_sentence_length", _per_sentence(k.SENTENCE_CHARS), "characters", "avg_sentence_length"),
    (
        "short_sentences_ratio", _per_sentence(k.SHORT_SENTENCES),
        f"share of sentences of at most {k.SHORT_SENTENCE} characters", f"short_sentence_ratio_{k.SHORT_SENTENCE}",
    ),
    (
        "long_sentences_ratio", _per_sentence(k.LONG_SENTENCES),
        f"share of sentences of at least {k.LONG_SENTENCE} characters", f"long_sentence_ratio_{k.LONG_SENTENCE}",
    ),
):  # fmt: skip
    _range = SHARE if _value.endswith("_ratio") else (0.0, None)
    _datatrove(_value, _unit, _measure, f": {_origin}", range=_range)
