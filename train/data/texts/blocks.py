"""Whole documents cut into blocks of a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from corpusmill.common.blocks import Cut, Tokens

Longs = npt.NDArray[np.int64]
CutsOf = Callable[[int, Sequence[int]], list[tuple[int, int]]]


class Blocks:
    """Cuts a stream of documents into blocks of `block_tokens`; holds less than a block between calls."""

    def __init__(self, block_tokens: int, dtype: npt.DTypeLike) -> None:
        self.block_tokens = block_tokens
        self._tokens: Tokens = np.zeros(0, dtype=dtype)  # what fills no block yet
        self._ids = np.zeros((0, 16), dtype=np.uint8)  # of its segments, as the next
        self._starts, self._char_starts, self._char_ends = (np.zeros(0, dtype=np.int64) for _ in range(3))

    def feed(
        self, tokens: Tokens, offsets: Longs, ids: npt.NDArray[np.uint8], chars: Longs, cuts_of: CutsOf
    ) -> Iterator[Cut]:
        """The blocks that are full with these documents: `tokens` with their len + 1 `offsets`, none of them empty;
        `ids` of n x 16 bytes; `chars`, the characters of each. Where a block's edge falls into document i, before its
        tokens p, `cuts_of(i, p)` says (where the characters of the token before p end, where those of p begin)."""
        edges = np.arange(self.block_tokens - len(self._tokens), len(tokens), self.block_tokens)
        inner = edges[~np.isin(edges, offsets)]
        starts = np.union1d(offsets[:-1], inner)
        rows = offsets.searchsorted(starts, side="right") - 1
        char_starts, char_ends = np.zeros(len(starts), dtype=np.int64), chars[rows]
        cut_rows = offsets.searchsorted(inner, side="right") - 1
        for row in np.unique(cut_rows).tolist():
            places = inner[cut_rows == row]
            at = starts.searchsorted(places)
            cuts = np.array(cuts_of(row, (places - offsets[row]).tolist()), dtype=np.int64)
            char_ends[at - 1], char_starts[at] = cuts[:, 0], cuts[:, 1]
        self._starts = np.concatenate([self._starts, starts + len(self._tokens)])
        self._tokens = np.concatenate([self._tokens, tokens])
        self._ids = np.concatenate([self._ids, ids[rows]])
        self._char_starts = np.concatenate([self._char_starts, char_starts])
        self._char_ends = np.concatenate([self._char_ends, char_ends])
        while len(self._tokens) >= self.block_tokens:
            yield self._cut(self.block_tokens)

    def rest(self) -> Iterator[Cut]:
        """The last block, if tokens are left: a shorter one."""
        if len(self._tokens):
            yield self._cut(len(self._tokens))

    def _cut(self, size: int) -> Cut:
        n = int(self._starts.searchsorted(size))
        cut = Cut(
            self._tokens[:size], self._ids[:n], self._starts[:n].astype(np.uint32), self._char_starts[:n],
            self._char_ends[:n],
        )  # fmt: skip
        self._tokens, self._ids, self._starts = self._tokens[size:], self._ids[n:], self._starts[n:] - size
        self._char_starts, self._char_ends = self._char_starts[n:], self._char_ends[n:]
        return cut
