"""Letters as lists compare them: the small form of each, and which of them make words."""

from __future__ import annotations

import sys
import unicodedata
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

# Blocks of scripts written without spaces: a word of these is found anywhere. Thai and Lao, Tibetan, Myanmar, Khmer,
# Hiragana to Bopomofo, Han.
_UNSPACED: Final = (
    (0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF),
    (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF),
)  # fmt: skip

_LAST_CASED: Final = 0x1FFFF  # no letter beyond has a small form
_LAST_WORD: Final = 0x3FFFF  # no letter, number or mark beyond, but variation selectors


@lru_cache(maxsize=1)
def small_table() -> npt.NDArray[np.int32]:
    """int32[0x110000]: the small form of each code point, itself where that is not one code point."""
    table = np.arange(sys.maxunicode + 1, dtype=np.int32)
    for point in range(_LAST_CASED + 1):
        if not 0xD800 <= point < 0xE000:
            small = chr(point).lower()
            if len(small) == 1:
                table[point] = ord(small)
    table.flags.writeable = False
    return table


@lru_cache(maxsize=1)
def joins_table() -> npt.NDArray[np.uint8]:
    """uint8[0x110000]: 2 for letters, numbers, marks and `_` of scripts with spaces between words, 1 for those of scripts
    without, else 0."""
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for point in range(_LAST_WORD + 1):
        if unicodedata.category(chr(point))[0] in "LNM":
            table[point] = 2
    table[ord("_")] = 2
    for first, last in _UNSPACED:
        part = table[first : last + 1]
        part[part == 2] = 1
    table.flags.writeable = False
    return table


def small(text: str) -> str:
    """`text` in small letters, code point by code point, as the kernels read it."""
    table = small_table()
    return "".join(chr(table[ord(char)]) for char in text)
