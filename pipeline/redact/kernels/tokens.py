"""Words of ASCII letters and digits that hold a digit: IBANs, national numbers with letters, addresses of coins."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels import (
    COIN,
    FORMAT,
    IBAN,
    IS_ALNUM,
    IS_DIGIT,
    IS_HEX,
    IS_LETTER,
    MAC,
    WORD,
    put,
)

MAX_IBAN = 34


@compiled
def token(data: Any, start: int, wanted: Any, lengths: Any, found: Any, count: int) -> Any:
    """(count, end) of the word whose first digit is at `start`. `lengths`: uint8[676], the characters of
    an IBAN per pair of letters."""
    n, low, high = len(data), start, start
    while low > 0 and IS_ALNUM[data[low - 1]]:
        low -= 1
    digits = 0
    while high < n and IS_ALNUM[data[high]]:
        digits += IS_DIGIT[data[high]]
        high += 1
    size = high - low
    if size == 4 and wanted[MAC]:
        count = _cisco(data, low, found, count)
    if digits == size:
        if size == 2 and wanted[WORD]:
            count = _spaced_nino(data, low, found, count)
        return count, high
    if size >= 4 and wanted[IBAN]:
        end = iban(data, low, lengths)
        if end:
            count = put(found, count, IBAN, low, end)
    if wanted[WORD] and (
        (size == 9 and (digits == 8 or digits == 7 or digits == 6))
        or (size == 16 and digits <= 9)
        or (size == 15 and digits == 14)
    ):
        count = put(found, count, WORD, low, high)
    if wanted[COIN] and _may_be_coin(data, low, high):
        count = put(found, count, COIN, low, high)
    if wanted[FORMAT] and (
        (size == 34 and data[low] == 83 and data[low + 1] == 75)  # SK, 32 hexadecimal digits
        or (size == 4 and data[low] == 121 and data[low + 1] == 97 and high < n and data[high] == 46)  # ya29.
        or (size == 36 and data[low] == 100 and data[low + 1] == 97)  # dapi
    ):
        count = put(found, count, FORMAT, low, high)
    return count, high


@compiled
def _may_be_coin(data: Any, low: int, high: int) -> bool:
    size, first = high - low, data[low]
    if 25 <= size <= 35 and (first == 49 or first == 51):
        return True
    if size == 42 and first == 48 and (data[low + 1] | 32) == 120:
        return True
    return 14 <= size <= 90 and (first | 32) == 98 and (data[low + 1] | 32) == 99 and data[low + 2] == 49


@compiled
def iban(data: Any, low: int, lengths: Any) -> int:
    """The end of the IBAN that begins at `low` (ISO 13616: its country's length, 1 modulo 97); 0 if there is
    none."""
    if not (IS_LETTER[data[low]] and IS_LETTER[data[low + 1]]):
        return 0
    if not (IS_DIGIT[data[low + 2]] and IS_DIGIT[data[low + 3]]):
        return 0
    if low > 0 and (data[low - 1] == 95 or data[low - 1] == 45):
        return 0
    size = lengths[(np.int64(data[low]) & 31) * 26 - 26 + (np.int64(data[low + 1]) & 31) - 1]
    if size == 0:
        return 0
    chars = np.empty(MAX_IBAN, np.int64)
    n, i, taken = len(data), low, 0
    while taken < size:
        if i >= n:
            return 0
        c = np.int64(data[i])
        if IS_ALNUM[c]:
            chars[taken] = c - 48 if c < 58 else (c & 31) + 9
            taken += 1
            i += 1
            continue
        step = 1 if c == 32 or c == 45 else 2 if c == 0xC2 and i + 1 < n and data[i + 1] == 0xA0 else 0
        if step == 0 or i + step >= n or not IS_ALNUM[data[i + step]]:
            return 0
        i += step
    if i < n and IS_ALNUM[data[i]]:
        return 0
    rest = np.int64(0)
    for k in range(size):
        value = chars[(k + 4) % size]
        rest = (rest * (10 if value < 10 else 100) + value) % 97
    return i if rest == 1 else 0


@compiled
def _cisco(data: Any, low: int, found: Any, count: int) -> Any:
    """`0123.4567.89ab`, found at its first group that holds a digit."""
    begin = low
    while begin >= 5 and data[begin - 1] == 46 and _is_hex4(data, begin - 5):
        begin -= 5
    for at in range(begin, low, 5):
        for i in range(at, at + 4):
            if IS_DIGIT[data[i]]:
                return count
    if begin + 14 > len(data) or data[begin + 4] != 46 or data[begin + 9] != 46:
        return count
    if _is_hex4(data, begin) and _is_hex4(data, begin + 5) and _is_hex4(data, begin + 10):
        count = put(found, count, MAC, begin, begin + 14)
    return count


@compiled
def _is_hex4(data: Any, at: int) -> bool:
    good = True
    for i in range(at, at + 4):
        good &= IS_HEX[data[i]]
    return good


@compiled
def _spaced_nino(data: Any, low: int, found: Any, count: int) -> Any:
    """`AB 12 34 56 C`, found at its first two digits."""
    n, start = len(data), low - 3
    if start < 0 or low + 10 > n or (start > 0 and IS_ALNUM[data[start - 1]]):
        return count
    if (low + 10 < n and IS_ALNUM[data[low + 10]]) or data[low - 1] != 32:
        return count
    good = IS_LETTER[data[start]] and IS_LETTER[data[start + 1]] and IS_LETTER[data[low + 9]]
    for i in (3, 4, 6, 7):
        good &= IS_DIGIT[data[low + i]]
    if good and data[low + 2] == 32 and data[low + 5] == 32 and data[low + 8] == 32:
        count = put(found, count, WORD, start, low + 10)
    return count
