"""Tokens numbered in the order in which merges make them, and what each of them is made of: what `backtrack.py` reads.

The numbers: bytes, then tokens by the rank of the merge that makes them of their own bytes, then those that no merge makes.
So what is merged last has the higher number, and a token's rank need not be looked up.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.merge import merge, pair_hash, pair_key, pointers, rank_of
from corpusmill.pipeline.bpe.kernels.trie import longest
from corpusmill.pipeline.bpe.kernels.utf8 import pointer

NOT_MADE: Final = -2
_ALL: Final = 0xFFFF  # of `lowest`: no pair


class Tokens(NamedTuple):
    """A vocabulary as `backtrack.py` reads it; tokens by number, but for `ids`."""

    ids: npt.NDArray[np.int32]  # [tokens]: number -> id
    halves: npt.NDArray[np.int32]  # [made, 2]: the two that a token is made of; of a byte itself
    shorter: npt.NDArray[
        np.int32
    ]  # [made, 2]: the longest other token at the beginning of its bytes or -1; its bytes
    pairs: npt.NDArray[np.uint64]  # [2^k]: `halves` -> number, as `Merges.pairs`
    lowest: npt.NDArray[np.uint16]  # [2^k]: number >> `shift`, the lowest of all pairs whose hash leads there
    shift: int
    units: npt.NDArray[np.uint64]  # tokens by their bytes (`trie.py`)
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
    room = np.empty((4, len(names) + 1), np.int32)
    for token in range(len(ranks)):
        ranks[token] = NOT_MADE
        size = starts[token + 1] - starts[token]
        if size:
            count = merge(
                text, starts[token], size, known, pointer(room[0]), pointer(room[1]), pointer(room[2]), pointer(room[3])
            )  # fmt: skip
            if count == 1 and room[0, 0] == token:
                ranks[token] = room[1, 0]


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
def merges_before(first: Any, second: Any, limit: Any, tokens: Any) -> bool:
    """Whether two tokens are the halves of one whose number is below `limit`."""
    place = pair_hash(pair_key(first, second)) & (tokens.lowest_size - 1)
    if np.int64(tokens.lowest[place]) << tokens.shift >= limit:
        return False
    return rank_of(first, second, tokens.pairs, tokens.pairs_size) < limit
