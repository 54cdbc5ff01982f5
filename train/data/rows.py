"""From blocks to rows: tokens, labels, and the documents that attention must not cross."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from train.data.fetch import BlockData

IGNORED = -100  # label of a position that is not scored, as torch's cross_entropy has it

Rows = dict[str, npt.NDArray[np.signedinteger]]


def rows(where: Iterable[tuple[BlockData, int]], length: int) -> Rows:
    """`tokens`, `labels` (int64), `documents`, `positions` (int32), each [rows, length], of (block, sequence) pairs.

    Sequence i of a block holds inputs i*length .. and labels one further on. A position belongs to the
    document of its label: the end-of-text token before a document is that document's first input, so every
    document is predicted from its own tokens alone, and generation starts from end-of-text.
    """
    pairs = list(where)
    window = np.empty((len(pairs), length + 1), dtype=np.int64)
    begins = []
    for row, (block, sequence) in enumerate(pairs):
        low = sequence * length
        window[row] = block.tokens[low : low + length + 1]
        first, last = block.starts.searchsorted((low + 1, low + length), side="right")
        begins.append(block.starts[first:last] + (row * length - low - 1))
    return {"tokens": window[:, :-1], "labels": window[:, 1:], **documents(begins, len(pairs), length)}


def whole_block(block: BlockData, length: int, eos: int) -> Rows:
    """Rows that score every token of a block exactly once; the first one follows an end-of-text token.

    The last row is filled up with end-of-text and `IGNORED` labels.
    """
    count = -(-len(block.tokens) // length)
    labels = np.full(count * length, IGNORED, dtype=np.int64)
    labels[: len(block.tokens)] = block.tokens
    tokens = np.full(count * length, eos, dtype=np.int64)
    tokens[1 : len(block.tokens)] = block.tokens[:-1]
    shape = (count, length)
    return {
        "tokens": tokens.reshape(shape),
        "labels": labels.reshape(shape),
        **documents([block.starts], count, length),
    }


def documents(begins: list[npt.NDArray[np.int64]], count: int, length: int) -> Rows:
    """`documents`: number of the document within the row; `positions`: place within the document, in this row.

    `begins` are the places, counted through all rows, at which a document begins; every row begins one.
    """
    edges = np.arange(count + 1, dtype=np.int64) * length
    starts = np.unique(np.concatenate([edges[:-1], *begins]))
    sizes = np.diff(starts, append=edges[-1])
    firsts = starts.searchsorted(edges[:-1])  # segment that begins each row
    number = np.arange(len(starts)) - np.repeat(firsts, np.diff(firsts, append=len(starts)))
    place = np.arange(count * length, dtype=np.int32) - np.repeat(starts.astype(np.int32), sizes)
    return {
        "documents": np.repeat(number.astype(np.int32), sizes).reshape(count, length),
        "positions": place.reshape(count, length),
    }
