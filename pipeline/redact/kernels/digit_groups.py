"""Groups of digits in the shapes of telephone numbers, payment cards, social security numbers and other national numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels import (
    BLANK,
    BLANK_OPEN,
    CARD,
    CARD_TABLE,
    CLOSE,
    HYPHEN,
    IS_ALNUM,
    IS_DIGIT,
    NUMBER,
    POINT,
    SLASH,
    SSN,
    WORD,
    put,
)
from corpusmill.pipeline.redact.kernels.hints import hinted, in_other_script, lettered

MAX_PHONE_GROUPS: Final = 7


@compiled
def _parts(kind: int, known: bool) -> bool:
    """Whether one number may end and another begin at a separator."""
    return kind in (BLANK, BLANK_OPEN) or (known and kind == SLASH)


@compiled
def may_hold_phones(data: Any, groups: Any, low: int, high: int, table: bool, plans: Any) -> bool:
    """Necessary for any number that `phones.phones` finds in the segment; it looks closer. `table`: the run is a row
    of measures."""
    start, end = groups[low, 0], groups[high - 1, 1]
    digits = np.int64(0)
    for g in range(low, high):
        digits += groups[g, 1] - groups[g, 0]
    if digits < 7:
        return False
    before = data[start - 1] if start > 0 else 0
    signed = before == 43 or (start > 1 and data[start - 2] == 43)
    if table and not signed:
        return False
    known = signed or lettered(data, start) or hinted(data, start, end)
    if (
        not known and high - low > 1
    ):  # "(34) 91 123 45 67", and "8 (495) 123-45-67" in a text of another script
        opened = before == 40 and groups[low + 1, 2] == CLOSE
        known = opened or (high - low > 2 and in_other_script(data, start, end))
    if not known and high - low == 2 and groups[low + 1, 2] == POINT:  # a decimal number
        return False
    for a in range(low, high):
        if a > low and not _parts(groups[a, 2], known):
            continue
        total, shape, smallest = np.int64(0), np.int64(0), np.int64(99)
        first = data[groups[a, 0]]
        for b in range(a, min(a + MAX_PHONE_GROUPS, high)):
            size = groups[b, 1] - groups[b, 0]
            total, shape, smallest = total + size, (shape << 5) | min(size, 31), min(smallest, size)
            if total > 17:
                break
            if total < 7 or (b + 1 < high and not _parts(groups[b + 1, 2], known)):
                continue
            if known:
                return True
            if first == 48 and total > 9 and data[groups[a, 0] + 1] == 48:
                return True
            if plans[0, 0] and (
                shape == ((3 << 5 | 3) << 5 | 4)
                or shape == (((1 << 5 | 3) << 5 | 3) << 5 | 4)
                or shape == (3 << 5 | 7)
                or shape == (1 << 5 | 10)
            ):
                return True
            if b == a or smallest < 2:
                continue
            for p in range(1, len(plans)):
                if plans[p, 3] and b < a + 2 and (groups[a, 0] == 0 or data[groups[a, 0] - 1] != 40):
                    continue
                if plans[p, 0] >= 0 and first != 48 + plans[p, 0]:
                    continue
                rest = total - plans[p, 1]
                if rest > 0 and plans[p, 2] >> rest & 1:
                    return True
    return False


@compiled
def _alone(data: Any, groups: Any, low: int, high: int, first: int, last: int) -> Any:
    """No letter, digit, decimal point or path touches the groups from either side."""
    if first > low:
        if groups[first, 2] != BLANK and groups[first, 2] != BLANK_OPEN:
            return False
    else:
        i = groups[first, 0]
        if i > 0:
            c = data[i - 1]
            if IS_ALNUM[c] or c == 95 or 35 <= c <= 38 or c == 64 or c == 92 or c == 43 or 45 <= c <= 47:
                return False
            if (c == 44 or c == 58) and i > 1 and IS_DIGIT[data[i - 2]]:
                return False
    if last < high - 1:
        return (
            groups[last + 1, 2] == BLANK or groups[last + 1, 2] == BLANK_OPEN or groups[last + 1, 2] == CLOSE
        )
    i = groups[last, 1]
    if i < len(data):
        c = data[i]
        if IS_ALNUM[c] or c == 95 or c == 64 or c == 37 or c == 38:
            return False
        if (44 <= c <= 47 or c == 58) and i + 1 < len(data) and IS_ALNUM[data[i + 1]]:
            return False
    return True


@compiled
def _luhn(data: Any, start: int, end: int) -> bool:
    total, place = 0, 0
    for i in range(end - 1, start - 1, -1):
        if IS_DIGIT[data[i]]:
            digit: Any = np.int64(data[i]) - 48
            if place & 1:
                digit = 2 * digit - 9 * (digit > 4)
            total += digit
            place += 1
    return total % 10 == 0


@compiled
def numbers(data: Any, groups: Any, low: int, high: int, wanted: Any, found: Any, count: int) -> Any:
    """Cards, social security numbers and other national numbers, by the shape of their groups."""
    for a in range(low, high):
        shape, length = np.int64(0), np.int64(0)
        for b in range(a, min(a + 7, high)):
            size = groups[b, 1] - groups[b, 0]
            if size > 19 or (b > a and (groups[b, 2] > POINT or size > 9)):
                break
            shape, length = (shape << 5) | size, length + size
            if length > 19:
                break
            if length < 8:
                continue
            if wanted[CARD] and (b == a or _uniform(groups, a, b)) and _is_card_shape(shape, length, a == b):
                c = data[groups[a, 0]]
                if (
                    49 <= c <= 54
                    and _luhn(data, groups[a, 0], groups[b, 1])
                    and _alone(data, groups, low, high, a, b)
                ):
                    beside = (a > low and groups[a - 1, 1] - groups[a - 1, 0] == 4) or (
                        b + 1 < high and groups[b + 1, 1] - groups[b + 1, 0] == 4
                    )
                    kind = CARD_TABLE if beside and b > a else CARD
                    count = put(found, count, kind, groups[a, 0], groups[b, 1])
            ssn = wanted[SSN] and (shape == 9 or shape == ((3 << 5 | 2) << 5 | 4))
            number = wanted[NUMBER] and _is_number_shape(shape)
            if (ssn or number) and _alone(data, groups, low, high, a, b):
                if ssn:
                    count = put(found, count, SSN, groups[a, 0], groups[b, 1])
                if number:
                    count = put(found, count, NUMBER, groups[a, 0], groups[b, 1])
            if wanted[WORD] and b == high - 1 and (shape == 8 or shape == ((2 << 5 | 3) << 5 | 3)):
                i = groups[b, 1]  # `12345678-Z` and `12.345.678-Z`: a letter that belongs to it
                i += i < len(data) and (data[i] == 45 or data[i] == 32)
                if (
                    i < len(data)
                    and 65 <= data[i] <= 90
                    and (i + 1 == len(data) or not IS_ALNUM[data[i + 1]])
                ):
                    count = put(found, count, WORD, groups[a, 0], i + 1)
    return count


@compiled
def _uniform(groups: Any, a: int, b: int) -> bool:
    """Blanks between all groups, or hyphens between all."""
    kind = groups[a + 1, 2]
    for i in range(a + 2, b + 1):
        if groups[i, 2] != kind:
            return False
    return kind in (BLANK, HYPHEN)


@compiled
def _is_card_shape(shape: int, length: int, single: bool) -> bool:
    if single:
        return 12 <= length <= 19
    four = (4 << 5 | 4) << 5 | 4
    return (
        shape == (four << 5 | 4)
        or shape == ((4 << 5 | 6) << 5 | 5)
        or shape == ((4 << 5 | 6) << 5 | 4)
        or shape == ((four << 5 | 4) << 5 | 3)
        or shape == (four << 5 | 1)
    )


@compiled
def _is_number_shape(shape: int) -> bool:
    """Shapes of `identity_numbers.SHAPES`: 9 to 13 digits and 15, and the usual groups."""
    if shape < 32:
        return 9 <= shape <= 13 or shape == 15
    three = (3 << 5 | 3) << 5 | 3
    return (
        shape == three
        or shape == ((3 << 5 | 3) << 5 | 4)
        or shape == (three << 5 | 2)
        or shape == ((4 << 5 | 4) << 5 | 4)
        or shape == (6 << 5 | 4)
        or shape == (8 << 5 | 4)
        or shape == (((2 << 5 | 3) << 5 | 3) << 5 | 3)
        or shape == ((((((1 << 5 | 2) << 5 | 2) << 5 | 2) << 5 | 3) << 5 | 3) << 5 | 2)
        or shape == (13 << 5 | 2)
        or shape == ((4 << 5 | 2) << 5 | 3)
    )
