"""Winnowing: a few shingles of each text, such that a common passage shows (Schleimer, Wilkerson, Aiken 2003).

Of every `window` consecutive shingles of a text the one of least hash is selected; of equal ones the one selected
before while it is within the window, else the rightmost ("robust winnowing"). Two texts that share a run of at
least `window` consecutive shingles, that is of `window + ngram - 1` words, so share a selected hash, wherever the
run lies in each. About 2 / (window + 1) of a text's shingles are selected, far fewer where it repeats itself. A
text with fewer shingles than a window has one: its least; only the same least elsewhere finds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text import datatrove_shingles, minhash, word_rule
from corpusmill.pipeline.text.datatrove_simplify import simple
from corpusmill.pipeline.text.minhash import add_distinct
from corpusmill.pipeline.text.shingles import I64, U64, Shingle, arguments
from corpusmill.pipeline.text.word_hashes import CHUNK


@compiled
def select(hashes: Any, count: int, window: int, queue: Any) -> int:
    """Moves the hashes that winnowing selects to the front of `hashes[:count]`, in order; how many.

    `queue`: int64[window], room for the places whose hash is less than all after them in the window.
    """
    if count == 0:
        return 0
    values = np.empty(window, np.uint64)  # of the window, since the front of `hashes` is written over
    width = min(window, count)
    first = size = found = 0
    last = -1  # the place selected last
    for i in range(count):
        value = hashes[i]
        values[i % window] = value
        while size and values[queue[(first + size - 1) % window] % window] > value:
            size -= 1
        if size and queue[first] <= i - width:
            first = (first + 1) % window
            size -= 1
        queue[(first + size) % window] = i
        size += 1
        if i < width - 1:
            continue
        least = values[queue[first] % window]
        if last > i - width and values[last % window] == least:
            continue
        place = queue[first]  # the leftmost of the least; the rightmost is wanted
        for k in range(1, size):
            after = queue[(first + k) % window]
            if values[after % window] != least:
                break
            place = after
        last = place
        hashes[found] = least
        found += 1
    return found


@compiled
def _winnow(
    offsets: Any,
    data: Any,
    rows: Any,
    ours: Any,
    theirs: Any,
    preset: bool,
    characters: bool,
    ngram: int,
    window: int,
) -> Any:
    bounds = np.zeros(len(rows) + 1, np.int64)
    buffer, scratch = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    found, queue = np.empty(CHUNK, np.uint64), np.empty(window, np.int64)
    end = 0
    for k in range(len(rows)):
        start, stop = offsets[rows[k]], offsets[rows[k] + 1]
        if preset:
            buffer, count = datatrove_shingles.ordered(data, start, stop, theirs, ngram, buffer)
        else:
            buffer, count = minhash.ordered(data, start, stop, ours, characters, ngram, buffer)
        count = select(buffer, count, window, queue)
        scratch, found, end = add_distinct(buffer, count, scratch, found, end)
        bounds[k + 1] = end
    return bounds, found[:end].copy()


def winnow(text: pa.Array, rows: I64, shingle: Shingle, window: int, preset: bool = False) -> tuple[I64, U64]:
    """(bounds int64[rows + 1], hashes): text `rows[i]` has the distinct selected hashes
    bounds[i]:bounds[i + 1], ascending. `window` >= 1 counts shingles; `preset`: datatrove's, of words."""
    if window < 1:
        raise ValueError(f"a window of {window} shingles")
    bounds, hashes = _winnow(
        *arguments(text, rows), word_rule.rule(), simple(), preset, shingle.characters, shingle.ngram, window
    )
    return bounds, hashes
