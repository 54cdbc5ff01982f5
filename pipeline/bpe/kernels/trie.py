"""All tokens by their bytes, as a double-array trie (Aoe 1989; by exclusive or as in Darts-clone): one read a byte.

A node's children stand in `units` at its base XOR their byte. A unit: the byte (8 bits), whether the unit is in use (1),
the number of the token that ends here (20; all ones: none), the base of its children (32; 0: none).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled

ROOT: Final = 256  # base of the first bytes
_USED: Final = 1 << 8
_NUMBER: Final = 9
_NONE: Final = (1 << 20) - 1
_BASE: Final = 32
_TRIES: Final = (
    16  # free units that do not fit, after which nodes of as many children begin to look behind them
)


@compiled
def new_trie(names: Any, starts: Any, order: Any, numbers: Any) -> Any:
    """Units (uint64) for the tokens `order` (int64, sorted by their bytes, none empty); token t is
    `names[starts[t]:starts[t + 1]]`, and gets the number `numbers[t]`."""
    most = 2
    for i in range(len(order)):
        most += starts[order[i] + 1] - starts[order[i]]
    queue = np.empty((most, 4), np.int64)  # first and last + 1 of `order`, bytes in common, unit
    units = np.zeros(1024, np.uint64)
    bases = np.zeros(1024, np.bool_)
    labels, ends = np.empty(256, np.int64), np.empty(257, np.int64)
    queue[0] = 0, len(order), 0, -1
    begin = np.full(257, 2 * ROOT)  # for nodes of so many children: where to look for room
    head, tail = 0, 1
    while head < tail:
        low, high, depth, unit = queue[head]
        head += 1
        token = order[low] if low < high else 0
        if unit >= 0 and starts[token + 1] - starts[token] == depth:
            units[unit] ^= np.uint64(_NONE ^ numbers[token]) << np.uint64(_NUMBER)
            low += 1
        count = 0
        for i in range(low, high):
            byte = np.int64(names[starts[order[i]] + depth])
            if count == 0 or labels[count - 1] != byte:
                labels[count] = byte
                ends[count] = i
                count += 1
        if count == 0:
            continue
        ends[count] = high
        base = ROOT if unit < 0 else _base(units, bases, labels, count, begin)
        while (base | 255) >= len(units):
            units = np.concatenate((units, np.zeros(len(units), np.uint64)))
            bases = np.concatenate((bases, np.zeros(len(bases), np.bool_)))
        bases[base] = True
        if unit >= 0:
            units[unit] |= np.uint64(base) << np.uint64(_BASE)
        for child in range(count):
            place = base ^ labels[child]
            units[place] = np.uint64(_NONE << _NUMBER | _USED | labels[child])
            queue[tail] = ends[child], ends[child + 1], depth + 1, place
            tail += 1
    return units


@compiled
def _base(units: Any, bases: Any, labels: Any, count: int, begin: Any) -> int:
    """A base that no node has, all of whose children's places are free; a multiple of 256 at the end of `units` if there
    is none."""
    place, tries = begin[count], 0
    while place < len(units):
        if not units[place]:
            base = place ^ labels[0]
            fits = not bases[base]
            for child in range(1, count):
                fits &= not units[base ^ labels[child]]
            if tries > _TRIES:
                begin[count] = place
                tries = 0
            if fits:
                return base
            tries += 1
        place += 1
    return len(units)


@compiled
def longest(data: Any, at: Any, stop: Any, units: Any, below: Any) -> Any:
    """(the longest token at `at` whose number is below `below`, or -1; where it ends; the token that all bytes up to `stop`
    are, or -1). data, units: pointers."""
    base: Any = np.int64(ROOT)
    best, end, number, i = np.int64(-1), at, np.int64(_NONE), at
    while i < stop:
        byte = np.uint64(data[i])
        unit = units[base ^ np.int64(byte)]
        if unit & np.uint64(511) != byte | np.uint64(_USED):
            return best, end, np.int64(-1)
        i += 1
        number = np.int64((unit >> np.uint64(_NUMBER)) & np.uint64(_NONE))
        if number < below:
            best, end = number, i
        base = np.int64(unit >> np.uint64(_BASE))
    return best, end, number if number != _NONE else np.int64(-1)
