"""What all detectors share: hits, and looks at a hit's neighbourhood.

A buffer is the texts of a batch, each followed by `SEPARATOR`, a byte that no detector accepts: a hit never
spans two documents, and a look to the left or right ends at the document.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.redact import PiiKind as Kind

__all__ = ["ALNUM", "DIGITS", "LETTERS", "SEPARATOR", "WORD", "Hit", "Kind", "after", "before"]

SEPARATOR = "\x00"

DIGITS = frozenset(b"0123456789")
LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
ALNUM = DIGITS | LETTERS
WORD = ALNUM | frozenset(b"_")


class Hit(NamedTuple):
    """A confirmed find: bytes `start` to `end` of the buffer, and the kind of datum."""

    start: int
    end: int
    kind: Kind


def before(buffer: bytes, start: int, size: int) -> bytes:
    """Up to `size` bytes of the same document that end at `start`."""
    window = buffer[max(0, start - size) : start]
    return window[window.rfind(b"\x00") + 1 :]


def after(buffer: bytes, end: int, size: int) -> bytes:
    """Up to `size` bytes of the same document that begin at `end`."""
    window = buffer[end : end + size]
    cut = window.find(b"\x00")
    return window if cut < 0 else window[:cut]
