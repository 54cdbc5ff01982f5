"""Batches of a validation split: a fixed sample of it, or every token once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import torch

from corpusmill.train.batch import Batch
from corpusmill.train.data.build import Rewrite
from corpusmill.train.data.fetch import BlockData, Blocks
from corpusmill.train.data.pack import Rows, overlapping, overlaps, whole_block, windows
from corpusmill.train.data.shards import Source
from corpusmill.train.evaluate.baselines import STRICT, all_blocks


def tensors(found: Rows, first: int = 0, last: int | None = None) -> Batch:
    """The rows from `first` to before `last` as the scorer takes them."""
    marks = found.marks(first, last)
    columns = {
        "tokens": found.tokens[first:last], "labels": found.labels[first:last],
        "documents": marks.documents, "positions": marks.positions,
    }  # fmt: skip
    if found.targets is not None:
        columns["targets"] = found.targets[first:last]
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in columns.items()}


def sample(
    source: Source,
    length: int,
    tokens: int,
    rank: int = 0,
    world: int = 1,
    batch: int = 16,
    rewrite: Rewrite | None = None,
) -> Iterator[Batch]:
    """Up to `tokens` tokens of whole sequences, spread evenly over the split; the same ones on every call.

    A split without a whole sequence gives its blocks, padded. Rank r takes every world-th batch of rows. `rewrite`: changes rows, by
    their numbers in the sample.
    """
    per_block = source.sequences(length)
    total = int(per_block.sum())
    if not total:
        yield from list(whole(source, length, batch, rewrite))[rank::world]
        return
    count = min(total, max(tokens // length, 1))
    wanted = np.arange(count) * total // count
    ends = np.cumsum(per_block)
    block = np.searchsorted(ends, wanted, side="right")
    sequence = wanted - (ends - per_block)[block]
    with closing(Blocks([source], STRICT)) as blocks:
        for start in range(rank * batch, count, world * batch):
            part = slice(start, start + batch)
            found = blocks.get((0, int(b)) for b in block[part])
            pairs = [(found[0, int(b)], int(s)) for b, s in zip(block[part], sequence[part], strict=True)]
            made = windows(pairs, length)
            if rewrite is not None:
                made = rewrite(made, np.arange(start, start + len(pairs)), np.zeros(len(pairs), np.int64))
            yield tensors(made)


def whole(source: Source, length: int, batch: int = 16, rewrite: Rewrite | None = None) -> Iterator[Batch]:
    """Rows that score every token of the split exactly once, unless `rewrite` changes them; at most `batch` rows at a time."""
    for number, block in enumerate(all_blocks(source)):
        if rewrite is None:
            yield from block_batches(block, length, source.index.eos_id, batch)
        elif len(block.tokens):
            made = whole_block(block, length, source.index.eos_id)
            rows = np.arange(len(made.tokens))
            yield tensors(rewrite(made, np.full_like(rows, number), rows))


def block_batches(
    block: BlockData, length: int, eos: int, batch: int, stride: int | None = None
) -> Iterator[Batch]:
    """The same of a block: its tokens in order, the last row padded. With a `stride`, rows overlap (`overlapping`)."""
    if not len(block.tokens):
        return
    if stride is not None and stride < length:
        rows = overlaps(len(block.tokens), length, stride)
        for start in range(0, rows, batch):
            yield tensors(overlapping(block, length, stride, eos, start, min(start + batch, rows)))
        return
    found = whole_block(block, length, eos)
    for start in range(0, len(found.tokens), batch):
        yield tensors(found, start, min(start + batch, len(found.tokens)))
