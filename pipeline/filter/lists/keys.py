"""Sets of byte strings that kernels look keys up in: a hash table, with the bytes compared at each hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled

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
