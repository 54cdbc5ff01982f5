"""The merges of byte-pair encoding (Sennrich et al. 2016) over counted words, step by step as `BpeTrainer` of `tokenizers` takes them:

- The pair that occurs most is merged, of several the one with the lower ids, within a word from left to right.
- A pair is counted where it arises. Its count may fall while it waits; where it has, it goes back with the count of now.
- A pair whose token would reach the limit is not counted, but pairs of two bytes always are.

Nothing merged across the edges of what becomes a token, so the bytes of a token were merged as they would be by themselves: one pair
makes it, each pair arises in the step that makes the later of its tokens, and is merged once. So a pair that occurs too seldom then
never enters the queue. A merge may only make the bytes of a token that was there before (`given`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.buffers import fetch, pointer
from corpusmill.pipeline.tokenizer.merges.blocks import (
    BLOCK,
    NONE,
    begin,
    block_pointers,
    drop_first,
    last_token,
    next_token,
    shorten,
    used,
    weight,
)
from corpusmill.pipeline.tokenizer.merges.pairs import (
    AT,
    BLOCKS,
    COUNT,
    ID_BITS,
    PAIR_ROW,
    add_pair,
    number_of,
    pair_of,
)
from corpusmill.pipeline.tokenizer.merges.queue import QUEUE_ROW, push, sink

# What a step remembers by the token beside the merged pair: the number of their pair.
_ROLES: Final = 4
_MORE_BEFORE: Final = 0
_MORE_BEHIND: Final = 1
_FEWER_BEFORE: Final = 2
_FEWER_BEHIND: Final = 3
_NUMBER_BITS: Final = 32
_AHEAD: Final = 8  # blocks that are fetched before their turn


class _Known(NamedTuple):
    """Pointers: the pairs, their slots, what a step remembers, (number, block) of pairs that it found. `counters`: pairs there are,
    rows that it found."""

    pairs: Any
    slots: Any
    mask: Any
    seen: Any
    found: Any
    counters: Any


@compiled
def _fewer(role: Any, token: Any, pair: Any, step: Any, weight: Any, known: Any) -> None:
    """A pair occurs `weight` times less."""
    place = _ROLES * token + role
    if known.seen[place] >> _NUMBER_BITS != step:
        number = number_of(pair, known.pairs, known.slots, known.mask)
        known.seen[place] = (step << _NUMBER_BITS) | max(number + 1, 0)  # 0: a pair that is not counted
    number = (known.seen[place] & ((1 << _NUMBER_BITS) - 1)) - 1
    if number >= 0:
        known.pairs[PAIR_ROW * number + COUNT] -= weight


@compiled
def _more(role: Any, token: Any, pair: Any, step: Any, weight: Any, block: Any, known: Any) -> None:
    """A pair occurs `weight` times more, in a block."""
    place = _ROLES * token + role
    if known.seen[place] >> _NUMBER_BITS != step:
        number = number_of(pair, known.pairs, known.slots, known.mask)
        if number < 0:
            known.slots[-1 - number] = known.counters[0] + 1
            number = known.counters[0]
            add_pair(pair, number, known.pairs)
            known.counters[0] += 1
        known.seen[place] = (step << _NUMBER_BITS) | (number + 1)
    number = (known.seen[place] & ((1 << _NUMBER_BITS) - 1)) - 1
    known.pairs[PAIR_ROW * number + COUNT] += weight
    known.pairs[PAIR_ROW * number + BLOCKS] += 1
    row = known.counters[1]
    known.found[2 * row], known.found[2 * row + 1] = number, block
    known.counters[1] += 1


@compiled
def _merge_block(
    block: Any, left: Any, right: Any, new: Any, step: Any, limit: Any, sizes: Any, blocks: Any, known: Any
) -> None:
    """Merge a pair wherever it begins in a block, and count the pairs beside it."""
    ids, times, start = blocks.ids, weight(block, blocks), begin(block, blocks)
    stop = start + used(block, blocks)
    size = sizes[left] + sizes[right]
    i, out = start, start
    while i < stop:
        token = np.int64(ids[i])
        second, beyond = np.int64(NONE), block
        if token == left:
            if i + 1 < stop:
                second = np.int64(ids[i + 1])
            else:
                second, beyond = next_token(block, blocks)
        if second != right:
            ids[out] = token
            i += 1
            out += 1
            continue
        if beyond != block:
            drop_first(beyond, blocks)
            i -= 1
        i += 2
        if out > start:
            before, where = np.int64(ids[out - 1]), block
        else:
            before, where = last_token(block, blocks)
        if before != NONE:
            _fewer(_FEWER_BEFORE, before, pair_of(before, left), step, times, known)
            if sizes[before] + size < limit:
                _more(_MORE_BEFORE, before, pair_of(before, new), step, times, where, known)
        behind = np.int64(ids[i]) if i < stop else next_token(block, blocks)[0]
        if behind != NONE:
            _fewer(_FEWER_BEHIND, behind, pair_of(right, behind), step, times, known)
            if sizes[behind] + size < limit:
                _more(_MORE_BEHIND, behind, pair_of(new, behind), step, times, block, known)
        ids[out] = new
        out += 1
    shorten(block, out - start, blocks)


@compiled
def count_pairs(given: Any, numbers: Any, pairs: Any, places: Any, fill: bool) -> Any:
    """Number the pairs of the first tokens in blocks (`Blocks`), and count them and their blocks; or, if that is done (`fill`), put
    their blocks into `places` (int32) and move `AT` behind them. Returns the number of pairs.

    numbers: int32[tokens, tokens], -1 where no pair is. pairs: int64, flat, of rows as `pairs.py` says.
    """
    blocks = block_pointers(given)
    known: Any = np.int64(0)
    for block in range(len(given.rows) - 1):
        start = begin(block, blocks)
        stop = start + used(block, blocks)
        behind = next_token(block, blocks)[0]
        for i in range(start, stop):
            first = np.int64(blocks.ids[i])
            second = np.int64(blocks.ids[i + 1]) if i + 1 < stop else behind
            if second == NONE:
                break
            number = np.int64(numbers[first, second])
            if number < 0:
                numbers[first, second] = number = known
                add_pair(pair_of(first, second), number, pointer(pairs))
                known += 1
            row = PAIR_ROW * number
            if fill:
                places[pairs[row + AT]] = block
                pairs[row + AT] += 1
            else:
                pairs[row + COUNT] += weight(block, blocks)
                pairs[row + BLOCKS] += 1
    return known


@compiled
def _slots(pairs: Any, count: Any, least: Any) -> Any:
    """Slots, at least twice `least` and a power of two, for the first `count` pairs."""
    size: Any = np.int64(1024)
    while size < 2 * least:
        size *= 2
    slots = np.zeros(size, np.int32)
    for number in range(count):
        slots[-1 - number_of(pairs[PAIR_ROW * number], pairs, pointer(slots), size - 1)] = number + 1
    return slots


@compiled
def _larger(array: Any, used: Any, needed: Any) -> Any:
    """An array of at least `needed` values with the first `used` ones of `array`."""
    if needed <= len(array):
        return array
    result = np.empty(max(needed, 2 * len(array)), array.dtype)
    for i in range(used):
        result[i] = array[i]
    return result


@compiled
def learn_merges(
    blocks: Any, pairs: Any, places: Any, queue: Any, sizes: Any, seen: Any, given: Any, tokens: int, size: int, least: int, limit: int
) -> Any:  # fmt: skip
    """Merge until there are `size` tokens, or no pair that occurs `least` times: left id, right id and the id of what they make, one
    merge after the other (int64). New tokens have the next ids.

    blocks: `Blocks`; they are used up. pairs, places: as `count_pairs` leaves them, `AT` where a pair's blocks begin. queue: the
    pairs, as `queue.py` says. sizes: int64[most] for the most tokens that there can be, the bytes of the first `tokens`. seen:
    int64[4 * most] of zeros. given: int64[n, 3], merges that make a token that was there. limit: bytes that a token, the parts of
    which are not both bytes, must have fewer than.
    """
    merged, counters = block_pointers(blocks), np.zeros(2, np.int64)
    waiting, placed = np.int64(len(queue) // QUEUE_ROW), np.int64(len(places))
    counters[0] = waiting
    slots = _slots(pointer(pairs), counters[0], 2 * counters[0])

    merges, done = np.empty(3 * 1024, np.int64), np.int64(0)
    found = np.empty(4 * BLOCK, np.int64)
    while tokens < size and waiting:
        pair, number = queue[1], queue[2]
        row = PAIR_ROW * number
        times = pairs[row + COUNT]
        if queue[0] != times:
            sink(pointer(queue), waiting, times, pair, number)
            continue
        if times < least:
            break
        waiting -= 1
        last = QUEUE_ROW * waiting
        sink(pointer(queue), waiting, queue[last], queue[last + 1], queue[last + 2])

        left, right, new = pair >> ID_BITS, pair & ((1 << ID_BITS) - 1), tokens
        for i in range(len(given)):
            if left == given[i, 0] and right == given[i, 1]:
                new = given[i, 2]
        sizes[new] = sizes[left] + sizes[right]
        tokens += new == tokens
        merges = _larger(merges, 3 * done, 3 * done + 3)
        merges[3 * done], merges[3 * done + 1], merges[3 * done + 2] = left, right, new
        done += 1

        # A pair that arises has the new token on one side.
        known_before = counters[0]
        pairs = _larger(pairs, PAIR_ROW * known_before, PAIR_ROW * (known_before + 2 * tokens))
        if len(slots) < 2 * (known_before + 2 * tokens):
            slots = _slots(pointer(pairs), known_before, 2 * (known_before + 2 * tokens))
        counters[1] = 0
        at, stop = pairs[row + AT], pairs[row + AT] + pairs[row + BLOCKS]
        for i in range(at, stop):
            block = np.int64(places[i])
            if i + _AHEAD < stop:  # its row has come by then
                fetch(merged.ids, begin(np.int64(places[i + _AHEAD]), merged))
            if i + 2 * _AHEAD < stop:
                fetch(merged.rows, 2 * np.int64(places[i + 2 * _AHEAD]))
            if i > at and block == places[i - 1]:
                continue
            found = _larger(found, 2 * counters[1], 2 * counters[1] + 4 * BLOCK)
            known = _Known(
                pointer(pairs), pointer(slots), len(slots) - 1, pointer(seen), pointer(found), pointer(counters)
            )  # fmt: skip
            _merge_block(block, left, right, new, done, limit, pointer(sizes), merged, known)

        for number in range(known_before, counters[0]):
            row = PAIR_ROW * number
            if pairs[row + COUNT] >= least:
                pairs[row + AT] = placed
                placed += pairs[row + BLOCKS]
                queue = _larger(queue, QUEUE_ROW * waiting, QUEUE_ROW * (waiting + 1))
                push(pointer(queue), waiting, pairs[row + COUNT], pairs[row], number)
                waiting += 1
        places = _larger(places, len(places), placed)
        for i in range(counters[1]):
            row = PAIR_ROW * found[2 * i]
            if pairs[row + COUNT] >= least:
                places[pairs[row + AT]] = found[2 * i + 1]
                pairs[row + AT] += 1
        for number in range(known_before, counters[0]):
            pairs[PAIR_ROW * number + AT] -= pairs[PAIR_ROW * number + BLOCKS]
    return merges[: 3 * done]
