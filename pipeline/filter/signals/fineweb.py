"""What FineWeb's rules look at."""

from __future__ import annotations

from corpusmill.pipeline.filter.signals.registry import SHARE, share_of_lines, signal
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import share

FINEWEB = "Penedo et al. 2024 (FineWeb), arXiv:2406.17557, section 3.6"

SHORT_LINE = 30  # characters; a line of exactly 30 is short, as in datatrove

signal(
    "fineweb.line_punct_ratio",
    "share of lines that end in a terminal mark of any script",
    f"{FINEWEB}; datatrove: lines_ending_with_terminal_mark_ratio; NeMo Curator: 1 - PunctuationFilter",
    range=SHARE,
)(share_of_lines(k.LINE_TERMINAL))
signal(
    "fineweb.short_line_ratio",
    "share of lines of at most 30 characters",
    f"{FINEWEB}; datatrove: short_line_ratio_chars_30",
    range=SHARE,
)(lambda v: share(v.lines_where(v.line_chars <= SHORT_LINE), v.lines))
signal(
    "fineweb.char_dup_ratio",
    "share of characters, line feeds left out, in later copies",
    f"{FINEWEB}; datatrove: line_char_duplicates",
    range=SHARE,
)(lambda v: share(v.line_copies[:, 1], v.count(k.CHARS) - v.count(k.NEWLINES)))
signal("fineweb.newline_ratio", "line feeds per word", FINEWEB)(lambda v: share(v.count(k.NEWLINES), v.words))
