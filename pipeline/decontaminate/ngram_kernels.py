"""Numba kernels: hashes of runs of words, a table of them, and their places in texts.

A run of n words has the key `mix64(sum of hash * ROLL^k)` modulo 2^64, which rolls from one run to the next, and a
check: a second 64-bit hash of the same word hashes, computed in another way. A run counts as found only when length, key and check are those
of the index: with 10^7 runs and 10^13 words looked at, one wrong find is expected in 10^18 such corpora.

Bit maps stand before the table, of the keys of n-grams, of the first `prefix` words of shorter items, and of these
themselves. Which texts are worth a look here is found by `near_kernels.sift`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.buffers import I64, U64
from corpusmill.pipeline.text.minhash import ROLL
from corpusmill.pipeline.text.word_hashes import mix64, place_words

_CHECK = np.uint64(0xA24BAED4963EE407)  # odd; begins the chain of a check
# Columns of `hits`: text, unit, n-gram, word of the unit, characters from and to, paragraph, and how many n-grams that has.
ROW, UNIT, GRAM, PLACE, START, STOP, PARAGRAPH, PARAGRAPH_GRAMS = range(8)
COLUMNS = 8


class Table(NamedTuple):
    """An index as the kernels take it: G grams, U units."""

    keys: U64  # [G]
    checks: U64  # [G]
    lengths: npt.NDArray[np.uint8]  # [G] words
    slots: npt.NDArray[np.int32]  # [2^b]: a gram, or -1; open addressing by the upper bits of the key
    down: np.uint64  # 64 - b
    ngram_bits: U64  # bit map of the keys of n-grams
    ngram_down: np.uint64
    prefix_bits: U64  # bit map of the keys of prefixes of short items
    prefix_down: np.uint64
    short_bits: U64  # bit map of the keys of short items
    short_down: np.uint64
    ngram: int
    prefix: int
    shorts: bool  # whether there are short items at all
    gram_units: I64  # [G + 1]: gram g belongs to units[gram_units[g]:gram_units[g + 1]]
    units: npt.NDArray[np.uint32]
    places: npt.NDArray[np.uint32]  # beside `units`: the word of the unit with which the gram begins there
    unit_answers: I64  # [U + 1]: unit u has answers unit_answers[u]:unit_answers[u + 1]
    answer_keys: U64
    answer_checks: U64
    answer_lengths: npt.NDArray[np.uint8]
    answer_within: int


@compiled(inline="always")
def power(ngram: int) -> Any:
    """ROLL^(ngram - 1): what the first word of a run is multiplied by."""
    top = np.uint64(1)
    for _ in range(ngram - 1):
        top *= ROLL
    return top


@compiled(inline="always")
def key_of(words: Any, i: int, length: int) -> Any:
    """The key of `words[i:i + length]`."""
    rolling = np.uint64(0)
    for k in range(length):
        rolling = rolling * ROLL + words[i + k]
    return mix64(rolling)


@compiled(inline="always")
def check_of(words: Any, i: int, length: int) -> Any:
    """The check of `words[i:i + length]`."""
    value = _CHECK
    for k in range(length):
        value = mix64(value ^ words[i + k]) * _CHECK
    return value


@compiled
def doubled(rows: Any) -> Any:
    """The rows of an array in one of twice as many."""
    larger = np.empty((2 * len(rows), rows.shape[1]), rows.dtype)
    larger[: len(rows)] = rows
    return larger


@compiled
def keys_and_checks(words: Any, starts: Any, lengths: Any) -> Any:
    """(uint64 keys, uint64 checks) of the runs `words[starts[r]:starts[r] + lengths[r]]`."""
    keys, checks = np.empty(len(starts), np.uint64), np.empty(len(starts), np.uint64)
    for r in range(len(starts)):
        keys[r] = key_of(words, starts[r], lengths[r])
        checks[r] = check_of(words, starts[r], lengths[r])
    return keys, checks


@compiled
def fill(keys: Any, slots: Any, down: Any) -> None:
    """Put every key into `slots` (all -1), in order."""
    mask = len(slots) - 1
    for gram in range(len(keys)):
        slot = np.int64(keys[gram] >> down)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = gram


@compiled
def set_bits(keys: Any, bits: Any, down: Any) -> None:
    """Mark the upper bits of every key."""
    for i in range(len(keys)):
        place = keys[i] >> down
        bits[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))


@compiled(inline="always")
def marked_bit(bits: Any, down: Any, key: Any) -> Any:
    place = key >> down
    return (bits[place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1) != 0


@compiled
def find(table: Any, key: Any, words: Any, i: int, length: int) -> int:
    """The gram that `words[i:i + length]` is, or -1."""
    mask = len(table.slots) - 1
    slot = np.int64(key >> table.down)
    while True:
        gram = table.slots[slot]
        if gram < 0:
            return -1
        if (
            table.keys[gram] == key
            and table.lengths[gram] == length
            and table.checks[gram] == check_of(words, i, length)
        ):
            return int(gram)
        slot = (slot + 1) & mask


@compiled
def answered(table: Any, unit: int, words: Any, after: int, count: int) -> bool:
    """Whether one of a unit's answers begins in the `answer_within` words from `after` on; a unit without answers
    needs none."""
    first, last = table.unit_answers[unit], table.unit_answers[unit + 1]
    if first == last:
        return True
    for answer in range(first, last):
        length = int(table.answer_lengths[answer])
        for i in range(after, min(after + table.answer_within, count - length + 1)):
            if key_of(words, i, length) == table.answer_keys[answer] and (
                check_of(words, i, length) == table.answer_checks[answer]
            ):
                return True
    return False


@compiled
def matches(offsets: Any, data: Any, rows: Any, rule: Any, table: Any) -> Any:
    """int64[m, 8]: every gram of every unit in the texts at `rows`, in the order of the words.

    Columns: row, unit, gram, its word in the unit, first and last byte of the words (from the text's first), the paragraph that holds all
    of them or -1, and how many n-grams that paragraph has (0 where -1). A short unit with answers appears only where
    one of them follows.
    """
    out = np.empty((64, COLUMNS), np.int64)
    found = 0
    ngram, prefix = table.ngram, table.prefix
    for row in rows:
        first, stop = offsets[row], offsets[row + 1]
        most = (stop - first) // 2 + 2
        words, starts = np.empty(most, np.uint64), np.empty(most, np.int64)
        ends, paragraphs = np.empty(most, np.int64), np.empty(most, np.int32)
        count = place_words(data, first, stop, rule, words, starts, ends, paragraphs)
        of = np.zeros(count, np.int64)  # words of each paragraph
        for i in range(count):
            of[paragraphs[i]] += 1
        top, rolling = power(ngram), np.uint64(0)
        top_prefix, rolling_prefix = power(prefix), np.uint64(0)
        longer, longer_wanted = np.uint64(0), False
        for i in range(min(ngram - 1, count)):
            rolling = rolling * ROLL + words[i]
        for i in range(min(prefix - 1, count)):
            rolling_prefix = rolling_prefix * ROLL + words[i]
        for i in range(count):
            for length in range(prefix if table.shorts else ngram, ngram + 1):
                if i + length > count:
                    break
                gram = -1
                if length == ngram:
                    rolling = rolling * ROLL + words[i + ngram - 1]
                    key = mix64(rolling)
                    rolling -= words[i] * top
                    if marked_bit(table.ngram_bits, table.ngram_down, key):
                        gram = find(table, key, words, i, length)
                elif length == prefix or longer_wanted:
                    if length == prefix:
                        rolling_prefix = rolling_prefix * ROLL + words[i + prefix - 1]
                        longer = rolling_prefix
                        longer_wanted = marked_bit(table.prefix_bits, table.prefix_down, mix64(longer))
                        rolling_prefix -= words[i] * top_prefix
                    else:
                        longer = longer * ROLL + words[i + length - 1]
                    if longer_wanted:
                        gram = find(table, mix64(longer), words, i, length)
                if gram < 0:
                    continue
                last = i + length - 1
                inside = paragraphs[i] == paragraphs[last]
                for place in range(table.gram_units[gram], table.gram_units[gram + 1]):
                    unit = table.units[place]
                    if length < ngram and not answered(table, unit, words, last + 1, count):
                        continue
                    if found == len(out):
                        out = doubled(out)
                    out[found, ROW], out[found, UNIT], out[found, GRAM] = row, unit, gram
                    out[found, PLACE] = table.places[place]
                    out[found, START], out[found, STOP] = starts[i] - first, ends[last] - first
                    out[found, PARAGRAPH] = paragraphs[i] if inside else -1
                    out[found, PARAGRAPH_GRAMS] = (
                        max(0, of[paragraphs[i]] - ngram + 1) if inside else np.int64(0)
                    )
                    found += 1
    return out[:found].copy()
