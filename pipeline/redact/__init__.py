"""Personal data and secrets: found by one pass over a batch's bytes, confirmed by validators, replaced.

`apply.py` turns documents into an outcome, `fields.py` does so with their other columns (`slots.py` reads them), `batch.py` is
the loop over a batch; `kernels/` finds candidates; `addresses`, `identity_numbers`, `secrets`, `phones` and `models` decide;
`pseudonyms` replaces.
`prepare.py` collects what is recognised in the run, `known.py` finds it wherever it stands. What the detectors share stands
here: hits, and looks at a hit's neighbourhood.

A buffer is the texts of a batch, each followed by `SEPARATOR`, a byte that no detector accepts: a hit never spans two
documents, and a look to the left or right ends at the document.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from corpusmill.schemas.stages import PiiKind as Kind

__all__ = [
    "ALNUM", "DIGITS", "LETTERS", "SEPARATOR", "TAG", "WORD", "Hit", "Kind", "after", "before", "context",
]  # fmt: skip

SEPARATOR = "\x00"

DIGITS = frozenset(b"0123456789")
LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
ALNUM = DIGITS | LETTERS
WORD = ALNUM | frozenset(b"_")
TAG = re.compile(rb"<[A-Z_]{2,20}>")
_TAG_APART = re.compile(TAG.pattern + rb"(?!\Z)")


class Hit(NamedTuple):
    """A confirmed find: bytes `start` to `end` of the buffer, and the kind of datum."""

    start: int
    end: int
    kind: Kind
    known: bool = False  # recognised elsewhere, not here


def before(buffer: bytes, start: int, size: int) -> bytes:
    """Up to `size` bytes of the same document that end at `start`."""
    window = buffer[max(0, start - size) : start]
    return window[window.rfind(b"\x00") + 1 :]


def after(buffer: bytes, end: int, size: int) -> bytes:
    """Up to `size` bytes of the same document that begin at `end`."""
    window = buffer[end : end + size]
    cut = window.find(b"\x00")
    return window if cut < 0 else window[:cut]


def context(buffer: bytes, start: int, size: int) -> bytes:
    """`before`, for words that indicate what a datum is: a tag is none, or each find would make one of its neighbour, all
    along a list. A tag that touches the datum (`<IP>8.8.8.8</IP>`) is an element that holds it."""
    window = before(buffer, start, size + 22)  # a tag cut in two is none either
    if b"<" in window:
        window = _TAG_APART.sub(lambda tag: b"~" * len(tag.group()), window)
    return window[-size:]
