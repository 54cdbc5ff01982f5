"""Pairs of tokens, numbered as they come."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.merge import pair_hash

ID_BITS: Final = 31
PAIR_ROW: Final = 4  # of the pairs: both ids, and
COUNT: Final = 1  # how often it occurs, as far as it is counted
AT: Final = 2  # where its blocks are in the places of all pairs
BLOCKS: Final = 3  # how many they are


@compiled
def pair_of(left: Any, right: Any) -> Any:
    """A pair of ids in one number (int64), in whose order pairs are."""
    return (np.int64(left) << ID_BITS) | np.int64(right)


@compiled
def number_of(pair: Any, pairs: Any, slots: Any, mask: Any) -> Any:
    """The number of a pair; or -1 - the slot where it belongs. pairs: a pointer to rows of int64. slots: to int32[mask + 1], number + 1;
    0: free."""
    slot = pair_hash(np.uint64(pair)) & mask
    while slots[slot]:
        number = np.int64(slots[slot]) - 1
        if pairs[PAIR_ROW * number] == pair:
            return number
        slot = (slot + 1) & mask
    return -1 - slot


@compiled
def add_pair(pair: Any, number: Any, pairs: Any) -> None:
    """A row for a pair that was not there."""
    pairs[PAIR_ROW * number] = pair
    pairs[PAIR_ROW * number + 1] = pairs[PAIR_ROW * number + 2] = pairs[PAIR_ROW * number + 3] = 0
