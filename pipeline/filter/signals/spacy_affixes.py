"""What spaCy's English tokenizer cuts off the front and the end of a word, and where it parts it inside
(`spacy/lang/punctuation.py` and `spacy/lang/en/punctuation.py`, 3.8); what it leaves whole as a URL (`URL_PATTERN` of
`spacy/lang/tokenizer_exceptions.py`, 3.8), by one reading from the left instead of a pattern that backtracks.
"""

from __future__ import annotations

from typing import Any

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.contractions import find
from corpusmill.pipeline.text import unicode_tables as classes
from corpusmill.pipeline.text.utf8 import before, decode


@compiled(inline="always")
def _digit(b: Any) -> Any:
    return 48 <= b <= 57


@compiled
def prefix_of(data: Any, a: int, b: int, table: Any) -> Any:
    """Bytes of the prefix of [a, b), 0 if it has none."""
    point, size = decode(data, a)
    if point == 46:  # two full stops or more
        i = a
        while i < b and data[i] == 46:
            i += 1
        return i - a if i - a > 1 else 0
    if table[point] & classes.PREFIX:
        return size
    if point == 43:  # + before no digit
        return 0 if a + 1 < b and _digit(data[a + 1]) else 1
    if (point == 65 or point == 67) and a + 1 < b and data[a + 1] == 36:  # A$ C$
        return 2
    if point == 85 and a + 2 < b and data[a + 1] == 83 and data[a + 2] == 36:  # US$
        return 3
    return 0


@compiled
def _stop_suffix(data: Any, a: int, b: int, table: Any) -> bool:
    """Whether the full stop that [a, b) ends in is cut off: by what stands before it."""
    if b - 1 <= a:
        return False
    i = before(data, a, b - 1)
    point, _ = decode(data, i)
    c = table[point]
    if c & classes.BEFORE_STOP:
        return True
    if i > a:
        other, _ = decode(data, before(data, a, i))
        if c & classes.SPACY_UPPER and table[other] & classes.SPACY_UPPER:
            return True
        if other == 0xB0 and (point | 32 == 102 or point | 32 == 99 or point | 32 == 107):
            return True
    return False


@compiled
def suffix_of(data: Any, a: int, b: int, table: Any, units: Any) -> int:
    """Bytes of the longest suffix of [a, b), 0 if it has none."""
    if a >= b:
        return 0
    last = before(data, a, b)
    point, _ = decode(data, last)
    if point == 46:
        i = b
        while i > a and data[i - 1] == 46:
            i -= 1
        if b - i > 1:
            return b - i
        return 1 if _stop_suffix(data, a, b, table) else 0
    best = b - last if table[point] & classes.SUFFIX else 0
    if last > a:
        if point == 0x2026 or point | 32 == 115:
            i = before(data, a, last)
            other, _ = decode(data, i)
            if (other == 0x2026) if point == 0x2026 else (other == 39 or other == 0x2019):  # …… 's
                best = b - i
        if not _digit(data[last]):
            i, chars = last, 1
            while chars <= 4 and i > a:  # a unit has at most four characters
                if _digit(data[i - 1]):
                    if find(data, i, b, units) >= 0:
                        best = max(best, b - i)
                    break
                i = before(data, a, i)
                chars += 1
    return best


@compiled
def infix_at(data: Any, a: int, i: int, b: int, table: Any) -> Any:
    """Bytes of the infix at byte `i` of [a, b), 0 if there is none."""
    point, size = decode(data, i)
    if point == 46:
        j = i
        while j < b and data[j] == 46:
            j += 1
        if j - i > 1:
            return j - i
    elif point == 0x2026 or table[point] & classes.ICON:
        return size
    elif point > 127 and point != 0x2013 and point != 0x2014:
        return 0
    if i == a or i + size >= b:
        return 0
    left, _ = decode(data, before(data, a, i))
    right, _ = decode(data, i + size)
    c, d = table[left], table[right]
    if point == 46:
        return (
            1
            if c & (classes.SPACY_LOWER | classes.QUOTE) and d & (classes.SPACY_UPPER | classes.QUOTE)
            else 0
        )
    if point == 44:
        return 1 if c & classes.SPACY_LETTER and d & classes.SPACY_LETTER else 0
    if (
        (point == 43 or point == 45 or point == 42 or point == 94)
        and _digit(left)
        and (_digit(right) or right == 45)
    ):
        return 1
    if not (c & classes.SPACY_LETTER or _digit(left)):
        return 0
    if point == 58 or 60 <= point <= 62 or point == 47 or point == 126 or point == 0x2013:  # : < = > / ~ –
        return size if d & classes.SPACY_LETTER else 0
    if point == 45 or point == 0x2014:  # - -- --- — ——
        end, most = i + size, 3 if point == 45 else 2
        for _ in range(most):
            if end >= b:
                return 0
            following, more = decode(data, end)
            if table[following] & classes.SPACY_LETTER:
                return end - i
            if following != point:
                return 0
            end += more
    return 0


@compiled
def has_affix(data: Any, a: int, b: int, table: Any, units: Any) -> bool:
    """Whether [a, b) has a prefix, a suffix or an infix."""
    if prefix_of(data, a, b, table) or suffix_of(data, a, b, table, units):
        return True
    i = a
    while i < b:
        if infix_at(data, a, i, b, table):
            return True
        i += decode(data, i)[1]
    return False


_LOGINS = 8  # the host is looked for after at most so many `@` of a chunk


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
        if not (plain or table[point] & classes.ALPHA):
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
            if not (good or inside or table[point] & classes.SPACY_LOWER):
                return False
            chars += 1
            low += (table[point] & classes.SPACY_LOWER) != 0
            ends_well = good
        i += size
    return labels > 0 and 2 <= chars <= 63 and low == chars


@compiled
def _address(data: Any, a: int, b: int) -> bool:
    """Four numbers with dots between, of a network that is neither private nor local."""
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
