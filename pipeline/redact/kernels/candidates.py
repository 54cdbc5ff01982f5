"""The loop over a batch that finds candidates of personal data, and runs of digits: groups at most three separators apart.

A run falls into segments where more than an ordinary separator lies between two groups; every candidate is a
sequence of groups of one segment, so the first ten digits of a longer number are none.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels import (
    ASSIGNED,
    AT,
    CARD,
    CLASSES,
    COIN,
    COLON,
    COMMERCIAL_AT,
    DASH,
    DIGIT,
    EQUALS,
    FORMAT,
    IBAN,
    IP4,
    IP6,
    IS_ALNUM,
    IS_DIGIT,
    LABELLED,
    MAC,
    MASKED,
    NUMBER,
    OTHER,
    PEM,
    PHONE,
    POINT,
    QUERY,
    SSN,
    USERINFO,
    WORD,
    put,
)
from corpusmill.pipeline.redact.kernels.around import (
    armour,
    assignment,
    at_sign,
    hardware,
    prefix,
    sixth,
    userinfo,
)
from corpusmill.pipeline.redact.kernels.digit_groups import may_hold_phones, numbers
from corpusmill.pipeline.redact.kernels.labels import labelled, masked
from corpusmill.pipeline.redact.kernels.separators import separator, skip_separators
from corpusmill.pipeline.redact.kernels.tokens import token

MAX_GROUPS: Final = 4096  # a longer run is taken in pieces,
OVERLAP: Final = 16  # which share so many groups
TABLE_BYTES: Final = 48  # a longer run with neither '(' nor '-' nor '+' is a row of measures


@compiled
def run(data: Any, start: int, wanted: Any, plans: Any, groups: Any, found: Any, count: int) -> Any:
    """(count, end of the run) of the run whose first digit is at `start`.

    `wanted`: bool per class of candidates. `plans`: int64[regions, 4], a region's first digit of the national
    prefix (-1: none), the prefix's length, a bit per length of its numbers, and whether three groups are needed; the first row
    is 1 if a region of the North American plan is among them. `groups`: int64[MAX_GROUPS, 3], scratch.
    """
    n, size, i, digits, end = len(data), 0, start, 0, -1
    while True:
        first = i
        while i < n and IS_DIGIT[data[i]]:
            i += 1
        groups[size, 0], groups[size, 1] = first, i
        groups[size, 2] = separator(data, groups[size - 1, 1], first) if size else 0
        size += 1
        digits += i - first
        after = skip_separators(data, i)
        if after == i or after >= n or not IS_DIGIT[data[after]]:
            break
        if size == MAX_GROUPS:
            end = groups[size - OVERLAP, 0]  # the next piece begins here
            break
        i = after
    table = i - start >= TABLE_BYTES and wanted[PHONE]
    if table:
        for k in range(start, i):
            if data[k] == 40 or data[k] == 45:
                table = False
                break
    low = 0
    for high in range(1, size + 1):
        if high == size or groups[high, 2] == OTHER:
            if wanted[IP4]:
                count = _quads(groups, low, high, found, count)
            if digits >= 7:
                count = numbers(data, groups, low, high, wanted, found, count)
                if wanted[PHONE] and may_hold_phones(data, groups, low, high, table, plans):
                    count = put(found, count, PHONE, groups[low, 0], groups[high - 1, 1])
            low = high
    return count, end if end >= 0 else i


@compiled
def _quads(groups: Any, low: int, high: int, found: Any, count: int) -> Any:
    """Four groups of at most three digits with points between them, and no fifth."""
    for a in range(low, high - 3):
        if a > low and groups[a, 2] == POINT:
            continue
        good = groups[a, 1] - groups[a, 0] <= 3
        for b in range(a + 1, a + 4):
            good &= groups[b, 2] == POINT and groups[b, 1] - groups[b, 0] <= 3
        if good and (a + 4 == high or groups[a + 4, 2] != POINT):
            count = put(found, count, IP4, groups[a, 0], groups[a + 3, 1])
    return count


def candidates(data: npt.NDArray[np.uint8], wanted: Any, plans: Any, lengths: Any) -> npt.NDArray[np.int64]:
    """int64[candidates, 3]: class (`tables.py`), first byte, one past the last byte, in the order met.

    data: uint8[bytes], texts with a zero byte behind each. wanted: bool[classes]. plans: as `run` takes
    them. lengths: as `tokens.token` takes them. One pass; each byte is read a bounded number of times.
    """
    found = np.empty((len(data) // 256 + 64, 3), np.int64)
    count = _candidates(data, wanted, plans, lengths, found)
    if count > len(found):
        found = np.empty((count, 3), np.int64)
        _candidates(data, wanted, plans, lengths, found)
    return found[:count]


@compiled
def _candidates(data: Any, wanted: Any, plans: Any, lengths: Any, found: Any) -> int:
    n, count = len(data), 0
    groups = np.empty((MAX_GROUPS, 3), np.int64)
    in_runs = wanted[IP4] or wanted[CARD] or wanted[SSN] or wanted[NUMBER] or wanted[PHONE] or wanted[WORD]
    in_words = wanted[IBAN] or wanted[WORD] or wanted[COIN] or wanted[FORMAT] or wanted[MAC]
    word_end = run_end = colon_end = label_end = 0
    i = 0
    while True:
        while i < n and CLASSES[data[i]] == 0:
            i += 1
        if i >= n:
            break
        kind = CLASSES[data[i]]
        if kind == DIGIT:
            if in_words and i >= word_end:
                count, word_end = token(data, i, wanted, lengths, found, count)
            if in_runs and i >= run_end:
                count, run_end = run(data, i, wanted, plans, groups, found, count)
            first = i
            while i < n and IS_DIGIT[data[i]]:
                i += 1
            if wanted[MASKED]:
                count = masked(data, first, i, found, count)
            if wanted[LABELLED] and first >= label_end:
                low, label_end = first, i
                while low > 0 and IS_ALNUM[data[low - 1]]:
                    low -= 1
                while label_end < n and IS_ALNUM[data[label_end]]:
                    label_end += 1
                count = labelled(data, low, first, label_end, found, count)
            continue
        if kind == COLON:
            if i + 2 < n and data[i + 1] == 47 and data[i + 2] == 47:
                if wanted[USERINFO]:
                    count = userinfo(data, i, found, count)
            else:
                if wanted[MAC]:
                    count = hardware(data, i, found, count)
                if wanted[IP6] and i >= colon_end:
                    count, colon_end = sixth(data, i, found, count)
                if wanted[ASSIGNED]:
                    count = assignment(data, i, wanted, found, count)
        elif kind == EQUALS:
            if wanted[ASSIGNED] or wanted[QUERY]:
                count = assignment(data, i, wanted, found, count)
        elif kind == COMMERCIAL_AT:
            if wanted[AT]:
                count = at_sign(data, i, found, count)
        else:
            if wanted[FORMAT]:
                count = prefix(data, i, found, count)
            if kind == DASH:
                if wanted[PEM]:
                    count = armour(data, i, found, count)
                if wanted[MAC]:
                    count = hardware(data, i, found, count)
        i += 1
    return count
