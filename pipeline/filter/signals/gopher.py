"""What the Gopher rules look at: quality, then repetition."""

from __future__ import annotations

import numpy as np

from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, family, per_word, share_of_lines
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.repetition import DUPLICATE, TOP
from corpusmill.pipeline.filter.text.view import Array, TextView, share
from corpusmill.pipeline.filter.text.words import STOP_WORDS

_gopher = family("gopher", "Rae et al. 2021 (Gopher), arXiv:2112.11446, section A.1.1")
_REDPAJAMA = "; RedPajama-V2: "

_gopher("word_count", "words", lambda v: v.words, dtype="int")
_gopher(
    "mean_word_length",
    "characters",
    lambda v: share(v.all_word_chars, v.words),
    "; NeMo Curator: MeanWordLengthFilter",
)
_gopher("hash_ratio", "hash signs per word", per_word(k.HASHES))
_gopher("ellipsis_ratio", "'...' and '…' per word", per_word(k.ELLIPSES))
for _value, _unit, _measure, _more in (
    (
        "bullet_lines", "share of lines that start with one of • ● * -", share_of_lines(k.LINE_BULLET),
        "; datatrove: bullet_point_lines_ratio",
    ),
    (
        "ellipsis_lines", "share of lines that end in '...' or '…'", share_of_lines(k.LINE_ELLIPSIS),
        f"{_REDPAJAMA}rps_doc_frac_lines_end_with_ellipsis",
    ),
    (
        "alpha_words", "share of words with a letter", per_word(k.ALPHA_WORDS),
        f"{_REDPAJAMA}1 - rps_doc_frac_no_alph_words",
    ),
):  # fmt: skip
    _gopher(_value, _unit, _measure, _more, range=SHARE)


def stop_words(view: TextView) -> Array:
    """How many of the eight occur as bare words: upper case and punctuation play no part."""
    return np.asarray((view.count(k.STOPS)[:, None] >> np.arange(len(STOP_WORDS)) & 1).sum(axis=1))


_gopher(
    "stop_words",
    f"distinct words of {', '.join(STOP_WORDS)}",
    stop_words,
    dtype="int",
    range=(0, len(STOP_WORDS)),
    version="2",
)


def _ngram(n: int) -> Measure:
    return lambda v: v.ngrams[:, n - 2]


for _value, _unit, _measure, _more in (
    ("dup_line_frac", "lines", lambda v: share(v.line_copies[:, 0], v.lines), "; datatrove: line_duplicates"),
    ("dup_para_frac", "paragraphs", lambda v: share(v.para_copies[:, 0], v.paras), "; datatrove: paragraph_duplicates"),
    ("dup_line_chars", "characters", lambda v: share(v.line_copies[:, 1], v.count(k.CHARS)), ""),
    ("dup_para_chars", "characters", lambda v: share(v.para_copies[:, 1], v.count(k.CHARS)), ""),
    *((f"top_{n}_gram", "the words' characters", _ngram(n), f"{_REDPAJAMA}rps_doc_frac_chars_top_{n}gram") for n in TOP),
    *(
        (f"dup_{n}_gram", "the words' characters", _ngram(n), f"{_REDPAJAMA}rps_doc_frac_chars_dupe_{n}grams")
        for n in DUPLICATE
    ),
):  # fmt: skip
    _gopher(_value, f"share of {_unit}", _measure, _more, range=SHARE)
