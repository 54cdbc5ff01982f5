"""Words: the hash of one, its bare form, how it is written, whether it is one of the Gopher paper's eight; and the words of a
document as a set: how many distinct ones, how evenly they are used, how many are function words."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.repetition import most_between, slot_of, table_size
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


@compiled
def hash_of(data: Any, first: int, last: int) -> Any:
    """uint64 of the bytes [first, last); never 0. Mixed at the end, so that the low bits serve as a slot."""
    h = SEED
    for i in range(first, last):
        h = (h ^ np.uint64(data[i])) * PRIME
    h = (h ^ (h >> SHIFT)) * MIX
    h ^= h >> np.uint64(29)
    return h if h else np.uint64(1)


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


# English words of the closed classes: articles, pronouns, prepositions, conjunctions, auxiliary verbs, particles.
_WORDS = """a about above across after again against all almost along already also although always am among an and
another any anybody anyone anything are around as at away back be became because become becomes been before
behind being below between beyond both but by can cannot could did do does doing done down during each either
else enough even ever every everybody everyone everything few first for from further had has have having he
hence her here hers herself him himself his how however i if in indeed instead into is it its itself just last
least less many may me might mine more moreover most much must my myself near neither never nevertheless next no
nobody none nor not nothing now of off often on once one only onto or other others otherwise our ours ourselves
out over own per perhaps quite rather same several shall she should since so some somebody someone something
sometimes still such than that the their theirs them themselves then there therefore these they this those
though through throughout thus to together too toward towards under until unto up upon us very was we were what
whatever when where whereas wherever whether which while who whoever whole whom whose why will with within
without would yet you your yours yourself yourselves dont doesnt didnt isnt arent wasnt werent hasnt havent
hadnt wont wouldnt cant couldnt shouldnt im ive youre hes shes theyre thats theres lets"""
FUNCTION_WORDS: Final = tuple(_WORDS.split())


_SLOTS = 1024  # four times the words: most other words meet an empty slot


@lru_cache(maxsize=1)
def function_words() -> npt.NDArray[np.uint64]:
    """uint64[_SLOTS]: an open hash table of `FUNCTION_WORDS` as bare words; 0 is empty."""
    table = np.zeros(_SLOTS, np.uint64)
    for word in FUNCTION_WORDS:
        key = np.uint64(word_hash_of(word))
        slot = slot_of(key, _SLOTS - 1)
        while table[slot] not in (0, key):
            slot = (slot + 1) % _SLOTS
        table[slot] = key
    return table


@compiled(inline="always")
def _holds(table: Any, key: Any) -> Any:
    slot = slot_of(key, len(table) - 1)
    while table[slot] != 0 and table[slot] != key:
        slot = (slot + 1) & (len(table) - 1)
    return table[slot] == key


@compiled
def vocabulary(bare: Any, offsets: Any, function: Any) -> Any:
    """float64[docs, 3]: distinct bare words, the entropy of their use in nats, and how many are of `function`.

    `bare` holds 0 where a word has no bare form: such a word does not count. Entropy is that of RedPajama-V2:
    -sum(p log p) over the distinct words, p being a word's share of all.
    """
    docs = len(offsets) - 1
    out = np.zeros((docs, 3), np.float64)
    most = most_between(offsets)
    size = table_size(most)
    keys = np.zeros(size, np.uint64)
    seen = np.zeros(size, np.int32)
    filled = np.empty(most, np.int64)
    for d in range(docs):
        first, last = offsets[d], offsets[d + 1]
        mask = table_size(last - first) - 1
        distinct, words = 0, 0
        for i in range(first, last):
            key = bare[i]
            if key == 0:
                continue
            words += 1
            slot = slot_of(key, mask)
            while seen[slot] and keys[slot] != key:
                slot = (slot + 1) & mask
            if not seen[slot]:
                keys[slot] = key
                filled[distinct] = slot
                distinct += 1
            seen[slot] += 1
        # log(words) - sum(n log n) / words; words of one and two occurrences, most of them, need no logarithm.
        total, used = 0.0, 0
        for k in range(distinct):
            slot = filled[k]
            n = seen[slot]
            seen[slot] = 0
            if n == 2:
                total += _TWO_LOG_TWO
            elif n > 2:
                total += n * np.log(n)
            if _holds(function, keys[slot]):
                used += n
        out[d, 0], out[d, 2] = distinct, used
        if distinct > 1:
            out[d, 1] = max(np.log(words) - total / words, 0.0)
    return out


_TWO_LOG_TWO = 2 * float(np.log(2.0))
