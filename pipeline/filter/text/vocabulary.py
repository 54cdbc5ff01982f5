"""The words of a document as a set: how many distinct ones, how evenly they are used, how many say nothing alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.repetition import most_between, slot_of, table_size
from corpusmill.pipeline.filter.text.word_hashes import word_hash_of

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


_SLOTS = 1024  # four times the words: most that are none of them meet an empty slot


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
