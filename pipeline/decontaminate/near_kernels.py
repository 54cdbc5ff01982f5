"""Numba kernels: the one pass over a text that every detector shares, and items of which a word here and there was changed.

The pass looks up each run of `prefix` words (5) in one bit map. What it lets through may begin an n-gram or a short item of the
index (`ngram_kernels`), or be a seed: a run of words of an item. Seeds of one item that lie close together and cover
`COVER` of its words make a candidate, which is verified by alignment: the longest common subsequence of the words of item and
passage, in a band around the seeds' diagonals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.decontaminate.ngram_kernels import (
    answered,
    doubled,
    find,
    key_of,
    marked_bit,
    power,
)
from corpusmill.pipeline.text.buffers import I64, U64
from corpusmill.pipeline.text.minhash import ROLL
from corpusmill.pipeline.text.word_hashes import mix64, place_words

MOST_HITS = 1 << 22  # seeds noted of one text: what repeats itself endlessly is looked at so far
COVER = 0.4  # of an item's words, in seeds: a word in ten changed leaves 0.6 or more
SLACK = 8  # words by which a passage may be shifted or longer, besides an eighth of the item
DENSE = 0.6  # of a passage's words, from the first matched to the last, that must be matched
# Columns of what `sift` finds: row, near unit, words matched, first and last byte of these (from the text's first).
ROW, NEAR, WORDS, START, STOP = range(5)
COLUMNS = 5
_ONE, _SIX, _BITS = np.uint64(1), np.uint64(6), np.uint64(63)


class Seeds(NamedTuple):
    """Seeds and near units as the kernels take them: S distinct seeds, N near units."""

    bits: U64  # bit map of all runs of `prefix` words with which anything begins: two bits of one word each
    down: np.uint64  # 64 - log2(words of the bit map)
    keys: U64  # [S]
    slots: npt.NDArray[np.int32]  # [2^b]: a seed, or -1; open addressing by the upper bits of the key
    slots_down: np.uint64  # 64 - b
    bounds: I64  # [S + 1]: seed s is in near units units[bounds[s]:bounds[s + 1]]
    units: npt.NDArray[np.uint32]
    places: npt.NDArray[np.uint32]  # beside `units`: the word at which it begins there
    words: npt.NDArray[np.uint16]  # the words of all near units: the upper 16 bits of their hashes
    starts: I64  # [N + 1]: of each near unit in `words`
    unit: npt.NDArray[np.uint32]  # [N]: its unit
    own: npt.NDArray[np.bool_]  # beside `words`: those of which half must be found, see `near.near_tables`


@compiled
def set_pairs(keys: Any, bits: Any, down: Any) -> None:
    """Mark two bits of one word for each key."""
    for key in keys:
        bits[key >> down] |= (_ONE << (key & _BITS)) | (_ONE << ((key >> _SIX) & _BITS))


@compiled
def gram_at(table: Any, words: Any, i: int, count: int) -> bool:
    """Whether an n-gram or a short item of the table begins with word `i`."""
    ngram, prefix = table.ngram, table.prefix
    if i + ngram <= count:
        key = key_of(words, i, ngram)
        if marked_bit(table.ngram_bits, table.ngram_down, key) and find(table, key, words, i, ngram) >= 0:
            return True
    if table.shorts:
        rolling = np.uint64(0)
        for length in range(1, min(ngram, count - i + 1)):
            rolling = rolling * ROLL + words[i + length - 1]
            if length < prefix:
                continue
            key = mix64(rolling)
            if length == prefix and not marked_bit(table.prefix_bits, table.prefix_down, key):
                return False
            if (
                marked_bit(table.short_bits, table.short_down, key)
                and find(table, key, words, i, length) >= 0
            ):
                return True
    return False


@compiled
def seed_of(seeds: Any, key: Any) -> int:
    """The number of the seed with this key, or -1."""
    mask = len(seeds.slots) - 1
    slot = np.int64(key >> seeds.slots_down)
    while True:
        seed = seeds.slots[slot]
        if seed < 0 or seeds.keys[seed] == key:
            return int(seed)
        slot = (slot + 1) & mask


@compiled
def beginnings(words: Any, count: int, length: int, bits: Any, down: Any, out: Any) -> int:
    """Into `out`: the words of `words[:count]` at which a marked run of `length` begins; how many."""
    top, rolling, found = power(length), np.uint64(0), 0
    for i in range(min(length - 1, count)):
        rolling = rolling * ROLL + words[i]
    for i in range(count - length + 1):
        rolling = rolling * ROLL + words[i + length - 1]
        key = mix64(rolling)
        rolling -= words[i] * top
        both = (_ONE << (key & _BITS)) | (_ONE << ((key >> _SIX) & _BITS))
        out[found] = i  # without a branch: which are let through cannot be predicted
        found += int((bits[key >> down] & both) == both)
    return found


@compiled
def align(seeds: Any, near: int, words: Any, low: int, high: int, shift: int) -> Any:
    """(matched, own words matched, first, last): the longest common subsequence of a near unit and `words[low:high]`, its
    words, those of them that are its own, and the words of the text with which it begins and ends.

    Word p of the unit is compared with those between `p + shift - band` and `p + shift + band`, where `band` is what the width of the
    window leaves.
    """
    begin = seeds.starts[near]
    length = seeds.starts[near + 1] - begin
    size = high - low
    # Row by row; per column: words matched so far, own ones, first and last place.
    best, inner = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
    first, last = np.full(size + 1, -1, np.int64), np.full(size + 1, -1, np.int64)
    band = max(SLACK + length // 8, (size - length) // 2 + 1)
    for p in range(length):
        mine = seeds.words[begin + p]
        c = min(max(p + shift - band - low, 0), size)
        stop = min(max(p + shift + band + 1 - low, 0), size)
        # The cell up and to the left, before this row overwrote it.
        old, old_inner, old_first = best[c], inner[c], first[c]
        while c < stop:
            c += 1
            up, up_inner, up_first = best[c], inner[c], first[c]
            if np.uint16(words[low + c - 1] >> np.uint64(48)) == mine and old + 1 > up:
                best[c], inner[c] = old + 1, old_inner + int(seeds.own[begin + p])
                first[c], last[c] = old_first if old else c - 1, c - 1
            if best[c - 1] > best[c]:
                best[c], inner[c], first[c], last[c] = best[c - 1], inner[c - 1], first[c - 1], last[c - 1]
            old, old_inner, old_first = up, up_inner, up_first
        for rest in range(stop + 1, min(stop + 3, size + 1)):  # columns that the next rows reach
            if best[rest] < best[rest - 1]:
                best[rest], inner[rest] = best[rest - 1], inner[rest - 1]
                first[rest], last[rest] = first[rest - 1], last[rest - 1]
    end = 0
    for c in range(size + 1):
        if best[c] > best[end]:
            end = c
    return best[end], inner[end], low + first[end], low + last[end]


@compiled
def sift(offsets: Any, data: Any, rule: Any, table: Any, seeds: Any, least: float) -> Any:
    """(bool[rows], int64[m, 5]): the texts in which a gram of the table begins, and the near units of which at least the
    share `least` of the words was found in a text, in order."""
    rows = len(offsets) - 1
    grams = np.zeros(rows, np.bool_)
    out, found = np.empty((64, COLUMNS), np.int64), 0
    longest = 0
    for row in range(rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    most = longest // 2 + 2
    words, at = np.empty(most, np.uint64), np.empty(most + 1, np.int64)
    starts, ends, paragraphs = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int32)
    hits = np.empty((256, 3), np.int64)  # near unit, word of the text, word of the unit
    for row in range(rows):
        count = place_words(data, offsets[row], offsets[row + 1], rule, words, starts, ends, paragraphs)
        held = 0
        for k in range(beginnings(words, count, table.prefix, seeds.bits, seeds.down, at)):
            i = at[k]
            if not grams[row]:
                grams[row] = gram_at(table, words, i, count)
            if len(seeds.keys) == 0:
                continue
            seed = seed_of(seeds, key_of(words, i, table.prefix))
            if seed < 0 or held > MOST_HITS:
                continue
            for place in range(seeds.bounds[seed], seeds.bounds[seed + 1]):
                if held == len(hits):
                    hits = doubled(hits)
                hits[held, 0], hits[held, 1], hits[held, 2] = seeds.units[place], i, seeds.places[place]
                held += 1
        if not held:
            continue
        # By near unit; in each, in the order of the text (a stable sort).
        order = np.argsort(hits[:held, 0], kind="mergesort")
        a = 0
        while a < held:
            near = hits[order[a], 0]
            length = seeds.starts[near + 1] - seeds.starts[near]
            slack = SLACK + length // 8
            b, reach = a, hits[order[a], 1]
            low = high = hits[order[a], 1] - hits[order[a], 2]  # where the item would begin in the text
            while b < held and hits[order[b], 0] == near:
                begin = hits[order[b], 1] - hits[order[b], 2]
                if hits[order[b], 1] - reach > length or begin > low + 2 * slack or begin < high - 2 * slack:
                    break
                low, high, reach = min(low, begin), max(high, begin), hits[order[b], 1]
                b += 1
            covered = 0
            seen = np.zeros(length, np.bool_)
            for k in range(a, b):
                for p in range(hits[order[k], 2], hits[order[k], 2] + table.prefix):
                    covered += int(not seen[p])
                    seen[p] = True
            a = b
            if covered < COVER * length:
                continue
            window_low, window_high = max(0, low - slack), min(count, high + length + slack)
            matched, inner, first, last = align(
                seeds, near, words, window_low, window_high, (low + high) // 2
            )
            own = 0
            for p in range(seeds.starts[near], seeds.starts[near + 1]):
                own += int(seeds.own[p])
            if (
                matched < least * length
                or (2 * inner < own if own else matched < length)
                or matched < DENSE * (last - first + 1)
                or not answered(table, seeds.unit[near], words, last + 1, count)
            ):
                continue
            if found == len(out):
                out = doubled(out)
            out[found, ROW], out[found, NEAR], out[found, WORDS] = row, near, matched
            out[found, START], out[found, STOP] = starts[first] - offsets[row], ends[last] - offsets[row]
            found += 1
    return grams, out[:found].copy()
