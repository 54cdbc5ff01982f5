"""Byte-pair encoding without merging: the longest tokens, taken back where merges would not have left them so.

A sequence of tokens is the encoding of its bytes if and only if each two neighbours are that of theirs. So the text is read
from left to right: the longest token that may stand beside the one before it, else the longest of its beginnings, else the
one before it is taken back. This is the algorithm of GitHub's `bpe` crate (A. Neubeck, H. van Antwerpen: "So many tokens, so
little time", 2024).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.merge import merge
from corpusmill.pipeline.bpe.kernels.tokens import merges_before
from corpusmill.pipeline.bpe.kernels.trie import longest


@compiled
def stay_apart(first: Any, second: Any, known: bool, tokens: Any) -> bool:
    """Whether merging the bytes of two tokens gives these two tokens.

    Their merges are undone from the last one on; before each, no pair across the border may have had its turn.
    `known`: the two are no token together.
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

    merges, tokens: `Pointers`, `TokenPointers`. ids, ranks, before, after: pointers to int32[size]; the last three are room
    to work in.
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
