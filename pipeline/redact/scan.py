"""What all detectors share: hits, RE2 scans over one buffer, and looks at a hit's neighbourhood.

A buffer is the texts of a batch, each followed by `SEPARATOR`, a byte that no pattern accepts: a hit never
spans two documents, and a look to the left or right ends at the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

SEPARATOR = "\x00"

Kind = Literal["email", "phone", "ip", "card", "iban", "ssn", "secret"]

DIGITS = frozenset(b"0123456789")
LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
ALNUM = DIGITS | LETTERS
WORD = ALNUM | frozenset(b"_")


class Hit(NamedTuple):
    """A confirmed find: bytes `start` to `end` of the buffer, and the kind of datum."""

    start: int
    end: int
    kind: Kind


@lru_cache(maxsize=64)
def compiled(pattern: bytes) -> Any:
    """`pattern` for RE2 over raw bytes (Latin-1: one byte, one character), without captures."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    options.log_errors = False
    return re2.compile(pattern, options)


def spans(pattern: bytes, buffer: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of each leftmost match, without overlap."""
    for match in compiled(pattern).finditer(buffer):
        yield match.span()


def before(buffer: bytes, start: int, size: int) -> bytes:
    """Up to `size` bytes of the same document that end at `start`."""
    window = buffer[max(0, start - size) : start]
    return window[window.rfind(b"\x00") + 1 :]


def after(buffer: bytes, end: int, size: int) -> bytes:
    """Up to `size` bytes of the same document that begin at `end`."""
    window = buffer[end : end + size]
    cut = window.find(b"\x00")
    return window if cut < 0 else window[:cut]
