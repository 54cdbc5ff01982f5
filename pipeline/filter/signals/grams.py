"""Repeated word n-grams as four tools measure them, on the words that each of them sees.

| tool | top 2, 3, 4-gram | duplicate 5 to 10-grams |
|---|---|---|
| datatrove | of the most frequent ones the first in the text, times how often, even once, spaces too | walked from the left: a copy of one passed before counts, and the walk goes on behind it |
| Dolma | the same without spaces | all copies, the first too, of all n-grams (overlaps counted as often as they overlap) |
| DCLM | of the most frequent ones, if they come twice, the longest, times how often | the words covered by all copies, the first too, each word once |
| NeMo | as datatrove picks it; characters by `gopher_tools.removed` | the words covered by later copies, each once, and the spaces between |
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.repetition import longer, most_between, slot_of, table_size

DATATROVE: Final = 0
DOLMA: Final = 1
DCLM: Final = 2
NEMO: Final = 3


@compiled
def _group(gram: Any, places: Any, count: int, keys: Any, seen: Any, slots: Any) -> None:
    """Slot of each of the `count` n-grams, and how often it is `seen`."""
    size = table_size(count)
    seen[:size] = 0
    for k in range(count):
        key = gram[places[k]]
        slot = slot_of(key, size - 1)
        while seen[slot] and keys[slot] != key:
            slot = (slot + 1) & (size - 1)
        keys[slot] = key
        seen[slot] += 1
        slots[k] = slot


@compiled
def _duplicates(
    tool: int, n: int, places: Any, slots: Any, seen: Any, count: int, before: Any, words: int, passed: Any
) -> int:
    """Characters of the duplicate n-grams, by the reading of a tool. Only n-grams at `places` may be repeated."""
    total, end = 0, 0  # `end`: the words before it are counted
    if tool == NEMO:
        for k in range(count):
            passed[slots[k]] = False
    for k in range(count):
        i, slot = places[k], slots[k]
        if seen[slot] < 2:
            continue
        if tool == DOLMA:
            total += before[i + n] - before[i]
        elif tool == DCLM:
            total += before[i + n] - before[max(i, end)]
            end = i + n
        elif not passed[slot]:
            passed[slot] = True
        else:
            start = max(i, end)
            total += before[i + n] - before[start] + min(i + n - start, n - 1)
            end = i + n
    return total


@compiled
def gram_characters(hashes: Any, chars: Any, offsets: Any, tool: int) -> Any:
    """(int64[D, 9]: characters of the top 2, 3, 4-gram, then of duplicate 5 to 10-grams; int64[D, 3]: the word, of
    the document, at which each top n-gram first stands, -1 without one)."""
    docs = len(offsets) - 1
    out, best_at = np.zeros((docs, 9), np.int64), np.full((docs, 3), -1, np.int64)
    most = most_between(offsets)
    table = table_size(most)
    gram, level = np.empty(most, np.uint64), np.empty(most + 1, np.uint8)
    places, slots = np.empty(most, np.int64), np.empty(most, np.int64)
    before = np.empty(most + 1, np.int64)  # characters of the words before
    keys, seen, passed = np.empty(table, np.uint64), np.empty(table, np.int32), np.empty(table, np.bool_)
    for d in range(docs):
        base = offsets[d]
        words = offsets[d + 1] - base
        before[0] = 0
        for i in range(words):
            gram[i] = hashes[base + i]
            level[i] = 1
            places[i] = i
            before[i + 1] = before[i] + chars[base + i]
        level[words] = 0
        count = words
        for n in range(2, 11):
            if words < n:
                break
            count = longer(n, hashes, base, words, gram, level, places, count)
            _group(gram, places, count, keys, seen, slots)
            top, often, size = -1, 1, 0
            for k in range(count):
                times = seen[slots[k]]
                if times < 2:
                    continue
                i = places[k]
                level[i] = n
                here = before[i + n] - before[i]
                if times > often or (tool == DCLM and times == often and here > size):
                    top, often, size = i, times, here
            if n > 4 and tool == DATATROVE:
                break  # `walked_duplicates`
            if n > 4:
                out[d, n - 2] = _duplicates(tool, n, places, slots, seen, count, before, words, passed)
                continue
            if top < 0 and tool != DCLM:
                top, size = 0, before[n]
            if top >= 0:
                best_at[d, n - 2] = top
                out[d, n - 2] = (size + (n - 1 if tool == DATATROVE else 0)) * often
    return out, best_at


@compiled
def walked_duplicates(joins: Any, powers: Any, chars: Any, offsets: Any) -> Any:
    """int64[D, 6]: characters of datatrove's duplicate 5 to 10-grams.

    `joins` uint64 are polynomial hashes of the words' bytes, `powers` the base to the power of their bytes: n-grams
    are equal when their words are without anything between ("a bc" is "ab c"), as datatrove joins them.
    """
    docs = len(offsets) - 1
    out = np.zeros((docs, 6), np.int64)
    most = most_between(offsets)
    table = table_size(most)
    gram, before = np.empty(most, np.uint64), np.empty(most + 1, np.int64)
    keys, used = np.empty(table, np.uint64), np.empty(table, np.bool_)
    for d in range(docs):
        base = offsets[d]
        words = offsets[d + 1] - base
        before[0] = 0
        for i in range(words):
            gram[i] = joins[base + i]
            before[i + 1] = before[i] + chars[base + i]
        size = table_size(words)
        for n in range(2, 11):
            for i in range(words - n + 1):
                gram[i] = gram[i] * powers[base + i + n - 1] + joins[base + i + n - 1]
            if n < 5:
                continue
            used[:size] = False
            i = 0
            while i + n <= words:
                key = gram[i]
                slot = slot_of(key, size - 1)
                while used[slot] and keys[slot] != key:
                    slot = (slot + 1) & (size - 1)
                if used[slot]:
                    out[d, n - 5] += before[i + n] - before[i]
                    i += n
                else:
                    used[slot], keys[slot] = True, key
                    i += 1
    return out


@compiled
def all_gram_characters(chars: Any, offsets: Any) -> Any:
    """int64[D, 6]: characters of all 5 to 10-grams together (Dolma's whole)."""
    out = np.zeros((len(offsets) - 1, 6), np.int64)
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        for n in range(5, 11):
            total, window = 0, 0
            for i in range(first, last):
                window += chars[i]
                if i - first >= n:
                    window -= chars[i - n]
                if i - first >= n - 1:
                    total += window
            out[d, n - 5] = total
    return out
