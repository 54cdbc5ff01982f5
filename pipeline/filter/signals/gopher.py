"""What the Gopher rules look at: quality, then repetition."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.filter.signals.registry import SHARE, Measure, share_of_lines, signal
from pipeline.filter.text import scan as k
from pipeline.filter.text.repetition import DUPLICATE, TOP
from pipeline.filter.text.view import TextView, share

GOPHER = "Rae et al. 2021 (Gopher), arXiv:2112.11446, section A.1.1"

signal("gopher.word_count", "words", GOPHER, "int")(lambda v: v.words)
signal("gopher.mean_word_length", "characters", GOPHER)(lambda v: share(v.all_word_chars, v.words))
signal("gopher.hash_ratio", "hash signs per word", GOPHER)(lambda v: share(v.count(k.HASHES), v.words))
signal("gopher.ellipsis_ratio", "'...' and '…' per word", GOPHER)(
    lambda v: share(v.count(k.ELLIPSES), v.words)
)


signal("gopher.bullet_lines", "share of lines that start with one of • ● * -", GOPHER, range=SHARE)(
    share_of_lines(k.LINE_BULLET)
)
signal("gopher.ellipsis_lines", "share of lines that end in '...' or '…'", GOPHER, range=SHARE)(
    share_of_lines(k.LINE_ELLIPSIS)
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
