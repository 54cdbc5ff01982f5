"""One word: its hash, its bare form, how it is written, whether it is one of the Gopher paper's eight."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.unicode_tables import ALPHA, OTHER, UPPER
from corpusmill.pipeline.text.utf8 import decode

SEED = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)
MIX = np.uint64(0x9E3779B97F4A7C15)
ZERO = np.uint64(0)
SHIFT = np.uint64(32)


def word_hash_of(word: str) -> int:
    """What the scan gives a word as hash: FNV-1a over its code points, mixed; of a bare word, its bare hash."""
    h = int(SEED)
    for char in word:
        h = (h ^ ord(char)) * int(PRIME) % (1 << 64)
    return (h ^ h >> int(SHIFT)) * int(MIX) % (1 << 64)


# The Gopher paper's list; bit i of `counts[STOPS]` is word i.
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
# A table in which each has a slot of its own: the bits of its hash from `STOP_SHIFT` on.
STOP_SLOTS = 64
_stops = [word_hash_of(word) for word in STOP_WORDS]
STOP_SHIFT = np.uint64(
    next(s for s in range(58) if len({h >> s & (STOP_SLOTS - 1) for h in _stops}) == len(_stops))
)
STOP_KEYS = np.zeros(STOP_SLOTS, np.uint64)
STOP_BITS = np.zeros(STOP_SLOTS, np.int64)
for _i, _hash in enumerate(_stops):
    _slot = _hash >> int(STOP_SHIFT) & (STOP_SLOTS - 1)
    STOP_KEYS[_slot], STOP_BITS[_slot] = _hash, 1 << _i


@compiled
def bare_word(data: Any, first: int, last: int, table: Any, lower: Any) -> Any:
    """(hash, characters) of the bare word of [first, last); (0, 0) if nothing is left of it."""
    h, chars = SEED, 0
    i = first
    while i < last:
        point, size = decode(data, i)
        c = np.int64(table[point])
        if not c & OTHER:
            if c & UPPER:
                point = np.int64(lower[point])
            h = (h ^ np.uint64(point)) * PRIME
            chars += 1
        i += size
    return ((h ^ (h >> SHIFT)) * MIX if chars else ZERO), chars


@compiled
def is_title(data: Any, first: int, last: int, table: Any) -> bool:
    """Whether the first letter of [first, last) is its one upper case letter."""
    letters, uppers, leads = 0, 0, False
    i = first
    while i < last:
        point, size = decode(data, i)
        c = np.int64(table[point])
        if c & UPPER:
            uppers += 1
            leads = leads or letters == 0
        letters += (c & ALPHA) != 0
        i += size
    return leads and uppers == 1
