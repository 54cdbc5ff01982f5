"""The document as such."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.filter.signals.registry import SHARE, Measure, signal
from pipeline.filter.text import scan as k
from pipeline.filter.text.view import TextView, share

DATATROVE = "datatrove, text statistics"

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
