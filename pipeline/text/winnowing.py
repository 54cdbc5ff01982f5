"""Winnowing keeps a few shingles of each text, such that a common passage shows (Schleimer, Wilkerson, Aiken 2003). Of
every `window` consecutive shingles of a text the one of least hash is selected; of equal ones the one selected before
while it is within the window, else the rightmost ("robust winnowing"). Two texts that share a run of at least `window`
consecutive shingles, that is of `window + ngram - 1` words, so share a selected hash, wherever the run lies in each.
About 2 / (window + 1) of a text's shingles are selected, far fewer where it repeats itself. A text with fewer shingles
than a window has one: its least; only the same least elsewhere finds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled


@compiled
def select(hashes: Any, count: int, window: int, queue: Any) -> int:
    """Moves the hashes that winnowing selects to the front of `hashes[:count]`, in order; how many.

    `queue`: int64[window], space for the places whose hash is less than all after them in the window.
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
