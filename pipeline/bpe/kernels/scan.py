"""The loop over a batch: cut, look up, merge what is new."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.backtrack import encode_piece
from corpusmill.pipeline.bpe.kernels.characters import class_pointers
from corpusmill.pipeline.bpe.kernels.merge import pointers
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
from corpusmill.pipeline.bpe.kernels.tokens import token_pointers
from corpusmill.pipeline.bpe.kernels.utf8 import pointer

AHEAD: Final = 64


@compiled
def encode_batch(
    data: Any, bounds: Any, steps: Any, classes: Any, merges: Any, tokens: Any, table: Any, out: Any, ends: Any
) -> Any:  # fmt: skip
    """Tokens of the texts `data[bounds[i]:bounds[i + 1]]` into `out`; `ends[i]`: their number up to the end of text i.
    Returns the number of all.

    data: uint8. bounds: int64[texts + 1]. steps: int64[steps, 2], kind and number of digits (`cuts.py`): each cuts the
    pieces of the one before. out: uint32[bytes + 2]. ends: int64[texts].

    `AHEAD` pieces are cut and their places in the table fetched before the first of them is looked up.
    """
    depth, whole = len(steps), len(data)
    edges = np.zeros(depth, np.int64)  # where the current piece of each step ends
    pieces = np.empty((AHEAD, 5), np.uint64)  # start, size (0: a text ends here), first and second word, hash
    room = np.empty((4, 256), np.int32)  # what `merge` works in
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
                if size > room.shape[1]:
                    room = np.empty((4, 2 * size), np.int32)
                ids = pointer(room[0])
                number = encode_piece(
                    text, start, size, defined, vocabulary, ids, pointer(room[1]), pointer(room[2]), pointer(room[3])
                )  # fmt: skip
                for i in range(number):
                    written[count + i] = ids[i]
                keep(text, start, size, first, second, value, -1 - entry, ids, number, kept)
                kept.counters[MISSES] += 1
            count += number
    return count


@compiled
def cut_text(data: Any, steps: Any, classes: Any, ends: Any) -> int:
    """Where the pieces of one text end, into `ends` (int64[bytes]); their number."""
    depth, count, at = len(steps), 0, 0
    text, known = pointer(data), class_pointers(classes)
    edges = np.zeros(depth, np.int64)
    while at < len(data):
        end = len(data)
        for step in range(depth):
            if edges[step] <= at:
                edges[step] = cut(steps[step, 0], steps[step, 1], text, at, end, known)
            end = edges[step]
        ends[count] = at = end
        count += 1
    return count
