"""What C4's rules look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.filter.signals.registry import SHARE, share_of_lines, signal
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import TextView, share

C4 = "Raffel et al. 2020 (C4), JMLR 21:140, section 2.2"

C4_MIN_WORDS = 3  # of a line that C4 keeps


def c4_lines(view: TextView) -> npt.NDArray[Any]:
    """bool, one a line: whether C4 keeps it. It ends in a terminal mark, has 3 words, none of more than 1,000
    characters, and neither "javascript" nor a phrase about policies ("terms of use", "uses cookies", ...)."""
    bad = k.LINE_JAVASCRIPT | k.LINE_POLICY | k.LINE_LONG_WORD
    ends = view.line_flags & k.LINE_C4_END != 0
    kept: npt.NDArray[Any] = ends & (view.line_flags & bad == 0) & (view.line_words >= C4_MIN_WORDS)
    return kept


signal(
    "c4.terminal_lines", "share of lines that end in . ! ? or a quotation mark", C4, range=SHARE, version="2"
)(share_of_lines(k.LINE_C4_END))
signal("c4.kept_lines", "share of lines that C4's line rules keep", C4, range=SHARE, version="2")(
    lambda v: share(v.lines_where(c4_lines(v)), v.lines)
)
signal("c4.kept_sentences", "sentences in the lines that C4's line rules keep", C4, "int", version="2")(
    lambda v: v.lines_where(np.where(c4_lines(v), np.maximum(v.line_sentences, 1), 0))
)
signal(
    "c4.javascript_lines",
    "lines with 'javascript'",
    f"{C4}; RedPajama-V2: rps_lines_javascript_counts",
    "int",
)(lambda v: v.lines_where(v.line_flags & k.LINE_JAVASCRIPT != 0))
signal("c4.policy_lines", "lines with a phrase about policies or cookies", C4, "int")(
    lambda v: v.lines_where(v.line_flags & k.LINE_POLICY != 0)
)
signal("c4.long_word_lines", "lines with a word of more than 1,000 characters", C4, "int")(
    lambda v: v.lines_where(v.line_flags & k.LINE_LONG_WORD != 0)
)
signal("c4.lorem_ipsum", "occurrences of 'lorem ipsum'", C4, "int")(lambda v: v.count(k.LOREMS))
signal("c4.curly_brackets", "occurrences of '{'", C4, "int")(lambda v: v.count(k.BRACES))
