"""Tokens numbered in the order in which merges make them, and what each of them is made of: what `scan.py` reads.

The numbers: bytes, then tokens by the rank of the merge that makes them of their own bytes, then those that no merge makes.
So what is merged last has the higher number, and a token's rank need not be looked up.

All tokens by their bytes stand in a double-array trie (Aoe 1989; by exclusive or as in Darts-clone): one read a byte. A node's
children are in `units` at its base XOR their byte. A unit: the byte (8 bits), whether the unit is in use (1), the number of the
token that ends here (20; all ones: none), the base of its children (32; 0: none).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.buffers import pointer
from corpusmill.pipeline.bpe.kernels.merge import merge, pair_hash, pair_key, pointers, rank_of

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
    begin = np.full(257, 2 * ROOT)  # for nodes of so many children: where to look for free units
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
def _base(units: Any, bases: Any, labels: Any, count: int, begin: Any) -> Any:
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
def step(byte: Any, base: Any, units: Any) -> Any:
    """From the node whose children's base is `base` (at first `ROOT`): (whether a token goes on with `byte`, the number of the one
    that ends with it or -1, the base of the children behind it)."""
    unit = units[base ^ np.int64(byte)]
    if unit & np.uint64(511) != np.uint64(byte) | np.uint64(_USED):
        return False, np.int64(-1), np.int64(0)
    number = np.int64((unit >> np.uint64(_NUMBER)) & np.uint64(_NONE))
    return True, number if number != _NONE else np.int64(-1), np.int64(unit >> np.uint64(_BASE))


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


NOT_MADE: Final = -2
_ALL: Final = 0xFFFF  # of `lowest`: no pair


class Tokens(NamedTuple):
    """A vocabulary as `scan.py` reads it; tokens by number, but for `ids`."""

    ids: npt.NDArray[np.int32]  # [tokens]: number -> id
    halves: npt.NDArray[np.int32]  # [made, 2]: the two that a token is made of; of a byte itself
    shorter: npt.NDArray[
        np.int32
    ]  # [made, 2]: the longest other token at the beginning of its bytes or -1; its bytes
    pairs: npt.NDArray[np.uint64]  # [2^k]: `halves` -> number, as `Merges.pairs`
    lowest: npt.NDArray[np.uint16]  # [2^k]: number >> `shift`, the lowest of all pairs whose hash leads there
    shift: int
    units: npt.NDArray[np.uint64]  # tokens by their bytes (`new_trie`)
    made: int  # tokens that merges make of their bytes
    single: int  # of these, bytes
    ordered: bool  # the ranks of merges rise, whatever the text
    whole: bool  # a piece that is a token as it is is not merged (`ignore_merges`)


class TokenPointers(NamedTuple):
    """The same inside the kernels, with the sizes of the tables."""

    ids: Any
    halves: Any
    shorter: Any
    pairs: Any
    pairs_size: int
    lowest: Any
    lowest_size: int
    shift: int
    units: Any
    made: int
    single: int
    ordered: bool
    whole: bool


@compiled
def token_pointers(tokens: Any) -> Any:
    """A vocabulary's arrays as pointers; they must outlive them."""
    return TokenPointers(
        pointer(tokens.ids), pointer(tokens.halves), pointer(tokens.shorter), pointer(tokens.pairs), len(tokens.pairs),
        pointer(tokens.lowest), len(tokens.lowest), tokens.shift, pointer(tokens.units), tokens.made, tokens.single,
        tokens.ordered, tokens.whole,
    )  # fmt: skip


@compiled
def last_merges(names: Any, starts: Any, merges: Any, ranks: Any) -> None:
    """The rank of the last merge of each token's own bytes (-1: it is a byte) into `ranks` (int64[tokens]), or `NOT_MADE` if
    merging them does not give it. Token t is `names[starts[t]:starts[t + 1]]`."""
    known, text = pointers(merges), pointer(names)
    work = np.empty((4, len(names) + 1), np.int32)
    for token in range(len(ranks)):
        ranks[token] = NOT_MADE
        size = starts[token + 1] - starts[token]
        if size:
            count = merge(
                text, starts[token], size, known, pointer(work[0]), pointer(work[1]), pointer(work[2]), pointer(work[3])
            )  # fmt: skip
            if count == 1 and work[0, 0] == token:
                ranks[token] = work[1, 0]


@compiled
def fill_lowest(halves: Any, single: int, shift: int, lowest: Any) -> None:
    """Enter the pairs of `halves`."""
    lowest[:] = _ALL
    for number in range(len(halves) - 1, single - 1, -1):
        place = pair_hash(pair_key(halves[number, 0], halves[number, 1])) & (len(lowest) - 1)
        lowest[place] = number >> shift


@compiled
def fill_shorter(names: Any, starts: Any, ids: Any, units: Any, shorter: Any) -> None:
    """Each token's longest beginning that is another, and its bytes. Names and starts by id."""
    text, known = pointer(names), pointer(units)
    for number in range(len(shorter)):
        start, stop = starts[ids[number]], starts[ids[number] + 1]
        shorter[number, 0] = longest(text, start, stop - 1, known, len(shorter))[0]
        shorter[number, 1] = stop - start


@compiled
def merges_before(first: Any, second: Any, limit: Any, tokens: Any) -> Any:
    """Whether two tokens are the halves of one whose number is below `limit`."""
    place = pair_hash(pair_key(first, second)) & (tokens.lowest_size - 1)
    if np.int64(tokens.lowest[place]) << tokens.shift >= limit:
        return False
    return rank_of(first, second, tokens.pairs, tokens.pairs_size) < limit
