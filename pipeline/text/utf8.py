"""What a scan looks for at the ends of words and lines: marks, ellipses, citations, phrases, addresses.

Kernels over bytes [first, last) of valid UTF-8; `table` is `unicode_tables.class_table()`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.unicode_tables import CLOSER

# Phrases of C4's rules.
JAVASCRIPT = np.frombuffer(b"javascript", np.uint8)
LOREM = np.frombuffer(b"lorem ipsum", np.uint8)
PRIVACY = np.frombuffer(b"privacy policy", np.uint8)
TERMS = np.frombuffer(b"terms of use", np.uint8)
COOKIE = np.frombuffer(b"cookie policy", np.uint8)
USES = np.frombuffer(b"uses cookies", np.uint8)
USE_OF = np.frombuffer(b"use of cookies", np.uint8)
USE = np.frombuffer(b"use cookies", np.uint8)
# Its citation marks that hold no number.
EDIT = np.frombuffer(b"[edit]", np.uint8)
NEEDED = np.frombuffer(b"[citation needed]", np.uint8)

_COLON_SLASHES = np.frombuffer(b"://", np.uint8)
_HTTP = np.frombuffer(b"http", np.uint8)
_HTTPS = np.frombuffer(b"https", np.uint8)


@compiled(inline="always")
def decode(data: Any, i: Any) -> Any:
    """(code point, bytes) of the valid UTF-8 sequence at `i`."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, 1
    if b < 0xE0:
        return (b & 0x1F) << 6 | (np.int64(data[i + 1]) & 0x3F), 2
    if b < 0xF0:
        return (b & 0x0F) << 12 | (np.int64(data[i + 1]) & 0x3F) << 6 | (np.int64(data[i + 2]) & 0x3F), 3
    return (
        (b & 0x07) << 18
        | (np.int64(data[i + 1]) & 0x3F) << 12
        | (np.int64(data[i + 2]) & 0x3F) << 6
        | (np.int64(data[i + 3]) & 0x3F)
    ), 4


@compiled(inline="always")
def encode(point: Any, out: Any, end: int) -> int:
    """Write a code point as UTF-8 at `out[end:]`; the new end."""
    if point < 0x80:
        out[end] = point
        return end + 1
    if point < 0x800:
        out[end] = 0xC0 | point >> 6
        out[end + 1] = 0x80 | point & 0x3F
        return end + 2
    if point < 0x10000:
        out[end] = 0xE0 | point >> 12
        out[end + 1] = 0x80 | point >> 6 & 0x3F
        out[end + 2] = 0x80 | point & 0x3F
        return end + 3
    out[end] = 0xF0 | point >> 18
    out[end + 1] = 0x80 | point >> 12 & 0x3F
    out[end + 2] = 0x80 | point >> 6 & 0x3F
    out[end + 3] = 0x80 | point & 0x3F
    return end + 4


@compiled
def before(data: Any, first: int, i: int) -> int:
    """Start of the character that ends before byte `i`."""
    i -= 1
    while i > first and data[i] & 0xC0 == 0x80:
        i -= 1
    return i


@compiled
def is_at(data: Any, start: int, first: int, last: int, phrase: Any) -> bool:
    """Whether the lower-case ASCII `phrase` is at `start`, in either case, inside [first, last)."""
    if start < first or start + len(phrase) > last:
        return False
    for k in range(len(phrase)):
        b = data[start + k]
        if 65 <= b <= 90:
            b |= 32
        if b != phrase[k]:
            return False
    return True


@compiled
def holds(data: Any, first: int, last: int, phrase: Any) -> bool:
    """Whether the lower-case ASCII `phrase` is anywhere in [first, last), in either case."""
    lead = phrase[0]
    for i in range(first, last - len(phrase) + 1):
        b = data[i]
        if (b | 32 if 65 <= b <= 90 else b) == lead and is_at(data, i, first, last, phrase):
            return True
    return False


@compiled
def is_just_at(data: Any, start: int, first: int, last: int, phrase: Any) -> bool:
    """Whether `phrase` is at `start`, as it is, inside [first, last)."""
    if start < first or start + len(phrase) > last:
        return False
    same = 0
    while same < len(phrase) and data[start + same] == phrase[same]:
        same += 1
    return same == len(phrase)


@compiled
def class_at_end(data: Any, table: Any, first: Any, last: Any) -> Any:
    """Class of the last character of [first, last) that is no closing quote or bracket; 0 if none."""
    while last > first:
        i = before(data, first, last)
        c = table[decode(data, i)[0]]
        if not c & CLOSER:
            return np.int64(c)
        last = i
    return 0


@compiled
def ends_in_ellipsis(data: Any, first: int, last: int) -> Any:
    """Whether [first, last) ends in "..." or "…"."""
    if last - first < 3:
        return False
    a, b, c = data[last - 3], data[last - 2], data[last - 1]
    return (a == 46 and b == 46 and c == 46) or (a == 0xE2 and b == 0x80 and c == 0xA6)


@compiled
def _without_citations(data: Any, first: int, last: int) -> int:
    """End of [first, last) without the `[1]`, `[edit]`, `[citation needed]` that stand at it."""
    while last > first and data[last - 1] == 93:
        start = last - 2
        while start > first and 48 <= data[start] <= 57:
            start -= 1
        if start < first or data[start] != 91 or start == last - 2:  # no number in brackets
            if is_just_at(data, last - len(EDIT), first, last, EDIT):
                start = last - len(EDIT)
            elif is_just_at(data, last - len(NEEDED), first, last, NEEDED):
                start = last - len(NEEDED)
            else:
                break
        last = start
        while last > first and data[last - 1] == 32:
            last -= 1
    return last


@compiled
def c4_end(data: Any, first: int, last: int) -> bool:
    """Whether a line ends as C4 wants it; citation marks such as [1] are no part of it."""
    last = _without_citations(data, first, last)
    if last <= first or ends_in_ellipsis(data, first, last):
        return False
    b = data[last - 1]
    if b == 46 or b == 63 or b == 33 or b == 34 or b == 39:  # . ? ! " '
        return True
    # ” and ’ are E2 80 9D and E2 80 99
    return (
        last - first >= 3 and data[last - 3] == 0xE2 and data[last - 2] == 0x80 and (b == 0x9D or b == 0x99)
    )


@compiled
def redpajama_end(data: Any, first: int, last: int) -> bool:
    """Whether a line ends in one of . ! ? ”"""
    b = data[last - 1]
    if b == 46 or b == 63 or b == 33:
        return True
    return last - first >= 3 and b == 0x9D and data[last - 3] == 0xE2 and data[last - 2] == 0x80


@compiled
def address_at(data: Any, colon: int, first: int, last: int) -> tuple[int, int]:
    """(start, end) of the web address whose scheme ends before byte `colon`; (colon, colon) if there is none.

    NeMo Curator's pattern: http:// or https:// (in either case here), then one or more of ! $ to _ a to z.
    """
    if not is_at(data, colon, first, last, _COLON_SLASHES):
        return colon, colon
    if is_at(data, colon - 4, first, colon, _HTTP):
        start = colon - 4
    elif is_at(data, colon - 5, first, colon, _HTTPS):
        start = colon - 5
    else:
        return colon, colon
    end = colon + 3
    while end < last and (36 <= data[end] <= 95 or 97 <= data[end] <= 122 or data[end] == 33):
        end += 1
    return (start, end) if end > colon + 3 else (colon, colon)
