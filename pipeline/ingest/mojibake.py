"""Text that was decoded wrongly, mended by ftfy; what it would not touch is found without it.

ftfy: Speer (2019), https://ftfy.readthedocs.io. Its heuristic (`ftfy.badness`) is a pattern of fifty alternatives, which Python tries at every
character. Here the classes of characters that it is made of are looked for in the kernel of `text_marks`, and the pattern is tried around them; by
RE2 on the whole text, where they are many.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.ingest.text_marks import (
    ALONE,
    BEFORE_ANY,
    BEFORE_SPACE,
    CLASSES,
    LETTER,
    LIGATURE,
    ODD,
    suspect_places,
)
from corpusmill.pipeline.text.buffers import view

WIDEST = 8  # characters of what an alternative of the heuristic matches, at most
MANY_PLACES = 64

# What RE2 takes for white space and for letters is ASCII; Python's letters are some of those beyond it.
_SPACE = r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_WORD = "[0-9A-Za-z_[:^ascii:]]"


def mend(text: str) -> str:
    """ftfy's repair of wrongly decoded text, where its badness heuristic finds any; nothing else of ftfy."""
    from ftfy import fix_text
    from ftfy.badness import is_bad

    return fix_text(text, _ftfy_config()) if is_bad(text) else text


@lru_cache(maxsize=1)
def _ftfy_config() -> Any:
    from ftfy import TextFixerConfig

    others = (
        "unescape_html remove_terminal_escapes fix_latin_ligatures fix_character_width uncurl_quotes"
        " fix_line_breaks fix_surrogates remove_control_chars explain"
    )
    return TextFixerConfig(normalization=None, **dict.fromkeys(re.findall(r"\w+", others), False))


@lru_cache(maxsize=1)
def classes() -> npt.NDArray[np.uint8]:
    """uint8[`CLASSES`], not writable: of each character what `text_marks.marks` must know to see whatever ftfy may call bad.

    Every alternative of the heuristic holds a C1 control, or two neighbours out of its character classes
    of which one at least is no plain Greek or Cyrillic letter, or one of a few fixed pairs.
    """
    from ftfy.badness import MOJIBAKE_CATEGORIES

    letters = MOJIBAKE_CATEGORIES["lower_common"] + MOJIBAKE_CATEGORIES["upper_common"]
    plain = ("common", "c1", "lower_common", "upper_common")
    odd = "".join(text for name, text in MOJIBAKE_CATEGORIES.items() if name not in plain)
    found = np.zeros(CLASSES, np.uint8)
    every = "".join(map(chr, range(CLASSES)))
    for mark, members in (
        (ODD | LETTER, odd),
        (LETTER, letters),
        (BEFORE_ANY, "ÂÃÎÐØÙà√≈‚βāÅвВ"),
        (LIGATURE, "Œœ"),
        (BEFORE_SPACE, "ÃÂ"),
        (ALONE, "\x80-\x9f"),
    ):
        found[[match.start() for match in re.finditer(f"[{members}]", every)]] |= mark
    found.flags.writeable = False
    return found


def bad_ones(texts: pa.LargeStringArray, suspects: npt.NDArray[np.int64]) -> list[int]:
    """Of the rows that have the mark `SUSPECT`, those that ftfy calls bad."""
    from ftfy.badness import BADNESS_RE

    offsets, data = view(texts)
    places = np.empty(MANY_PLACES, np.int64)
    bad, many = [], []
    for row in suspects.tolist():
        begin, stop = int(offsets[row]), int(offsets[row + 1])
        count = suspect_places(data, begin, stop, classes(), places)
        if count > MANY_PLACES:
            many.append(row)
        elif any(_is_bad(BADNESS_RE, data, begin, stop, place) for place in places[:count].tolist()):
            bad.append(row)
    if many:
        rows = pa.array(many)
        bad += rows.filter(looks_bad(texts.take(rows))).to_pylist()
    return sorted(bad)


def _is_bad(
    heuristic: re.Pattern[str], data: npt.NDArray[np.uint8], begin: int, stop: int, place: int
) -> bool:
    """Whether the heuristic finds anything of at most `WIDEST` characters around a byte of a text."""
    first, last = max(begin, place - 4 * WIDEST), min(stop, place + 4 * WIDEST)
    while first < stop and data[first] & 0xC0 == 0x80:
        first += 1
    while last < stop and data[last] & 0xC0 == 0x80:
        last += 1
    around = data[first:last].tobytes().decode("utf-8")
    return (
        heuristic.search(around, int(first > begin)) is not None
    )  # from 1 on it is not the text's beginning


def looks_bad(texts: pa.LargeStringArray) -> pa.BooleanArray:
    """Whether ftfy may call a text bad; true for whatever it does."""
    try:
        return pc.match_substring_regex(texts, _pattern())
    except pa.ArrowInvalid:  # a version of ftfy whose pattern RE2 does not take
        return pa.repeat(pa.scalar(True), len(texts))


@lru_cache(maxsize=1)
def _pattern() -> str:
    """ftfy's badness heuristic as RE2 takes it: without its white space and comments, its `\\w` any character beyond ASCII."""
    from ftfy.badness import BADNESS_RE

    parts = []
    for part in re.findall(r"(?s)\\.|\[(?:\\.|[^\]\\])*\]|#[^\n]*|\s+|.", BADNESS_RE.pattern):
        if not (part.isspace() or part.startswith("#")):
            parts.append({r"\s": _SPACE, r"\w": _WORD}.get(part, part))
    return "".join(parts)
