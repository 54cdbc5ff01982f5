"""From documents' tokens to blocks: which tokens, which documents, which of their characters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from corpusmill.common.blocks import Cut, Tokens
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.shard.segments import weigh


class Blocks:
    """Cuts a stream of whole documents into blocks of `block_tokens`; holds less than a block between calls."""

    def __init__(self, block_tokens: int, bpe: Bpe) -> None:
        self.block_tokens, self.bpe = block_tokens, bpe
        self._tokens = np.zeros(0, dtype=bpe.dtype)  # what fills no block yet
        self._starts = np.zeros(0, dtype=np.int64)  # of its documents; the first may have begun before it
        self._ids = np.zeros((0, 16), dtype=np.uint8)
        self._begun = 0  # characters of the first document that begin before it

    def feed(
        self, tokens: Tokens, offsets: npt.NDArray[np.int64], ids: npt.NDArray[np.uint8]
    ) -> Iterator[Cut]:
        """The blocks that are full with these documents (`tokens`, the end-of-document ones among them, with their
        len + 1 `offsets`; `ids` of n x 16 bytes). A document that is cut goes on in the next block."""
        starts = np.concatenate([self._starts, offsets[:-1] + len(self._tokens)])
        tokens = np.concatenate([self._tokens, tokens])
        ids = np.concatenate([self._ids, ids])
        low = 0
        while low + self.block_tokens <= len(tokens):
            yield self._cut(tokens, starts, ids, low, low + self.block_tokens)
            low += self.block_tokens
        first = int(np.searchsorted(starts, low, side="right")) - 1 if low < len(tokens) else len(starts)
        first = max(first, 0)
        self._tokens, self._starts, self._ids = tokens[low:].copy(), starts[first:] - low, ids[first:]

    def rest(self) -> Iterator[Cut]:
        """The last block, if tokens are left: a shorter one."""
        if len(self._tokens):
            yield self._cut(self._tokens, self._starts, self._ids, 0, len(self._tokens))

    def _cut(
        self, tokens: Tokens, starts: npt.NDArray[np.int64], ids: npt.NDArray[np.uint8], low: int, high: int
    ) -> Cut:
        block = tokens[low:high]
        first = int(np.searchsorted(starts, low, side="right")) - 1
        last = int(np.searchsorted(starts, high, side="left"))
        edges = np.append(np.maximum(starts[first:last] - low, 0), len(block))
        char_ends = np.empty(last - first, dtype=np.int64)
        weigh(block, edges, self.bpe.lead_bytes, char_ends)
        char_starts = np.zeros_like(char_ends)
        if self._begun:
            char_starts[0] = self._begun - int(self.bpe.inside[block[0]])
            char_ends[0] += self._begun
        end = int(starts[last]) if last < len(starts) else len(tokens)
        self._begun = int(char_ends[-1]) if end > high else 0
        return Cut(block, ids[first:last], edges[:-1].astype(np.uint32), char_starts, char_ends)
