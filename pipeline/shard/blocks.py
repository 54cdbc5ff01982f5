"""From documents' tokens to blocks: which tokens, which documents, which of their characters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.bpe.load import Bpe


class Cut(NamedTuple):
    """A block: its tokens, and per document segment the document's row, first token, and characters.

    Characters count from the document's beginning. A token may end inside a UTF-8 character: that character
    belongs to both blocks, so `char_ends` is rounded up and the next block's `char_starts` down.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.uint32]
    char_starts: npt.NDArray[np.int64]
    char_ends: npt.NDArray[np.int64]


def stream(
    values: npt.NDArray[np.unsignedinteger], lengths: npt.NDArray[np.int64], bpe: Bpe
) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]:
    """(the tokens, each document followed by the end-of-document token; the documents' len + 1 offsets)."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths + 1, out=offsets[1:])
    tokens = np.empty(int(offsets[-1]), dtype=bpe.dtype)
    is_text = np.ones(len(tokens), dtype=bool)
    is_text[offsets[1:] - 1] = False
    tokens[is_text] = values
    tokens[~is_text] = bpe.eos_id
    return tokens, offsets


def cut(
    tokens: npt.NDArray[np.unsignedinteger], offsets: npt.NDArray[np.int64], block_tokens: int, bpe: Bpe
) -> Iterator[Cut]:
    """Blocks of `block_tokens`, the last one shorter. A document that is cut goes on in the next block."""
    begun = 0  # characters of the first document that begin before the block
    for low in range(0, len(tokens), block_tokens):
        block = tokens[low : low + block_tokens]
        high = low + len(block)
        first = int(np.searchsorted(offsets, low, side="right")) - 1
        last = int(np.searchsorted(offsets[:-1], high, side="left"))
        starts = np.maximum(offsets[first:last] - low, 0)
        leads = np.concatenate([[0], np.cumsum(bpe.lead_bytes[block], dtype=np.int64)])
        char_ends = leads[np.append(starts[1:], len(block))] - leads[starts]
        char_starts = np.zeros_like(char_ends)
        char_starts[0] = begun - int(bpe.inside[block[0]]) if begun else 0
        char_ends[0] += begun
        begun = int(char_ends[-1]) if offsets[last] > high else 0
        yield Cut(block, np.arange(first, last), starts.astype(np.uint32), char_starts, char_ends)
