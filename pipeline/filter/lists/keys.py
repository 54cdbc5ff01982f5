"""Keys of lists: the small form of each letter and which letters make words; sets of byte strings that kernels look up in a
hash table, with the bytes compared at each hit."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled

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


Array = npt.NDArray[Any]

_SEED, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@dataclass(frozen=True)
class Keys:
    """Distinct keys, `data[offsets[k]:offsets[k + 1]]`; `slots` int32, a power of two of them: key + 1, 0 is free."""

    data: Array
    offsets: Array
    slots: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1


def keys(entries: Sequence[str]) -> Keys:
    """The set of `entries`, which are distinct."""
    coded = [entry.encode("utf-8") for entry in entries]
    offsets = np.zeros(len(coded) + 1, np.int64)
    np.cumsum([len(entry) for entry in coded], out=offsets[1:])
    data = np.frombuffer(b"".join(coded), np.uint8)
    slots = np.zeros(1 << max(3, (2 * len(coded)).bit_length()), np.int32)
    _fill(data, offsets, slots)
    return Keys(data, offsets, slots)


@compiled
def hash_of(data: Any, first: int, last: int) -> Any:
    """FNV-1a of `data[first:last]`, mixed."""
    h = _SEED
    for i in range(first, last):
        h = (h ^ np.uint64(data[i])) * _PRIME
    return (h ^ (h >> _SHIFT)) * _MIX


@compiled
def _fill(data: Any, offsets: Any, slots: Any) -> None:
    mask = np.uint64(len(slots) - 1)
    for k in range(len(offsets) - 1):
        at = (hash_of(data, offsets[k], offsets[k + 1]) >> _SHIFT) & mask
        while slots[np.int64(at)] != 0:
            at = (at + np.uint64(1)) & mask
        slots[np.int64(at)] = k + 1


@compiled
def find(data: Any, offsets: Any, slots: Any, text: Any, first: int, last: int) -> int:
    """The number of the key `text[first:last]`, -1 if there is none."""
    mask = np.uint64(len(slots) - 1)
    at = (hash_of(text, first, last) >> _SHIFT) & mask
    while slots[np.int64(at)] != 0:
        k = slots[np.int64(at)] - 1
        if offsets[k + 1] - offsets[k] == last - first:
            same = True
            for i in range(last - first):
                if data[offsets[k] + i] != text[first + i]:
                    same = False
                    break
            if same:
                return k
        at = (at + np.uint64(1)) & mask
    return -1
