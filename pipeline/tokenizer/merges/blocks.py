"""Words as blocks of up to `BLOCK` tokens, in which a pair is found by looking through a block: a word is one block, but for the
few that are longer. What is merged is written to the front of its block."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.buffers import pointer
from corpusmill.pipeline.tokenizer.words import Words

BLOCK: Final = 64
NONE: Final = -1


_USED: Final = (1 << 7) - 1
_FOLLOWS: Final = 1 << 7
_BEGIN_BITS: Final = 8


class Blocks(NamedTuple):
    """The tokens of all blocks, and two numbers of each: where it begins in `ids`, whether it follows the one before in its word and how
    many tokens it has, packed; and how often it occurs. The last one belongs to no word and is empty."""

    ids: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int64]  # [blocks + 1, 2]


def blocks_of(words: Words, letters: npt.NDArray[np.int32], within: npt.NDArray[np.int32]) -> Blocks:
    """The words of two and more bytes. letters, within: int32[256], tokens of bytes at the beginning of a word, and behind it."""
    starts, sizes = words.bounds[:-1], np.diff(words.bounds)
    ids = within[words.data]
    at = starts[sizes > 0]
    ids[at] = letters[words.data[at]]
    kept = np.flatnonzero(sizes > 1)
    counts = -(-sizes[kept] // BLOCK)
    word = np.repeat(kept, counts)
    place = np.arange(len(word)) - np.repeat(np.cumsum(counts) - counts, counts)  # of a block in its word
    begins = starts[word] + BLOCK * place
    rows = np.zeros((len(word) + 1, 2), np.int64)
    rows[:-1, 0] = begins << _BEGIN_BITS | np.minimum(words.bounds[word + 1] - begins, BLOCK)
    rows[:-1, 0] |= np.where(place > 0, _FOLLOWS, 0)
    rows[:-1, 1] = words.counts[word]
    return Blocks(ids, rows)


class BlockPointers(NamedTuple):
    """The same inside the kernels."""

    ids: Any
    rows: Any


@compiled
def block_pointers(blocks: Any) -> Any:
    """The arrays of blocks as pointers; they must outlive them."""
    return BlockPointers(pointer(blocks.ids), pointer(blocks.rows))


@compiled
def begin(block: Any, blocks: Any) -> Any:
    """Where a block's tokens begin."""
    return blocks.rows[2 * block] >> _BEGIN_BITS


@compiled
def used(block: Any, blocks: Any) -> Any:
    """How many it has."""
    return blocks.rows[2 * block] & _USED


@compiled
def shorten(block: Any, count: Any, blocks: Any) -> None:
    """Leave it the first `count` of them."""
    blocks.rows[2 * block] += count - used(block, blocks)


@compiled
def weight(block: Any, blocks: Any) -> Any:
    """How often it occurs."""
    return blocks.rows[2 * block + 1]


@compiled
def follows(block: Any, blocks: Any) -> Any:
    """Whether it belongs to the word of the block before."""
    return blocks.rows[2 * block] & _FOLLOWS != 0


@compiled
def next_token(block: Any, blocks: Any) -> Any:
    """(the first token behind a block in its word, or `NONE`; its block)."""
    block += 1
    while follows(block, blocks):
        if used(block, blocks):
            return np.int64(blocks.ids[begin(block, blocks)]), block
        block += 1
    return np.int64(NONE), block


@compiled
def last_token(block: Any, blocks: Any) -> Any:
    """(the last token before a block in its word, or `NONE`; its block)."""
    while follows(block, blocks):
        block -= 1
        if used(block, blocks):
            return np.int64(blocks.ids[begin(block, blocks) + used(block, blocks) - 1]), block
    return np.int64(NONE), block


@compiled
def drop_first(block: Any, blocks: Any) -> None:
    """Take the first token out of a block."""
    start, count = begin(block, blocks), used(block, blocks) - 1
    for i in range(start, start + count):
        blocks.ids[i] = blocks.ids[i + 1]
    shorten(block, count, blocks)
