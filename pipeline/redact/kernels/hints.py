"""Words about telephones beside a group of digits, by their first bytes: a necessary condition for any of `phone_words`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels import IS_LETTER
from corpusmill.pipeline.redact.phone_words import LANGUAGES, LETTERS, SIGNS, spellings

BEFORE: Final = 64  # bytes before a segment in which words about telephones count, and behind it
BEHIND: Final = 14
_BITS: Final = 16
_STEM: Final = 6  # bytes of a word that are looked at
_PRIME: Final = 0x01000193  # of FNV-1
_MIX: Final = 0x9E3779B1
# Of labels behind a number, and of sentences in English (`phones`).
_MORE = ("office", "work", "home", "answer", "message", "number", "número", "rang")


def _small() -> npt.NDArray[np.uint32]:
    """uint32[256]: bytes with capitals of ASCII as small letters."""
    table = np.arange(256, dtype=np.uint32)
    table[65:91] += 32
    return table


SMALL = _small()


def _code(word: bytes) -> int:
    code = 0
    for byte in word:
        code = (code * _PRIME ^ byte) & 0xFFFFFFFF
    return (code * _MIX & 0xFFFFFFFF) >> (32 - _BITS)


def _hints() -> npt.NDArray[np.uint8]:
    """uint8[65536]: bit 0 at the first three folded bytes of a word; bit 1 at the hash of its first bytes, six at most; bit 2
    instead where a letter may stand before it."""
    table = np.zeros(1 << _BITS, np.uint8)
    every = {word for words in LANGUAGES.values() for word in (*words.labels, *words.near)}
    for word in sorted({*every, *_MORE, *("*" + sign for sign in SIGNS)}):
        for form in spellings(word.removeprefix("*")):
            table[_code(form[:3])] |= 1
            table[_code(form[:_STEM])] |= 4 if word.startswith("*") or form[0] >= 128 else 2
    return table


HINTS = _hints()
IS_LETTERED = np.isin(np.arange(256), list(LETTERS + LETTERS.upper()))


@compiled
def hint_at(data: Any, i: int) -> bool:
    code = np.uint32(np.uint32(SMALL[data[i]] * np.uint32(_PRIME)) ^ SMALL[data[i + 1]])
    code = np.uint32(np.uint32(code * np.uint32(_PRIME)) ^ SMALL[data[i + 2]])
    here = HINTS[np.uint32(code * np.uint32(_MIX)) >> np.uint32(16)]
    if here & 1 == 0:
        return False
    bits = 4 if i > 0 and IS_LETTER[data[i - 1]] else 6
    for k in range(i + 3, min(i + _STEM, len(data))):
        if here & bits:
            return True
        code = np.uint32(np.uint32(code * np.uint32(_PRIME)) ^ SMALL[data[k]])
        here = HINTS[np.uint32(code * np.uint32(_MIX)) >> np.uint32(16)]
    return bool(here & bits)


@compiled
def hinted(data: Any, start: int, end: int) -> bool:
    """Whether a word about telephones may stand before `start` or after `end`, in this document."""
    for i in range(start - 3, max(0, start - BEFORE) - 1, -1):
        if data[i + 2] == 0:
            break
        if hint_at(data, i):
            return True
    for i in range(end, min(end + BEHIND, len(data) - 2)):
        if data[i] == 0:
            return False
        if hint_at(data, i):
            return True
    return False


@compiled
def lettered(data: Any, start: int) -> bool:
    """Whether a letter that stands for a word about telephones, with a point or colon, may end before `start`: `T. `, `M: (`."""
    i = start - 1
    if i >= 0 and data[i] == 40:
        i -= 1
    if i >= 0 and data[i] == 32:
        i -= 1
    if i < 1 or (data[i] != 46 and data[i] != 58):
        return False
    return bool(IS_LETTERED[data[i - 1]] and (i < 2 or not (IS_LETTER[data[i - 2]] or data[i - 2] >= 128)))


@compiled
def in_other_script(data: Any, start: int, end: int) -> bool:
    """Whether one of the 24 bytes before `start` or after `end` is of a letter beyond the Latin ones (`phone_words.SCRIPTS`)."""
    for i in range(start - 1, max(0, start - 24) - 1, -1):
        if data[i] == 0:
            break
        if data[i] >= 0xCE and data[i] != 0xE2:
            return True
    for i in range(end, min(end + 24, len(data))):
        if data[i] == 0:
            return False
        if data[i] >= 0xCE and data[i] != 0xE2:
            return True
    return False
