"""Occurrences of what is known: digits, words and addresses whose keyed hash is in a table, whatever stands beside them.

A message that is hashed is a class and a normal form: `@` and an address in small letters; `#` and nine to nineteen digits; `-`
and seven or eight digits in their groups; `A` and nine to 34 letters and digits in capitals. `pipeline/redact/known.py` makes the same messages
of what was recognised.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels import (
    BLANK,
    BLANK_OPEN,
    IS_ALNUM,
    IS_DIGIT,
    IS_DOMAIN,
    IS_LETTER,
    IS_LOCAL,
    OTHER,
    SLASH,
    put,
)
from corpusmill.pipeline.redact.kernels.separators import separator, skip_separators
from corpusmill.pipeline.redact.kernels.siphash import siphash

ADDRESS, DIGITS, GROUPED, LETTERED = b"@#-A"
MIN_DIGITS: Final = 9  # fewer are found in too many numbers that are something else,
MIN_GROUPED: Final = 7  # unless they stand in the groups in which they were recognised
MAX_DIGITS: Final = 19
MAX_LETTERED: Final = 34
MAX_LOCAL: Final = 64
MAX_DOMAIN: Final = 255
KIND_BITS: Final = 5  # of an entry; the others are the hash's
_MAX_GROUPS: Final = 8
_RUN: Final = 64  # groups of digits looked at together
_MAX_WORDS: Final = 9


@compiled
def lookup(table: Any, code: Any) -> Any:
    """The kind (from 1) that the table has for a hash; 0 if it has none. `table`: uint64[2**n], 0 where free."""
    mask = np.uint64(len(table) - 1)
    place = (code >> np.uint64(KIND_BITS)) & mask
    while table[place] != 0:
        if table[place] >> np.uint64(KIND_BITS) == code >> np.uint64(KIND_BITS):
            return np.int64(table[place] & np.uint64((1 << KIND_BITS) - 1))
        place = (place + np.uint64(1)) & mask
    return np.int64(0)


@compiled
def fill(table: Any, entries: Any) -> None:
    """Put entries, of distinct hashes, into a table with room for them."""
    mask = np.uint64(len(table) - 1)
    for entry in entries:
        place = (entry >> np.uint64(KIND_BITS)) & mask
        while table[place] != 0:
            place = (place + np.uint64(1)) & mask
        table[place] = entry


def occurrences(
    data: npt.NDArray[np.uint8], table: npt.NDArray[np.uint64], key: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """int64[n, 3]: kind (from 1), first byte, one past the last; in the order met, and they may overlap.

    data: uint8[bytes], texts with a zero byte behind each. key: uint64[2].
    """
    found = np.empty((256, 3), np.int64)
    count = _occurrences(data, table, key, found)
    if count > len(found):
        found = np.empty((count, 3), np.int64)
        _occurrences(data, table, key, found)
    return found[:count]


@compiled
def _occurrences(data: Any, table: Any, key: Any, found: Any) -> int:
    n, count, i = len(data), 0, 0
    groups = np.empty((_RUN, 3), np.int64)
    message = np.empty(1 + MAX_LOCAL + 1 + MAX_DOMAIN, np.uint8)
    run_end = word_end = 0
    while i < n:
        c = data[i]
        if IS_DIGIT[c]:
            if i >= run_end:
                count, run_end = _digits(data, i, table, key, groups, message, found, count)
            if i >= word_end:
                count, word_end = _lettered(data, i, table, key, message, found, count)
            while i < n and IS_DIGIT[data[i]]:
                i += 1
            continue
        if c == 64:
            count = _address(data, i, i + 1, table, key, message, found, count)
        elif c == 37 and i + 2 < n and data[i + 1] == 52 and data[i + 2] == 48:  # %40
            count = _address(data, i, i + 3, table, key, message, found, count)
        i += 1
    return count


@compiled
def _digits(
    data: Any, start: int, table: Any, key: Any, groups: Any, message: Any, found: Any, count: int
) -> Any:
    """(count, end) of the run of groups of digits that begins at `start`.

    Groups a to b are looked up where no more digits follow or precede but behind a blank or a slash: the digits of a longer
    number are none of their own, however it is grouped. No letter touches them.
    """
    n, size, i = len(data), 0, start
    while True:
        first = i
        while i < n and IS_DIGIT[data[i]]:
            i += 1
        groups[size, 0], groups[size, 1] = first, i
        groups[size, 2] = separator(data, groups[size - 1, 1], first) if size else OTHER
        size += 1
        after = skip_separators(data, i)
        if after == i or after >= n or not IS_DIGIT[data[after]]:
            break
        if size == _RUN:  # the next run begins with the last groups of this one
            return _look_up(data, size, table, key, groups, message, found, count), groups[
                size - _MAX_GROUPS, 0
            ]
        i = after
    return _look_up(data, size, table, key, groups, message, found, count), i


@compiled
def _apart(kind: Any) -> bool:
    return kind in (OTHER, BLANK, BLANK_OPEN, SLASH)


@compiled
def _look_up(
    data: Any, size: int, table: Any, key: Any, groups: Any, message: Any, found: Any, count: int
) -> int:
    n = len(data)
    for a in range(size):
        start = groups[a, 0]
        if not _apart(groups[a, 2]) or (start > 0 and IS_ALNUM[data[start - 1]]):
            continue
        digits = 0
        for b in range(a, min(a + _MAX_GROUPS, size)):
            if b > a and groups[b, 2] == OTHER:
                break
            if digits + groups[b, 1] - groups[b, 0] > MAX_DIGITS:
                break
            for i in range(groups[b, 0], groups[b, 1]):
                digits += 1
                message[digits] = data[i]
            end = groups[b, 1]
            if digits < MIN_GROUPED or (b + 1 < size and not _apart(groups[b + 1, 2])):
                continue
            if end < n and IS_ALNUM[data[end]]:
                continue
            if digits >= MIN_DIGITS:
                message[0] = DIGITS
                kind = lookup(table, siphash(message, 0, digits + 1, key))
            elif b > a:
                kind = lookup(table, _grouped(data, groups, a, b, message, key))
            else:
                continue
            if kind:
                count = put(found, count, kind, _begin(data, start, end), end)
    return count


@compiled
def _grouped(data: Any, groups: Any, a: int, b: int, message: Any, key: Any) -> Any:
    """The hash of a few digits with their groups; the digits are in `message` from 1 on, and stay there."""
    other = np.empty(2 * MIN_DIGITS, np.uint8)
    size = 1
    other[0] = GROUPED
    for g in range(a, b + 1):
        if g > a:
            other[size] = 45
            size += 1
        for i in range(groups[g, 0], groups[g, 1]):
            other[size] = data[i]
            size += 1
    return siphash(other, 0, size, key)


@compiled
def _begin(data: Any, start: int, end: int) -> int:
    """`start`, or the `+` or `(` before it that belongs to the number."""
    if start > 0 and data[start - 1] == 40:
        for i in range(start, end):
            if data[i] == 41:
                start -= 1
                break
    if start > 0 and data[start - 1] == 43:
        start -= 1
    return start


@compiled
def _lettered(data: Any, at: int, table: Any, key: Any, message: Any, found: Any, count: int) -> Any:
    """(count, end) of the word that holds the digit at `at`: it, and what it makes with the words behind it, each one blank,
    hyphen or point apart. One or two letters may stand before it so, too (`AB 12 34 56 C`)."""
    n, low, high = len(data), at, at
    while low > 0 and IS_ALNUM[data[low - 1]]:
        low -= 1
    while high < n and IS_ALNUM[data[high]]:
        high += 1
    count = _words(data, low, table, key, message, found, count)
    before = low - 1
    if before > 0 and (data[before] == 32 or data[before] == 45) and IS_LETTER[data[before - 1]]:
        first = before - 1
        if first > 0 and IS_LETTER[data[first - 1]]:
            first -= 1
        if first == 0 or not IS_ALNUM[data[first - 1]]:
            count = _words(data, first, table, key, message, found, count)
    return count, high


@compiled
def _words(data: Any, low: int, table: Any, key: Any, message: Any, found: Any, count: int) -> int:
    n, i, size, letters, digits = len(data), low, 0, 0, 0
    message[0] = LETTERED
    for _ in range(_MAX_WORDS):
        first = i
        numbers = 0
        while i < n and IS_ALNUM[data[i]]:
            if size == MAX_LETTERED:
                return count
            c = data[i]
            size += 1
            if IS_DIGIT[c]:
                numbers += 1
                message[size] = c
            else:
                letters += 1
                message[size] = c & ~32
            i += 1
        digits += numbers
        if numbers == 0 and i - first > 4:  # a word of prose
            return count
        if size >= MIN_DIGITS and letters and digits:
            kind = lookup(table, siphash(message, 0, size + 1, key))
            if kind:
                count = put(found, count, kind, low, i)
        if i + 1 < n and (data[i] == 32 or data[i] == 45 or data[i] == 46) and IS_ALNUM[data[i + 1]]:
            i += 1
        elif i + 2 < n and data[i] == 0xC2 and data[i + 1] == 0xA0 and IS_ALNUM[data[i + 2]]:
            i += 2
        else:
            return count
    return count


@compiled
def _address(
    data: Any, at: int, domain: int, table: Any, key: Any, message: Any, found: Any, count: int
) -> int:
    """The known address around an at sign (`at` to `domain`: `@` or `%40`): of the local parts that begin with a word, and of
    the domains that end with a label, the longest pair."""
    n, low = len(data), at
    while low > 0 and at - low < MAX_LOCAL and (IS_LOCAL[data[low - 1]] or data[low - 1] == 46):
        low -= 1
    stop = domain
    while stop < n and stop - domain < MAX_DOMAIN and IS_DOMAIN[data[stop]]:
        stop += 1
    for start in range(low, at):
        escaped = start - low >= 3 and data[start - 3] == 37  # `%3Aann%40site.org`
        if start > low and IS_ALNUM[data[start - 1]] and not escaped:
            continue
        if start > low and data[start] >= 128 and data[start] < 192:  # within a character
            continue
        end = stop
        while end > domain:
            if IS_ALNUM[data[end - 1]] or data[end - 1] >= 128:
                message[0] = ADDRESS
                size = 1
                for i in range(start, at):
                    message[size] = _small(data[i])
                    size += 1
                message[size] = 64
                size += 1
                for i in range(domain, end):
                    message[size] = _small(data[i])
                    size += 1
                kind = lookup(table, siphash(message, 0, size, key))
                if kind:
                    return put(found, count, kind, start, end)
            end -= 1
            while end > domain and data[end] != 46 and data[end] != 45:
                end -= 1
    return count


@compiled
def _small(c: Any) -> Any:
    return c + 32 if 65 <= c <= 90 else c
