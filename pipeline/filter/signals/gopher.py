"""What the Gopher rules look at: quality, then repetition."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, share_of_lines, signal
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.repetition import DUPLICATE, TOP
from corpusmill.pipeline.filter.text.view import TextView, share
from corpusmill.pipeline.filter.text.words import STOP_WORDS

GOPHER = "Rae et al. 2021 (Gopher), arXiv:2112.11446, section A.1.1"

signal("gopher.word_count", "words", GOPHER, "int")(lambda v: v.words)
signal("gopher.mean_word_length", "characters", f"{GOPHER}; NeMo Curator: MeanWordLengthFilter")(
    lambda v: share(v.all_word_chars, v.words)
)
signal("gopher.hash_ratio", "hash signs per word", GOPHER)(lambda v: share(v.count(k.HASHES), v.words))
signal("gopher.ellipsis_ratio", "'...' and '…' per word", GOPHER)(
    lambda v: share(v.count(k.ELLIPSES), v.words)
)


signal(
    "gopher.bullet_lines",
    "share of lines that start with one of • ● * -",
    f"{GOPHER}; datatrove: bullet_point_lines_ratio",
    range=SHARE,
)(share_of_lines(k.LINE_BULLET))
signal(
    "gopher.ellipsis_lines",
    "share of lines that end in '...' or '…'",
    f"{GOPHER}; RedPajama-V2: rps_doc_frac_lines_end_with_ellipsis",
    range=SHARE,
)(share_of_lines(k.LINE_ELLIPSIS))
signal(
    "gopher.alpha_words",
    "share of words with a letter",
    f"{GOPHER}; RedPajama-V2: 1 - rps_doc_frac_no_alph_words",
    range=SHARE,
)(lambda v: share(v.count(k.ALPHA_WORDS), v.words))


@signal(
    "gopher.stop_words",
    "distinct words of the, be, to, of, and, that, have, with",
    GOPHER,
    "int",
    (0, 8),
    "2",
)
def stop_words(view: TextView) -> npt.NDArray[Any]:
    """How many of the eight occur as bare words: upper case and punctuation play no part."""
    bits = view.count(k.STOPS)[:, None] >> np.arange(len(STOP_WORDS))
    total: npt.NDArray[Any] = (bits & 1).sum(axis=1)
    return total


signal("gopher.dup_line_frac", "share of lines", f"{GOPHER}; datatrove: line_duplicates", range=SHARE)(
    lambda v: share(v.line_copies[:, 0], v.lines)
)
signal(
    "gopher.dup_para_frac", "share of paragraphs", f"{GOPHER}; datatrove: paragraph_duplicates", range=SHARE
)(lambda v: share(v.para_copies[:, 0], v.paras))
signal("gopher.dup_line_chars", "share of characters", GOPHER, range=SHARE)(
    lambda v: share(v.line_copies[:, 1], v.count(k.CHARS))
)
signal("gopher.dup_para_chars", "share of characters", GOPHER, range=SHARE)(
    lambda v: share(v.para_copies[:, 1], v.count(k.CHARS))
)


def _ngram(column: int) -> Measure:
    return lambda v: v.ngrams[:, column]


for _n in TOP:
    signal(
        f"gopher.top_{_n}_gram",
        "share of the words' characters",
        f"{GOPHER}; RedPajama-V2: rps_doc_frac_chars_top_{_n}gram",
        range=SHARE,
    )(_ngram(_n - 2))
for _n in DUPLICATE:
    signal(
        f"gopher.dup_{_n}_gram",
        "share of the words' characters",
        f"{GOPHER}; RedPajama-V2: rps_doc_frac_chars_dupe_{_n}grams",
        range=SHARE,
    )(_ngram(_n - 2))
