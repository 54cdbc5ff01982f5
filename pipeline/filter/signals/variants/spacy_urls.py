"""What spaCy leaves whole as a URL (`URL_PATTERN` of `spacy/lang/tokenizer_exceptions.py`, 3.8), by one reading
from the left instead of a pattern that goes back."""

from __future__ import annotations

from typing import Any

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.variants.codepoints import ALPHA, LOWER
from corpusmill.pipeline.text.utf8 import decode

_LOGINS = 8  # at so many `@` of a chunk the host is looked for


@compiled
def is_url(data: Any, a: int, b: int, table: Any) -> bool:
    """Whether [a, b), which has no white space, is [scheme://][user@]host[:port][/path]."""
    if _host(data, a, b, table):
        return True
    start = _after_scheme(data, a, b, table)
    if start > a and _host(data, start, b, table):
        return True
    tries = 0
    for i in range(a + 1, b - 1):
        if data[i] == 64 and tries < _LOGINS:
            tries += 1
            if _host(data, i + 1, b, table):
                return True
    return False


@compiled
def _after_scheme(data: Any, a: int, b: int, table: Any) -> int:
    """Place behind `scheme://`, or `a`."""
    i, chars = a, 0
    while i < b:
        point, size = decode(data, i)
        if point == 58:
            if chars >= 2 and i + 2 < b and data[i + 1] == 47 and data[i + 2] == 47:
                return i + 3
            return a
        plain = point == 43 or point == 45 or point == 46 or point == 95 or 48 <= point <= 57
        if not (plain or table[point] & ALPHA):
            return a
        i += size
        chars += 1
    return a


@compiled
def _host(data: Any, a: int, b: int, table: Any) -> bool:
    end = a
    while end < b:
        c = data[end]
        if c == 58 or c == 47 or c == 63 or c == 35:  # : / ? #
            break
        end += 1
    if not (_domain(data, a, end, table) or _address(data, a, end)):
        return False
    if end < b and data[end] == 58:
        digits = 0
        while end + 1 + digits < b and 48 <= data[end + 1 + digits] <= 57:
            digits += 1
        if digits < 2 or digits > 5:
            return False
        end += 1 + digits
    return end == b or data[end] == 47 or data[end] == 63 or data[end] == 35


@compiled
def _domain(data: Any, a: int, b: int, table: Any) -> bool:
    """Labels of letters and digits, with - and _ inside, and a last one of lower-case letters."""
    labels = chars = low = 0
    ends_well = False  # the last character of the label may end it
    i = a
    while i < b:
        point, size = decode(data, i)
        if point == 46:
            if chars == 0 or chars > 64 or not ends_well:
                return False
            labels += 1
            chars = low = 0
        else:
            good = 48 <= point <= 57 or 65 <= point <= 90 or 97 <= point <= 122 or 0xA1 <= point <= 0xFFFF
            inside = chars > 0 and (point == 45 or point == 95)
            if not (good or inside or table[point] & LOWER):
                return False
            chars += 1
            low += (table[point] & LOWER) != 0
            ends_well = good
        i += size
    return labels > 0 and 2 <= chars <= 63 and low == chars


@compiled
def _address(data: Any, a: int, b: int) -> bool:
    """Four numbers with dots between: no network that is private or local."""
    part, value, digits = 0, 0, 0
    first = second = 0
    for i in range(a, b + 1):
        if i < b and 48 <= data[i] <= 57:
            value = 10 * value + data[i] - 48
            digits += 1
            if digits > 3 or (digits == 2 and value < 10 and (part == 0 or part == 3)):
                return False
        elif i == b or data[i] == 46:
            if digits == 0 or part > 3 or (digits == 3 and value < 100):
                return False
            highest = 223 if part == 0 else 254 if part == 3 else 255
            if value > highest or (value == 0 and (part == 0 or part == 3)):
                return False
            if part == 0:
                first = value
            elif part == 1:
                second = value
            part, value, digits = part + 1, 0, 0
        else:
            return False
    private = (
        first == 10 or first == 127 or (first == 169 and second == 254) or (first == 192 and second == 168)
    )
    return part == 4 and not private and not (first == 172 and 16 <= second <= 31)
