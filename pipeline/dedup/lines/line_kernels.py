"""Numba kernels over Arrow buffers: texts to units (lines, paragraphs, sentence windows) with 128-bit keys, and
the grouping of equal keys.

A unit's key is made of its words alone: those of `pipeline/text/word_rule.py` (case-folded, punctuation and white space
not among them), with every decimal digit counted as 0, as CCNet does (Wenzek et al. 2020, `text_normalizer`;
unlike CCNet, punctuation inside a word separates, and accents count). A word is hashed to 64 bits by FNV-1a, a
unit's words are chained into two streams of 64.

- line: up to a newline.
- paragraph: lines up to one without anything but white space.
- sentences: a window of some number of consecutive sentences of a document, as in C4 (Raffel et al. 2020). A
  sentence ends at a line's end; after `.`, `?` or `!` that white space follows; after an ideographic full stop,
  exclamation or question mark. Closing quotes and brackets after the mark belong to it. What has no words is no
  sentence, and belongs to the next one of its line.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.span_edges import NEWLINE, white
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.word_hashes import (
    CHUNK,
    FNV_BASIS,
    FNV_PRIME,
    OUTSIDE,
    code_point,
    mix64,
    scan_words,
)

LINE, PARAGRAPH, SENTENCES = range(3)
UNITS = {"line": LINE, "paragraph": PARAGRAPH, "sentences": SENTENCES}
KEY_HI, KEY_LO, ROW, OFFSET, LENGTH = range(5)  # columns of a unit, uint64[units, 5]
_SEED_HI, _SEED_LO = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)  # digits of pi
_STEP = np.uint64(0x9E3779B97F4A7C15)  # odd: 2^64 / golden ratio

# The zeros of all decimal digits (Nd) of Unicode 14.0; 1 to 9 follow each.
ZEROS = (
    0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66,
    0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50,
    0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10, 0x104A0, 0x10D30,
    0x11066, 0x110F0, 0x11136, 0x111D0, 0x112F0, 0x11450, 0x114D0, 0x11650, 0x116C0, 0x11730, 0x118E0,
    0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60, 0x16AC0, 0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC,
    0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0,
)  # fmt: skip
_WIDE_ENDS = (0x3002, 0xFF01, 0xFF1F, 0xFF61)  # 。！？ and the halfwidth full stop
_CLOSERS = (0x22, 0x27, 0x29, 0x5D, 0xBB, 0x2019, 0x201D, 0x300B, 0x300D, 0x300F, 0x3011, 0xFF09)
# Bytes that may begin the end of a sentence: . ? ! and the lead bytes of the wide ones.
_MAY_END = np.zeros(256, np.bool_)
_MAY_END[[0x21, 0x2E, 0x3F, 0xE3, 0xEF]] = True


@lru_cache(maxsize=1)
def rule() -> word_rule.Rule:
    """The word rule with all digits folded to 0."""
    entries, pieces, small = word_rule.rule()
    entries, small = entries.copy(), small.copy()
    for zero in ZEROS:
        entries[zero : zero + 10] = word_rule.LETTER << word_rule.CLASS_SHIFT | ord("0")
    small[ord("0") : ord("9") + 1] = ord("0")
    return word_rule.Rule(entries, pieces, small)


@compiled
def fingerprint(data: Any, start: int, stop: int, rule: Any, buffer: Any) -> Any:
    """(hi, lo, words) of UTF-8 `data[start:stop]`; `buffer` holds word hashes."""
    hi, lo, words = _SEED_HI, _SEED_LO, 0
    state, word = OUTSIDE, FNV_BASIS
    while start < stop:
        start, state, word, count = scan_words(data, start, stop, rule, FNV_PRIME, state, word, buffer, 0)
        for k in range(count):
            hi, lo = chained(hi, lo, buffer[k], buffer[k])
        words += count
    return hi, lo, words


@compiled(inline="always")
def chained(hi: Any, lo: Any, a: Any, b: Any) -> Any:
    """Two independent chains, one value further: `a` for the first and `b` for the second."""
    return mix64((hi ^ a) + _STEP), mix64(lo * _STEP + b)


@compiled
def count_words(offsets: Any, data: Any, rows: Any, rule: Any) -> Any:
    """Words of the texts at `rows`, int64[rows]."""
    counts = np.zeros(len(rows), np.int64)
    buffer = np.empty(CHUNK, np.uint64)
    for k in range(len(rows)):
        i, stop = offsets[rows[k]], offsets[rows[k] + 1]
        state, word = OUTSIDE, FNV_BASIS
        while i < stop:
            i, state, word, count = scan_words(data, i, stop, rule, FNV_PRIME, state, word, buffer, 0)
            counts[k] += count
    return counts


@compiled
def _line_end(data: Any, start: int, stop: int) -> int:
    """Where the line that begins at `start` ends: at its newline, or at `stop`."""
    while start < stop and data[start] != NEWLINE:
        start += 1
    return start


@compiled
def _paragraph_end(data: Any, start: int, stop: int) -> Any:
    """Where the block that begins at `start` ends: at the newline before a blank line, or at `stop`."""
    end = _line_end(data, start, stop)
    while end < stop:
        i = end + 1
        while i < stop and data[i] != NEWLINE and white(data[i]):
            i += 1
        if i >= stop or data[i] == NEWLINE:
            return end
        end = _line_end(data, i, stop)
    return end


@compiled
def _sentence_end(data: Any, start: int, stop: int) -> Any:
    """Where the sentence that begins at `start` ends, at the latest at the end of its line."""
    i = start
    while i < stop:
        byte = data[i]
        if byte == NEWLINE:
            return i
        if not _MAY_END[byte]:
            i += 1
            continue
        point, i = code_point(data, i, stop)
        wide = point in _WIDE_ENDS
        if not wide and byte >= 0x80:
            continue
        while i < stop:
            point, after = code_point(data, i, stop)
            if point in _WIDE_ENDS:
                wide = True
            elif point not in _CLOSERS and not (point < 0x80 and _MAY_END[point]):
                break
            i = after
        if wide or i >= stop or white(data[i]):
            return i
    return stop


@compiled
def _grown(units: Any, count: int) -> Any:
    """`units`, or a copy of twice the size if it is full."""
    if count < len(units):
        return units
    larger = np.empty((2 * len(units), 5), np.uint64)
    larger[:count] = units
    return larger


@compiled
def scan(offsets: Any, data: Any, rule: Any, unit: int, sentences: int, min_words: int) -> Any:
    """The units of at least `min_words` words of all texts, in order: uint64[units, 5] of key (two words), row,
    offset and length in bytes, without the white space at their ends."""
    units = np.empty((1024, 5), np.uint64)
    count = 0
    buffer = np.empty(CHUNK, np.uint64)
    ring = np.empty((sentences, 2), np.uint64)  # keys of the last sentences
    places = np.empty((sentences, 2), np.int64)  # their words and starts
    for row in range(len(offsets) - 1):
        low, stop = offsets[row], offsets[row + 1]
        i, seen = low, 0
        while i < stop:
            if white(data[i]):
                i += 1
                continue
            start = i
            if unit == SENTENCES:
                words = 0
                while words == 0 and i < stop and data[i] != NEWLINE:
                    begin, i = i, _sentence_end(data, i, stop)
                    hi, lo, words = fingerprint(data, begin, i, rule, buffer)
                if words == 0:
                    continue
                at = seen % sentences
                ring[at, 0], ring[at, 1], places[at, 0], places[at, 1] = hi, lo, words, start
                seen += 1
                if seen < sentences:
                    continue
                hi, lo, words = _SEED_LO, _SEED_HI, 0
                for k in range(seen - sentences, seen):
                    at = k % sentences
                    hi, lo = chained(hi, lo, ring[at, 0], ring[at, 1])
                    words += places[at, 0]
                start = places[(seen - sentences) % sentences, 1]
            else:
                i = _line_end(data, i, stop) if unit == LINE else _paragraph_end(data, i, stop)
                hi, lo, words = fingerprint(data, start, i, rule, buffer)
            if words >= min_words:
                end = i
                while white(data[end - 1]):
                    end -= 1
                units = _grown(units, count)
                units[count, KEY_HI], units[count, KEY_LO], units[count, ROW] = hi, lo, row
                units[count, OFFSET], units[count, LENGTH] = start - low, end - start
                count += 1
    return units[:count].copy()


@compiled
def group(hi: Any, lo: Any) -> Any:
    """Equal keys: (int64[n] the group of each, int64[groups] the first of each group, the hash table). Groups
    are numbered in the order of their firsts."""
    size = 16
    while size < 2 * len(hi):
        size *= 2
    slots = np.full(size, -1, np.int64)
    groups, firsts = np.empty(len(hi), np.int64), np.empty(len(hi), np.int64)
    count = 0
    for i in range(len(hi)):
        at = np.int64(hi[i] & np.uint64(size - 1))
        while slots[at] >= 0 and (hi[firsts[slots[at]]] != hi[i] or lo[firsts[slots[at]]] != lo[i]):
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = count
            firsts[count] = i
            count += 1
        groups[i] = slots[at]
    return groups, firsts[:count].copy(), slots


@compiled
def look_up(slots: Any, firsts: Any, hi: Any, lo: Any, key_hi: Any, key_lo: Any) -> Any:
    """The group of each key in what `group(hi, lo)` made, or -1: int64[keys]."""
    found = np.empty(len(key_hi), np.int64)
    for i in range(len(key_hi)):
        at = np.int64(key_hi[i] & np.uint64(len(slots) - 1))
        while slots[at] >= 0 and (hi[firsts[slots[at]]] != key_hi[i] or lo[firsts[slots[at]]] != key_lo[i]):
            at = (at + 1) & (len(slots) - 1)
        found[i] = slots[at]
    return found


@compiled
def best(groups: Any, count: int, ranks: Any) -> Any:
    """The member of each group with the least rank, the first of equal ones: int64[count]."""
    chosen = np.full(count, -1, np.int64)
    for i in range(len(groups)):
        held = chosen[groups[i]]
        if held < 0 or ranks[i] < ranks[held]:
            chosen[groups[i]] = i
    return chosen


@compiled
def union(rows: Any, starts: Any, stops: Any) -> Any:
    """Spans sorted by (row, start), those that overlap or touch made one: (rows, starts, stops)."""
    kept = np.empty((len(rows), 3), np.int64)
    count = 0
    for i in range(len(rows)):
        if count and kept[count - 1, 0] == rows[i] and starts[i] <= kept[count - 1, 2]:
            kept[count - 1, 2] = max(kept[count - 1, 2], stops[i])
        else:
            kept[count] = rows[i], starts[i], stops[i]
            count += 1
    return kept[:count, 0].copy(), kept[:count, 1].copy(), kept[:count, 2].copy()
