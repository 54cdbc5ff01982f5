"""The validation split: a fixed list of sequences per source during a run, and all of it for `evaluate`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from corpusmill.schemas.data import FetchConfig
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.pack import Rows, whole_block, windows
from corpusmill.train.data.shards import Source

Batch = dict[str, torch.Tensor]
# No block is replaced by another: a score of other tokens would not be the split's.
STRICT = FetchConfig(threads=4, memory_mb=64, bad_blocks=0)


def _tensors(found: Rows, first: int = 0, last: int | None = None) -> Batch:
    """The columns of rows."""
    marks = found.marks(first, last)
    columns = {
        "tokens": found.tokens[first:last], "labels": found.labels[first:last],
        "documents": marks.documents, "positions": marks.positions,
    }  # fmt: skip
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in columns.items()}


def sample(
    source: Source, length: int, tokens: int, rank: int = 0, world: int = 1, batch: int = 16
) -> Iterator[Batch]:
    """Up to `tokens` tokens of whole sequences, spread evenly over the split; the same ones on every call.

    A split with no whole sequence gives its blocks, filled up. Rank r takes every world-th batch of rows.
    """
    per_block = source.sequences(length)
    total = int(per_block.sum())
    blocks = Blocks([source], STRICT)
    try:
        if not total:
            yield from list(whole(source, length, batch))[rank::world]
            return
        count = min(total, max(tokens // length, 1))
        wanted = np.arange(count) * total // count
        ends = np.cumsum(per_block)
        block = np.searchsorted(ends, wanted, side="right")
        sequence = wanted - (ends - per_block)[block]
        for start in range(rank * batch, count, world * batch):
            part = slice(start, start + batch)
            found = blocks.get((0, int(b)) for b in block[part])
            pairs = [(found[0, int(b)], int(s)) for b, s in zip(block[part], sequence[part], strict=True)]
            yield _tensors(windows(pairs, length))
    finally:
        blocks.close()


def whole(source: Source, length: int, batch: int = 16) -> Iterator[Batch]:
    """Rows that score every token of the split exactly once; at most `batch` rows at a time."""
    blocks = Blocks([source], STRICT)
    try:
        for number, (_, block) in enumerate(source.blocks):
            if block.ntokens:
                blocks.read_ahead((0, ahead) for ahead in range(number, min(number + 4, len(source.blocks))))
                found = whole_block(blocks.get([(0, number)])[0, number], length, source.index.eos_id)
                for start in range(0, len(found.tokens), batch):
                    yield _tensors(found, start, min(start + batch, len(found.tokens)))
    finally:
        blocks.close()
