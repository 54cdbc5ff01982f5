"""Repetition inside a document: later copies of lines and paragraphs, repeated word n-grams.

Definitions (the Gopher paper leaves them open, five tools read it in five ways):
- a duplicate line or paragraph is a **later copy** of one seen before (datatrove's and NeMo's reading; Dolma
  and DCLM count the first copy too).
- top n-gram: the n-gram that occurs most often, if it occurs at least twice; among equals the one with most
  characters. Its share is that of the words which some occurrence covers, each counted once.
- duplicate n-grams: the words covered by a later copy of some n-gram, each counted once, as the paper asks.
Shares are of the characters of all words, white space left out on both sides.

Equality is that of 64-bit hashes: a false match in a document of a million words has odds below 1 in 10
million.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled

TOP = (2, 3, 4)
DUPLICATE = (5, 6, 7, 8, 9, 10)

STEP = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(29)


@compiled(inline="always")
def slot_of(key: Any, mask: int) -> Any:
    mixed = (key ^ (key >> _SHIFT)) * STEP
    return np.int64((mixed >> np.uint64(32)) & np.uint64(mask))


@compiled(inline="always")
def table_size(entries: int) -> int:
    size = 8
    while size < 2 * entries:
        size *= 2
    return size


@compiled
def most_between(offsets: Any) -> int:
    """The most items that any document has."""
    most = 0
    for d in range(len(offsets) - 1):
        most = max(most, offsets[d + 1] - offsets[d])
    return most


@compiled
def longer(
    n: int, hashes: Any, base: int, words: int, gram: Any, level: Any, places: Any, candidates: int
) -> int:
    """Make n-grams of the (n-1)-grams at `places[:candidates]`, where both that it begins and ends with are repeated.

    Only those may be repeated. `gram` holds their hashes by place, `level` the largest n for which the n-gram at a
    place is repeated; they begin at word `base` of `hashes`. How many are left in `places`.
    """
    found = 0
    for k in range(candidates):
        i = places[k]
        if i + n <= words and level[i] == n - 1 and level[i + 1] >= n - 1:
            gram[i] = (gram[i] + np.uint64(n)) * STEP + hashes[base + i + n - 1]
            places[found] = i
            found += 1
    return found


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
def later_copies(hashes: Any, chars: Any, offsets: Any) -> Any:
    """int64[docs, 2]: how many items of each document are copies of an earlier one, and their characters."""
    out = np.zeros((len(offsets) - 1, 2), np.int64)
    most = most_between(offsets)
    keys = np.empty(table_size(most), np.uint64)
    used = np.empty(table_size(most), np.uint8)
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        if last - first < 2:
            continue
        size = table_size(last - first)
        used[:size] = 0
        for i in range(first, last):
            key = hashes[i]
            slot = slot_of(key, size - 1)
            while used[slot] and keys[slot] != key:
                slot = (slot + 1) & (size - 1)
            if used[slot]:
                out[d, 0] += 1
                out[d, 1] += chars[i]
            else:
                used[slot] = 1
                keys[slot] = key
    return out


@compiled
def ngram_shares(hashes: Any, chars: Any, offsets: Any) -> Any:
    """float64[docs, 9]: shares of the word characters in the top 2, 3, 4-gram, then in duplicate 5 to
    10-grams."""
    docs = len(offsets) - 1
    out = np.zeros((docs, 9), np.float64)
    most = most_between(offsets)
    gram = np.empty(most, np.uint64)
    level = np.empty(most + 1, np.uint8)  # the largest n so far for which the n-gram here is repeated
    stamp = np.empty(most, np.uint8)  # the n for which this word was last counted
    before = np.empty(most + 1, np.int64)  # characters of the words before
    places = np.empty(most, np.int64)
    slots = np.empty(most, np.int64)
    keys = np.empty(table_size(most), np.uint64)
    seen = np.empty(table_size(most), np.int32)
    for d in range(docs):
        base = offsets[d]
        words = offsets[d + 1] - base
        if words < 3:
            continue
        before[0] = 0
        for i in range(words):
            gram[i] = hashes[base + i]
            level[i] = 1
            stamp[i] = 0
            places[i] = i
            before[i + 1] = before[i] + chars[base + i]
        level[words] = 0
        candidates = words
        for n in range(2, 11):
            candidates = longer(n, hashes, base, words, gram, level, places, candidates)
            if candidates < 2:
                break
            size = table_size(candidates)
            seen[:size] = 0
            covered = 0
            for k in range(candidates):
                i = places[k]
                key = gram[i]
                slot = slot_of(key, size - 1)
                while seen[slot] and keys[slot] != key:
                    slot = (slot + 1) & (size - 1)
                keys[slot] = key
                seen[slot] += 1
                slots[k] = slot
                if n >= 5 and seen[slot] > 1:
                    for j in range(i, i + n):
                        if stamp[j] != n:
                            stamp[j] = n
                            covered += chars[base + j]
            best, best_seen, best_chars, kept = -1, 1, 0, 0
            for k in range(candidates):
                i, slot = places[k], slots[k]
                if seen[slot] < 2:
                    continue
                level[i] = n
                size_here = before[i + n] - before[i]
                if seen[slot] > best_seen or (seen[slot] == best_seen and size_here > best_chars):
                    best, best_seen, best_chars = slot, seen[slot], size_here
                kept += 1
            if kept == 0:
                break
            if n <= 4:
                for k in range(candidates):
                    if slots[k] == best:
                        for j in range(places[k], places[k] + n):
                            if stamp[j] != n:
                                stamp[j] = n
                                covered += chars[base + j]
            out[d, n - 2] = covered / before[words]
    return out


# The same as four tools measure it, on the words that each of them sees:
#
# | tool | top 2, 3, 4-gram | duplicate 5 to 10-grams |
# |---|---|---|
# | datatrove | of the most frequent ones the first in the text, times how often, even once, spaces too | walked from the left: a copy of one passed before counts, and the walk goes on behind it |
# | Dolma | the same without spaces | all copies, the first too, of all n-grams (overlaps counted as often as they overlap) |
# | DCLM | of the most frequent ones, if they come twice, the longest, times how often | the words covered by all copies, the first too, each word once |
# | NeMo | as datatrove picks it; characters by `gopher_tools.removed` | the words covered by later copies, each once, and the spaces between |
DATATROVE, DOLMA, DCLM, NEMO = range(4)


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
