"""Words as datatrove splits English: spaCy's blank `en` tokenizer (`spacy/tokenizer.pyx`, 3.8), without spaCy.

White space parts chunks. From a chunk, prefixes and suffixes are cut one by one until what is left is a known
word (`contractions.py`) or has neither; a URL stays whole; anything else is parted at infixes. Neighbours that
make up a known word are put together again at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.variants.codepoints import SPACE
from corpusmill.pipeline.filter.signals.variants.contractions import find
from corpusmill.pipeline.filter.signals.variants.spacy_affixes import (
    has_affix,
    infix_at,
    is_url,
    prefix_of,
    suffix_of,
)
from corpusmill.pipeline.text.utf8 import decode

_NEIGHBOURS = 8  # so many words of a chunk, at most, make up a known one


@compiled
def _inner(data: Any, a: int, b: int, table: Any, starts: Any, ends: Any, n: int) -> int:
    """Words of [a, b) without affixes: parted at infixes, or whole if it is a URL."""
    start, i, dotted, found = a, a, False, False
    first = n
    while i < b:
        size = infix_at(data, a, i, b, table)
        if size == 0:
            dotted = dotted or data[i] == 46
            i += decode(data, i)[1]
            continue
        if i > a:
            found = True
            if i > start:
                starts[n], ends[n] = start, i
                n += 1
            starts[n], ends[n] = i, i + size
            n += 1
            start = i + size
        dotted = dotted or data[i] == 46
        i += size
    if found and dotted and is_url(data, a, b, table):
        n, start = first, a
    if start < b:
        starts[n], ends[n] = start, b
        n += 1
    return n


@compiled
def _chunk(
    data: Any, a: int, b: int, table: Any, keys: Any, parts: Any, sizes: Any, longest: int,
    unit_keys: Any, unit_longest: int, starts: Any, ends: Any, n: int,
) -> int:  # fmt: skip
    """Words of a chunk [a, b) without white space. Suffixes wait at the far end of `starts` and `ends`, which
    therefore need a place for every byte."""
    waiting = 0
    capacity = len(starts)
    while a < b:
        slot = find(data, a, b, keys, longest)
        if slot >= 0:
            break
        prefix = prefix_of(data, a, b, table)
        if prefix and a + prefix < b:
            slot = find(data, a + prefix, b, keys, longest)
            if slot >= 0:
                starts[n], ends[n] = a, a + prefix
                n, a = n + 1, a + prefix
                break
        suffix = suffix_of(data, a + prefix, b, table, unit_keys, unit_longest)
        if suffix:
            waiting += 1
            starts[capacity - waiting], ends[capacity - waiting] = b - suffix, b
            slot = find(data, a, b - suffix, keys, longest) if b - suffix > a else -1
            if slot >= 0:
                b -= suffix
                break
        if prefix:
            starts[n], ends[n] = a, a + prefix
            n += 1
        if prefix == 0 and suffix == 0:
            break
        a, b = a + prefix, b - suffix
    if a < b:
        slot = find(data, a, b, keys, longest)
        if slot >= 0:
            for piece in range(parts[slot]):
                starts[n], ends[n] = a, a + sizes[4 * slot + piece]
                n, a = n + 1, ends[n]
        else:
            n = _inner(data, a, b, table, starts, ends, n)
    for k in range(waiting):
        starts[n], ends[n] = starts[capacity - waiting + k], ends[capacity - waiting + k]
        n += 1
    return n


@compiled
def _joined(
    data: Any, table: Any, keys: Any, parts: Any, longest: int, unit_keys: Any, unit_longest: int,
    starts: Any, ends: Any, i: int, count: int,
) -> int:  # fmt: skip
    """Slot of the known word with an affix that the `count` words from `i` make up, -1 if they make up none."""
    slot = find(data, starts[i], ends[i + count - 1], keys, longest)
    if slot < 0 or parts[slot] > count:
        return -1
    return slot if has_affix(data, starts[i], ends[i + count - 1], table, unit_keys, unit_longest) else -1


@compiled
def _rejoin(
    data: Any, table: Any, keys: Any, parts: Any, sizes: Any, longest: int, unit_keys: Any, unit_longest: int,
    starts: Any, ends: Any, first: int, n: int,
) -> int:  # fmt: skip
    """Put neighbours of the words [first, n) of one chunk together where they make up a known word.

    The longest go first, then those further left; one that begins or ends in a word of another one found before
    is left, whether that was taken or not.
    """
    most = 0
    for count in range(min(n - first, _NEIGHBOURS), 1, -1):
        for i in range(first, n - count + 1):
            slot = _joined(data, table, keys, parts, longest, unit_keys, unit_longest, starts, ends, i, count)
            if slot >= 0:
                most = count
                break
        if most:
            break
    if most == 0:
        return n
    seen, taken = np.zeros(n - first, np.bool_), np.full(n - first, -1, np.int64)
    counts = np.ones(n - first, np.int64)
    for count in range(most, 1, -1):
        for i in range(first, n - count + 1):
            slot = _joined(data, table, keys, parts, longest, unit_keys, unit_longest, starts, ends, i, count)
            if slot < 0:
                continue
            if not seen[i - first] and not seen[i + count - 1 - first]:
                taken[i - first], counts[i - first] = slot, count
            seen[i - first : i + count - first] = True
    i = kept = first
    while i < n:
        slot, count, at = taken[i - first], counts[i - first], starts[i]
        if slot < 0:
            starts[kept], ends[kept] = at, ends[i]
            kept += 1
        else:
            for piece in range(parts[slot]):
                starts[kept], ends[kept] = at, at + sizes[4 * slot + piece]
                at = ends[kept]
                kept += 1
        i += count
    return kept


@compiled
def words_of(
    data: Any, first: int, last: int, table: Any, keys: Any, parts: Any, sizes: Any, longest: int,
    unit_keys: Any, unit_longest: int, starts: Any, ends: Any, n: int,
) -> int:  # fmt: skip
    """Append the words of [first, last) to `starts` and `ends` from place `n`; the next free place.

    Both need room for one word a byte of [first, last) beyond `n`.
    """
    i = chunk = first
    while i <= last:
        if i < last:
            b = data[i]
            point, size = (np.int64(b), 1) if b < 128 else decode(data, i)
            space = table[point] & SPACE
        else:
            size, space = 1, np.uint16(SPACE)
        if space:
            if chunk < i:
                begun = n
                n = _chunk(
                    data, chunk, i, table, keys, parts, sizes, longest, unit_keys, unit_longest, starts, ends, n
                )  # fmt: skip
                if n > begun + 1:
                    n = _rejoin(
                        data, table, keys, parts, sizes, longest, unit_keys, unit_longest, starts, ends, begun, n
                    )  # fmt: skip
            chunk = i + size
        i += size
    return n
