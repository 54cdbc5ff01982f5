"""What NeMo Curator's heuristic filters look at and no other family has."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from corpusmill.pipeline.filter.signals.registry import SHARE, signal
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import TextView, share

NEMO = "NeMo Curator, heuristic filters: "


@signal(
    "nemo.non_alnum_ratio",
    "share of characters but letters, marks, digits, line feeds and . , ! ?",
    NEMO + "NonAlphaNumericFilter, with the letters and digits of all scripts",
    range=SHARE,
)
def non_alnum(view: TextView) -> npt.NDArray[Any]:
    """NeMo knows ASCII letters alone, so that text in another script is all symbols to it."""
    spared = (k.ALPHAS, k.MARKS, k.DIGITS, k.NEWLINES, k.STOP_MARKS)
    chars = view.count(k.CHARS)
    return share(chars - view.counts[:, spared].sum(axis=1), chars)


signal(
    "nemo.url_ratio",
    "share of characters in http and https addresses",
    NEMO + "UrlsFilter",
    range=SHARE,
)(lambda v: share(v.count(k.ADDRESS_CHARS), v.count(k.CHARS)))
signal(
    "nemo.bracket_ratio",
    "share of characters: ( ) [ ] { } ⟨ ⟩",
    NEMO + "ParenthesesFilter",
    range=SHARE,
)(lambda v: share(v.count(k.BRACKETS), v.count(k.CHARS)))
signal(
    "nemo.boilerplate_paragraphs",
    "share of paragraphs with a phrase about policies or cookies",
    NEMO + "BoilerPlateStringFilter, with the phrases of c4.policy_lines",
    range=SHARE,
)(lambda v: share(v.paras_where(v.para_flags & k.LINE_POLICY != 0), v.paras))
