"""From blocks to rows: tokens, labels, and the documents that attention must not cross.

A row has `length` labels, and for each label the token before it as the input. A position belongs to the document of its
label: the end-of-text token before a document is that document's first input, so every document is predicted from its own
tokens alone, and generation starts from end-of-text.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.schemas.shards import Target
from corpusmill.train.data.fetch import BlockData

AT_ONCE = 2**16  # labels whose tokens are joined by one call, and cast by another while they are in the cache
IGNORED = -100  # label of a position that is not scored, as torch's cross_entropy has it

Ints = npt.NDArray[np.int64]


class Marks(NamedTuple):
    """The documents in rows. `documents` (number of the document within the row) and `positions` (within the document, in
    this row): int32 [rows, length]. `cu_seqlens`: int32, the start of each document in the concatenated rows, and the end,
    as variable-length attention kernels take it; `max_seqlen`: the length of the longest."""

    documents: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    cu_seqlens: npt.NDArray[np.int32]
    max_seqlen: int


@dataclass(frozen=True)
class Rows:
    """`tokens`, `labels`: int64 [rows, length]; they may be views of one array. `begins(i)`: int64, the positions in row i,
    after its first, at which a document begins, in ascending order. `targets`: uint8 [rows, length], a `Target` each, of data that has
    them."""

    tokens: Ints
    labels: Ints
    begins: Callable[[int], Ints]
    targets: npt.NDArray[np.uint8] | None = None

    def marks(self, first: int = 0, last: int | None = None) -> Marks:
        """Of the rows from `first` to before `last`."""
        length, rows = self.tokens.shape[1], range(first, len(self.tokens) if last is None else last)
        begins = [self.begins(row) + (row - first) * length for row in rows]
        edges = np.arange(len(rows) + 1, dtype=np.int64) * length
        starts = np.unique(np.concatenate([edges[:-1], *begins]))
        sizes = np.diff(starts, append=edges[-1])
        firsts = starts.searchsorted(edges[:-1])  # segment that begins each row
        number = np.arange(len(starts)) - np.repeat(firsts, np.diff(firsts, append=len(starts)))
        place = np.arange(len(rows) * length, dtype=np.int32) - np.repeat(starts.astype(np.int32), sizes)
        return Marks(
            np.repeat(number.astype(np.int32), sizes).reshape(len(rows), length),
            place.reshape(len(rows), length),
            np.append(starts, edges[-1]).astype(np.int32),
            int(sizes.max(initial=0)),
        )


class Piece(NamedTuple):
    """`size` labels from token `start` of a block on, as (a part of) one document."""

    start: int
    size: int


def windows(
    pairs: Sequence[tuple[BlockData, int]], length: int, cross: bool = False, buffer: Ints | None = None
) -> Rows:
    """Rows of consecutive tokens. Sequence i of a block has the inputs i*length .. and labels one further on.

    `cross`: a row counts as one document, so that attention goes across. `buffer`: int64 [rows, length + 1] to fill.
    """
    both = np.empty((len(pairs), length + 1), dtype=np.int64) if buffer is None else buffer
    step = max(AT_ONCE // length, 1)
    for low in range(0, len(pairs), step):
        span = [
            block.tokens[(start := at * length) : start + length + 1].data
            for block, at in pairs[low : low + step]
        ]
        joined = np.frombuffer(b"".join(span), pairs[low][0].tokens.dtype)
        both[low : low + step] = joined.reshape(len(span), length + 1)

    def begins(row: int) -> Ints:
        block, sequence = pairs[row]
        low = sequence * length + 1
        first, last = block.starts.searchsorted((low, low + length - 1), side="right")
        return block.starts[first:last] - low

    labels = both[:, 1:]
    if any(not _all_labels(block) for block, _ in pairs):
        labels = labels.copy()  # they are inputs too
        for row, (block, sequence) in enumerate(pairs):
            low = sequence * length + 1
            labels[row, unlabelled(block, low, low + length)] = IGNORED
    targets = None
    if any(block.targets is not None for block, _ in pairs):
        targets = np.full(labels.shape, Target.answer, dtype=np.uint8)
        for row, (block, sequence) in enumerate(pairs):
            if block.targets is not None:
                targets[row] = block.targets[sequence * length + 1 : (sequence + 1) * length + 1]
    return Rows(both[:, :-1], labels, _none if cross else begins, targets)


def _all_labels(block: BlockData) -> bool:
    return block.held is None and block.targets is None


def unlabelled(block: BlockData, first: int = 0, last: int | None = None) -> npt.NDArray[np.bool_]:
    """Which of the tokens [first, last) of a block are no labels in training: those of documents that are held out, and context."""
    last = len(block.tokens) if last is None else last
    if block.targets is None:
        found = np.zeros(max(last - first, 0), dtype=np.bool_)
    else:
        found = block.targets[first:last] == Target.context
    if block.held is None or first >= last:
        return found
    low, high = block.starts.searchsorted((first, last - 1), side="right")
    edges = np.concatenate([[first], block.starts[low:high], [last]])
    held: npt.NDArray[np.bool_] = np.repeat(block.held[low - 1 : high], np.diff(edges))
    return found | held


def unscored(block: BlockData) -> npt.NDArray[np.bool_]:
    """Which tokens of a block are never scored: all but those of answers that are wanted, where there are answers."""
    if block.targets is None:
        return np.zeros(len(block.tokens), dtype=np.bool_)
    found: npt.NDArray[np.bool_] = block.targets != Target.answer
    return found


def packed(
    rows: Sequence[tuple[BlockData, Sequence[Piece]]],
    length: int,
    eos: int,
    cross: bool = False,
    buffer: Ints | None = None,
) -> Rows:
    """Rows made of pieces, whose sizes sum to `length`; a block's first token is predicted from `eos`.

    `buffer`: int64 [2 x rows, length] to fill.
    """
    both = np.empty((2 * len(rows), length), dtype=np.int64) if buffer is None else buffer
    tokens, labels = both[: len(rows)], both[len(rows) :]
    for row, (block, pieces) in enumerate(rows):
        at = 0
        for start, size in pieces:
            labels[row, at : at + size] = block.tokens[start : start + size]
            if not _all_labels(block):
                labels[row, at : at + size][unlabelled(block, start, start + size)] = IGNORED
            before = min(start, 1)  # tokens of the block before the piece that are wanted
            tokens[row, at + 1 - before : at + size] = block.tokens[start - before : start + size - 1]
            if not before:
                tokens[row, at] = eos
            at += size

    def begins(row: int) -> Ints:
        return np.cumsum([size for _, size in rows[row][1][:-1]], dtype=np.int64)

    return Rows(tokens, labels, _none if cross else begins)


def _none(row: int) -> Ints:
    return np.zeros(0, dtype=np.int64)


def best_fit(starts: Ints, ntokens: int, length: int, rows: int) -> list[list[Piece]]:
    """The documents of a block (they begin at `starts`) in `rows` rows of `length` labels, few of them cut.

    Best-fit decreasing (Ding et al. 2024, "Fewer truncations improve language modeling"), with a fixed number of rows and no
    padding: documents that fit into no row are cut to fill the gaps. At most `length` tokens of a block are left over, as
    when it is cut into windows. Needs rows x length <= ntokens.
    """
    sizes = np.diff(starts, append=ntokens)
    placed: list[list[Piece]] = []
    rest: list[tuple[int, int]] = []  # (size, start), shorter than a row
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        whole = min(size // length, rows - len(placed))
        placed += [[Piece(start + i * length, length)] for i in range(whole)]
        if size > whole * length:
            rest.append((size - whole * length, start + whole * length))
    opened = len(placed)  # rows that are full already
    spaces: list[tuple[int, int]] = []  # (free labels, row), sorted
    late: list[tuple[int, int]] = []
    for size, start in sorted(rest, key=lambda pair: (-pair[0], pair[1])):
        at = bisect_left(spaces, (size, -1))
        if at < len(spaces):
            free, row = spaces.pop(at)
        elif opened < rows and size <= length:
            free, row, opened = length, opened, opened + 1
            placed.append([])
        else:
            late.append((size, start))
            continue
        placed[row].append(Piece(start, size))
        if free > size:
            insort(spaces, (free - size, row))
    spaces += [(length, row) for row in range(opened, rows)]
    placed += [[] for _ in range(opened, rows)]
    late.reverse()  # the largest last: it is cut first
    for free, row in reversed(spaces):
        while free:
            size, start = late.pop()
            take = min(size, free)
            placed[row].append(Piece(start, take))
            free -= take
            if size > take:
                late.append((size - take, start + take))
    return placed


def whole_block(block: BlockData, length: int, eos: int) -> Rows:
    """Rows that score every token of a block exactly once (but for `unscored` ones); the first one follows an end-of-text token.

    The last row is padded with end-of-text and `IGNORED` labels.
    """
    count = -(-len(block.tokens) // length)
    labels = np.full(count * length, IGNORED, dtype=np.int64)
    labels[: len(block.tokens)] = np.where(unscored(block), IGNORED, block.tokens.astype(np.int64))
    tokens = np.full(count * length, eos, dtype=np.int64)
    tokens[1 : len(block.tokens)] = block.tokens[:-1]
    edges = np.arange(count + 1) * length

    def begins(row: int) -> Ints:
        first, last = block.starts.searchsorted((edges[row], edges[row + 1] - 1), side="right")
        found: Ints = block.starts[first:last] - edges[row]
        return found

    return Rows(tokens.reshape(count, length), labels.reshape(count, length), begins)


def overlapping(
    block: BlockData, length: int, stride: int, eos: int, first: int = 0, last: int | None = None
) -> Rows:
    """The windows from `first` to before `last` of those that score a block as `whole_block` does: each begins `stride` tokens
    after the one before and scores the tokens that it alone reaches, so all but the first ones follow at least `length - stride`
    tokens of the block. The first token follows an end-of-text token."""
    last = overlaps(len(block.tokens), length, stride) if last is None else last
    tokens = np.full((last - first, length), eos, dtype=np.int64)
    labels = np.full((last - first, length), IGNORED, dtype=np.int64)
    scored = np.where(unscored(block), IGNORED, block.tokens.astype(np.int64))
    for row, number in enumerate(range(first, last)):
        start = number * stride
        window = block.tokens[start : start + length]
        known = length - stride if number else 0
        labels[row, known : len(window)] = scored[start + known : start + length]
        before = min(start, 1)
        tokens[row, 1 - before : len(window)] = block.tokens[start - before : start + len(window) - 1]

    def begins(row: int) -> Ints:
        start = (first + row) * stride
        low, high = block.starts.searchsorted((start, start + length - 1), side="right")
        found: Ints = block.starts[low:high] - start
        return found

    return Rows(tokens, labels, begins)


def overlaps(tokens: int, length: int, stride: int) -> int:
    """How many such windows a block of so many tokens has."""
    return 1 + max(-(-(tokens - length) // stride), 0)
