"""RedPajama-V2's quality signals, as far as no model is needed and no other family has the value.

Those that another family has name RedPajama-V2's in their origin. Of signals per line this is the mean over the
lines of a document.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, share_of_lines, signal
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import TextView, share

REDPAJAMA = "RedPajama-V2, Weber et al. 2024, arXiv:2411.12372: "

signal("redpajama.word_count", "bare words", REDPAJAMA + "rps_doc_word_count", "int")(
    lambda v: v.count(k.BARE_WORDS)
)
signal("redpajama.mean_word_length", "characters of bare words", REDPAJAMA + "rps_doc_mean_word_length")(
    lambda v: share(v.count(k.BARE_CHARS), v.count(k.BARE_WORDS))
)
signal("redpajama.unigram_entropy", "nats, of bare words", REDPAJAMA + "rps_doc_unigram_entropy")(
    lambda v: v.vocabulary[:, 1]
)
signal(
    "redpajama.stop_word_ratio",
    "share of words that are English function words (text/vocabulary.py)",
    REDPAJAMA + "rps_doc_stop_word_fraction, with a list of our own",
    range=SHARE,
)(lambda v: share(v.vocabulary[:, 2], v.words))
signal("redpajama.symbol_ratio", "'#', '...' and '…' per word", REDPAJAMA + "rps_doc_symbol_to_word_ratio")(
    lambda v: share(v.count(k.HASHES) + v.count(k.ELLIPSES), v.words)
)
signal(
    "redpajama.curly_bracket_ratio",
    "share of characters: '{' and '}'",
    REDPAJAMA + "rps_doc_curly_bracket",
    range=SHARE,
)(lambda v: share(v.count(k.BRACES) + v.count(k.CLOSING_BRACES), v.count(k.CHARS)))
signal(
    "redpajama.lorem_ipsum_ratio",
    "occurrences of 'lorem ipsum' per character",
    REDPAJAMA + "rps_doc_lorem_ipsum",
    range=SHARE,
)(lambda v: share(v.count(k.LOREMS), v.count(k.CHARS)))
signal(
    "redpajama.terminal_lines",
    "share of lines that end in . ! ? or ”",
    REDPAJAMA + "rps_lines_ending_with_terminal_punctution_mark",
    range=SHARE,
)(share_of_lines(k.LINE_REDPAJAMA_END))
signal(
    "redpajama.bullet_lines",
    "share of lines that start with one of • ‣ ▶ ◀ ◦ ■ □ ▪ ▫ –",
    REDPAJAMA + "rps_lines_start_with_bulletpoint",
    range=SHARE,
)(share_of_lines(k.LINE_LIST_MARK))


def _mean_share(column: str) -> Measure:
    def measure(view: TextView) -> npt.NDArray[Any]:
        # Summed within each document: a difference of running sums would depend on the documents before it.
        shares = np.append(share(getattr(view, column), view.line_chars), 0.0)
        return share(np.add.reduceat(shares, view.line_offsets[:-1]), view.lines)

    return measure


signal(
    "redpajama.mean_line_uppercase",
    "share of a line's characters that are upper case letters, mean over lines",
    REDPAJAMA + "rps_lines_uppercase_letter_fraction",
    range=SHARE,
)(_mean_share("line_upper"))
signal(
    "redpajama.mean_line_digits",
    "share of a line's characters that are decimal digits, mean over lines",
    REDPAJAMA + "rps_lines_numerical_chars_fraction",
    range=SHARE,
)(_mean_share("line_digits"))
