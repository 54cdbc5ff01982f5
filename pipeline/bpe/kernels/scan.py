"""The loop over a batch: cut, look up, merge what is new."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.classes import class_pointers
from corpusmill.pipeline.bpe.kernels.buffers import pointer
from corpusmill.pipeline.bpe.kernels.merge import merge, pointers
from corpusmill.pipeline.bpe.kernels.pretokenize import cut
from corpusmill.pipeline.bpe.kernels.table import (
    MISSES,
    fetch_entry,
    fetch_slot,
    find,
    keep,
    key,
    table_pointers,
)
from corpusmill.pipeline.bpe.kernels.tokens import longest, merges_before, token_pointers


@compiled
def stay_apart(first: Any, second: Any, known: bool, tokens: Any) -> bool:
    """Whether merging the bytes of two tokens gives these two tokens.

    Their merges are undone from the last one on; before each, no pair across the border may have had its turn.
    `known`: whether both together are known not to be a token.
    """
    limit: Any = np.int64(tokens.made)
    while True:
        if not known and merges_before(first, second, limit, tokens):
            return False
        known = False
        if max(first, second) < tokens.single:
            return True
        if first > second:
            limit, first = first, np.int64(tokens.halves[2 * first + 1])
        else:
            # Of equal ranks the leftmost is merged first: a pair across the border goes before one behind it.
            limit, second = second + 1, np.int64(tokens.halves[2 * second])


@compiled
def encode_piece(
    data: Any, at: Any, size: Any, merges: Any, tokens: Any, ids: Any, ranks: Any, before: Any, after: Any
) -> Any:
    """Ids of the `size` bytes at `at` into the front of `ids`; their number.

    merges, tokens: `Pointers`, `TokenPointers`. ids, ranks, before, after: pointers to int32[size]; the last three are
    scratch arrays.
    """
    token, end, whole = longest(data, at, at + size, tokens.units, tokens.made)
    if whole >= 0 and (tokens.whole or whole < tokens.made):
        ids[0] = tokens.ids[whole]
        return np.int64(1)
    if tokens.ordered:
        count = _backtrack(data, at, size, token, end - at, tokens, ids, ranks)
        if count > 0:
            return count
    # Merges in no order, or a byte that is no token.
    return merge(data, at, size, merges, ids, ranks, before, after)


@compiled
def _backtrack(data: Any, at: Any, size: Any, token: Any, end: Any, tokens: Any, ids: Any, dead: Any) -> Any:
    """The same from the longest token at the beginning, which ends at `end` (of the piece); 0 if there is no way. `dead`: a
    bit for each place in the piece from which no way goes on."""
    for i in range((size >> 5) + 1):
        dead[i] = 0
    count: Any = np.int64(0)
    place: Any = np.int64(0)
    # Whether this token, and the one before, is the longest one at its place: it makes no other with the next then.
    longest_here, longest_before = True, False
    while True:
        while token >= 0:
            if not (dead[end >> 5] >> (end & 31)) & 1 and (
                count == 0 or stay_apart(np.int64(ids[count - 1]), token, longest_before, tokens)
            ):
                break
            token = np.int64(tokens.shorter[2 * token])
            longest_here = False
            if token >= 0:
                end = place + np.int64(tokens.shorter[2 * token + 1])
        if token >= 0:
            ids[count] = token
            count += 1
            place = end
            longest_here, longest_before = True, longest_here
            if place == size:
                break
            token, end, _ = longest(data, at + place, at + size, tokens.units, tokens.made)
            end -= at
        elif count == 0:
            break
        else:
            dead[place >> 5] |= np.int32(1) << np.int32(place & 31)
            count -= 1
            longest_here = longest_before = False
            token, end = np.int64(ids[count]), place
            place -= np.int64(tokens.shorter[2 * token + 1])
    for i in range(count):
        ids[i] = tokens.ids[ids[i]]
    return count


AHEAD: Final = 64


@compiled
def encode_batch(
    data: Any, bounds: Any, steps: Any, classes: Any, merges: Any, tokens: Any, table: Any, out: Any, ends: Any
) -> Any:  # fmt: skip
    """Tokens of the texts `data[bounds[i]:bounds[i + 1]]` into `out`; `ends[i]`: their number up to the end of text i.
    Returns the number of all.

    data: uint8. bounds: int64[texts + 1]. steps: int64[steps, 2], kind and number of digits (`pretokenize.py`): each cuts the
    pieces of the one before. out: uint32[bytes + 2]. ends: int64[texts].

    `AHEAD` pieces are cut and their places in the table fetched before the first of them is looked up.
    """
    depth, whole = len(steps), len(data)
    edges = np.zeros(depth, np.int64)  # where the current piece of each step ends
    pieces = np.empty((AHEAD, 5), np.uint64)  # start, size (0: a text ends here), first and second word, hash
    work = np.empty((4, 256), np.int32)  # what `merge` works in
    text, known = pointer(data), class_pointers(classes)
    defined, vocabulary = pointers(merges), token_pointers(tokens)
    kept, written = table_pointers(table), pointer(out)
    row, done = 0, 0
    count: Any = np.int64(0)
    at = bounds[0]
    while done < len(bounds) - 1:
        waiting = 0
        while waiting < AHEAD and row < len(bounds) - 1:
            stop = bounds[row + 1]
            if at >= stop:
                pieces[waiting, 1] = 0
                waiting += 1
                row += 1
                continue
            end = stop
            for step in range(depth):
                if edges[step] <= at:
                    edges[step] = cut(steps[step, 0], steps[step, 1], text, at, end, known)
                end = edges[step]
            first, second, value = key(text, at, end - at, whole)
            fetch_slot(value, kept)
            pieces[waiting, 0], pieces[waiting, 1] = np.uint64(at), np.uint64(end - at)
            pieces[waiting, 2], pieces[waiting, 3], pieces[waiting, 4] = first, second, value
            waiting += 1
            at = end
        for piece in range(waiting):
            fetch_entry(pieces[piece, 4], kept)
        for piece in range(waiting):
            start, size = np.int64(pieces[piece, 0]), np.int64(pieces[piece, 1])
            if size == 0:
                ends[done] = count
                done += 1
                continue
            first, second, value = pieces[piece, 2], pieces[piece, 3], pieces[piece, 4]
            entry = find(text, start, size, first, second, value, kept)
            if entry >= 0:
                number = np.int64(kept.entries[4 * entry + 2] >> np.uint64(32))
                packed = kept.entries[4 * entry + 3]
                if number <= 2:
                    written[count] = np.uint32(packed & np.uint64(0xFFFFFFFF))
                    written[count + 1] = np.uint32(packed >> np.uint64(32))
                else:
                    for i in range(number):
                        written[count + i] = kept.long_ids[np.int64(packed) + i]
            else:
                if size > work.shape[1]:
                    work = np.empty((4, 2 * size), np.int32)
                ids = pointer(work[0])
                number = encode_piece(
                    text, start, size, defined, vocabulary, ids, pointer(work[1]), pointer(work[2]), pointer(work[3])
                )  # fmt: skip
                for i in range(number):
                    written[count + i] = ids[i]
                keep(text, start, size, first, second, value, -1 - entry, ids, number, kept)
                kept.counters[MISSES] += 1
            count += number
    return count


@compiled
def cut_texts(data: Any, bounds: Any, steps: Any, classes: Any, ends: Any) -> int:
    """Where the pieces of the texts `data[bounds[i]:bounds[i + 1]]` end, into `ends` (int64[bytes]); their number. Other arguments
    as of `encode_batch`."""
    depth, count = len(steps), 0
    text, known = pointer(data), class_pointers(classes)
    edges = np.zeros(depth, np.int64)
    at = bounds[0]
    for row in range(len(bounds) - 1):
        stop = bounds[row + 1]
        while at < stop:
            end = stop
            for step in range(depth):
                if edges[step] <= at:
                    edges[step] = cut(steps[step, 0], steps[step, 1], text, at, end, known)
                end = edges[step]
            ends[count] = at = end
            count += 1
    return count
