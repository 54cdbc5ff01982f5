"""Which runs of digits may hold a telephone number: a sign, a word nearby, or groups that a plan allows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels.tables import BLANK, BLANK_OPEN, IS_WORD, POINT

MAX_PHONE_GROUPS: Final = 7
_CONTEXT: Final = 44  # bytes before a segment, and a few after it, in which words about telephones count
_AFTER: Final = 14
# The first letters of each word of `phones._CONTEXT`, `_LABEL` and `_BEHIND`: a necessary condition for any of them.
# Those after `^` must begin a word; `?` is any byte.
_HINTS = (
    b"phon mobi tact sapp hotl ^tel? ^fax? ^call ^cell ^sms? ^text ^dial ^ph.? ^ph:? ^reac ^ring ^answ ^mess ^offi ^work ^home "
    b"\xe2\x98\x8e? \xf0\x9f\x93\x9e \xe2\x9c\x86?"
)


def _fold() -> npt.NDArray[np.int64]:
    """int64[256]: letters of either case as 1 to 26, the other bytes of hints after them, 0 for all that is in none."""
    table = np.zeros(256, np.int64)
    for place, byte in enumerate(b"abcdefghijklmnopqrstuvwxyz.:", 1):
        table[byte] = table[byte & ~32 if byte > 96 else byte] = place
    table[128:] = 29 + (np.arange(128) & 1)
    return table


FOLD = _fold()


def _hints() -> npt.NDArray[np.int64]:
    """int64[32768]: per three folded bytes 0 for no hint, else the fourth (32: any), and 64 where a word begins."""
    table = np.zeros(1 << 15, np.int64)
    for hint in _HINTS.split(b" "):
        word = hint.removeprefix(b"^")
        fourth = 32 if word[3:] == b"?" else FOLD[word[3]]
        table[FOLD[word[0]] << 10 | FOLD[word[1]] << 5 | FOLD[word[2]]] = fourth | 64 * hint.startswith(b"^")
    return table


HINTS = _hints()


@compiled
def _hint_at(data: Any, i: int) -> bool:
    hint = HINTS[FOLD[data[i]] << 10 | FOLD[data[i + 1]] << 5 | FOLD[data[i + 2]]]
    if hint == 0 or (hint & 64 and i > 0 and IS_WORD[data[i - 1]]):
        return False
    return bool(hint & 32) or (i + 3 < len(data) and FOLD[data[i + 3]] == hint & 31)


@compiled
def hinted(data: Any, start: int, end: int) -> bool:
    """Whether a word about telephones may stand before `start` or after `end`, in this document."""
    for i in range(start - 3, max(0, start - _CONTEXT) - 1, -1):
        if data[i + 2] == 0:
            break
        if _hint_at(data, i):
            return True
    for i in range(end, min(end + _AFTER, len(data) - 2)):
        if data[i] == 0:
            return False
        if _hint_at(data, i):
            return True
    return False


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
    known = signed or hinted(data, start, end)
    if not known and high - low == 2 and groups[low + 1, 2] == POINT:  # a decimal number
        return False
    for a in range(low, high):
        if a > low and groups[a, 2] != BLANK and groups[a, 2] != BLANK_OPEN:
            continue
        total, shape, smallest = np.int64(0), np.int64(0), np.int64(99)
        first = data[groups[a, 0]]
        for b in range(a, min(a + MAX_PHONE_GROUPS, high)):
            size = groups[b, 1] - groups[b, 0]
            total, shape, smallest = total + size, (shape << 5) | min(size, 31), min(smallest, size)
            if total > 17:
                break
            if total < 7 or (b + 1 < high and groups[b + 1, 2] != BLANK and groups[b + 1, 2] != BLANK_OPEN):
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
                if plans[p, 0] >= 0 and first != 48 + plans[p, 0]:
                    continue
                rest = total - plans[p, 1]
                if rest > 0 and plans[p, 2] >> rest & 1:
                    return True
    return False
