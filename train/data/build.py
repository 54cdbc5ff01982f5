"""From steps to tensors: addresses, blocks, rows, batches. `StreamingTokens` is the queue around it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from corpusmill.train.data.fetch import BlockData, Blocks, Key
from corpusmill.train.data.order import order
from corpusmill.train.data.pack import IGNORED, Piece, Rows, best_fit, packed, windows
from corpusmill.train.data.plan import Plan

Ints = npt.NDArray[np.int64]
# Changes rows, by the number of each one's sequence and its place in it: `corpusmill.train.data.rewriting`.
Rewrite = Callable[[Rows, Ints, Ints], Rows]

# Of a batch: a row for each sequence.
ROWS = ("tokens", "labels", "targets", "documents", "positions", "source_id", "n")
MARKS = ("documents", "positions", "cu_seqlens", "max_seqlen")
TOGETHER = 2**19  # tokens of steps that are built in one go
GROUP = 8192  # sequences whose addresses are computed, and whose blocks are asked for, in one go
PACKINGS = 256  # blocks whose best-fit packing is remembered
BUFFERS = 64  # arrays of past batches that may be used again


class Batch(Mapping[str, torch.Tensor]):
    """The tensors of a batch by name. One of a stream (`of`) makes each when it is first read, in the thread that reads it;
    `Batch(tensors)` is what loops make of it that move or convert the tensors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = dict(tensors)
        self._rows: Rows | None = None
        self._columns: dict[str, npt.NDArray[np.integer]] = {}

    @classmethod
    def of(cls, rows: Rows, source: Ints, n: Ints) -> Batch:
        batch = cls({})
        batch._rows = rows
        batch._columns = {"tokens": rows.tokens, "labels": rows.labels, "source_id": source, "n": n}
        if rows.targets is not None:
            batch._columns["targets"] = rows.targets
        return batch

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._tensors:
            if self._rows and name in MARKS and name not in self._columns:
                found = self._rows.marks()
                self._columns |= {mark: getattr(found, mark) for mark in MARKS[:-1]}
                self._columns["max_seqlen"] = np.array(found.max_seqlen, dtype=np.int32)
            self._tensors[name] = torch.from_numpy(self._columns[name])
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        marks = MARKS if self._rows else ()
        return iter(dict.fromkeys([*self._columns, *marks, *self._tensors]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def unshifted(batch: Mapping[str, torch.Tensor], masked: bool = False) -> dict[str, torch.Tensor]:
    """A batch for a model that shifts labels itself: `input_ids`, `labels`, `position_ids`, int64 [rows, length + 1].

    Such a model compares what it predicts at a position with the label of the next one, so `length` predictions take
    `length + 1` positions: those of `tokens`, and the last label. The first label, which no position predicts, is `IGNORED`.
    Positions begin at 0 in each document, by which models of transformers keep documents apart. `masked`: labels are of the tokens at
    their own positions, which nobody shifts; `length` of them.
    """
    tokens, labels, positions = batch["tokens"], batch["labels"], batch["positions"]
    if masked:
        return {"input_ids": tokens, "labels": labels, "position_ids": positions.long()}
    return {
        "input_ids": torch.cat([tokens, labels[:, -1:]], 1),
        "labels": torch.cat([torch.full_like(labels[:, :1], IGNORED), labels], 1),
        "position_ids": torch.cat([positions, positions[:, -1:] + 1], 1).long(),
    }


def by_rows(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of a batch that can be cut and joined by rows."""
    return {name: batch[name] for name in ROWS if name in batch} if "tokens" in batch else dict(batch)


class Group(NamedTuple):
    """Consecutive steps of one stage: the blocks that they read, and of each row the number of its sequence, its block (an
    index of `keys`), its position in the block (in rows of this length), and its source."""

    steps: range
    keys: list[Key]
    numbers: Ints
    block: Ints
    sequence: Ints
    source: Ints

    def place(self, first: int, count: int) -> slice:
        """Where the rows of `count` steps from `first` on are."""
        share = len(self.numbers) // len(self.steps)
        return slice((first - self.steps.start) * share, (first - self.steps.start + count) * share)


class Builder:
    """The batches of one rank by step. Not for several threads at once."""

    def __init__(
        self, plan: Plan, blocks: Blocks, eos: int, rank: int, world: int, rewrite: Rewrite | None = None
    ) -> None:
        self.plan, self.blocks, self.eos, self.rank, self.world = plan, blocks, eos, rank, world
        self.rewrite = rewrite
        self._groups: OrderedDict[int, Group] = OrderedDict()
        self._packings: OrderedDict[tuple[Key, int], list[list[Piece]]] = OrderedDict()
        self._buffers: list[Ints] = []

    def together(self, first: int, most: int) -> int:
        """How many steps from `first` on, `most` at most, `build` should take at once."""
        tokens = self.plan.segment_of(first).stage.sequences // self.world * self.plan.sequence_length
        return max(min(TOGETHER // tokens, most, self._span(first).stop - first), 1)

    def build(self, first: int, count: int) -> list[Batch]:
        """This rank's part of the batches of some steps. Pure but for its caches."""
        plan, length = self.plan, self.plan.segment_of(first).stage.length
        group = self._group(first)
        if group.steps.stop not in self._groups:
            self._make_group(group.steps.stop, group.steps.stop)
        place = group.place(first, count)
        # Copied, for a batch may be written into.
        numbers, of, sequences, sources = (column[place].copy() for column in group[2:])
        places = of.tolist()
        keys = {at: group.keys[at] for at in places}  # each block once, in the order of their use
        found = self.blocks.get(keys.values(), int(numbers[0]))
        data = {at: found[key] for at, key in keys.items()}
        pairs = list(zip([data[at] for at in places], sequences.tolist(), strict=True))
        batches, size = [], len(pairs) // count
        for low in range(0, len(pairs), size):
            mine = slice(low, low + size)
            if plan.packing == "windows":
                rows = windows(pairs[mine], length, plan.cross_documents, self._buffer(size, length + 1))
            else:
                pieces = [
                    (block, self._packing(keys[at], block, length)[sequence])
                    for at, (block, sequence) in zip(places[mine], pairs[mine], strict=True)
                ]
                rows = packed(pieces, length, self.eos, plan.cross_documents, self._buffer(2 * size, length))
            if self.rewrite is not None:
                rows = self.rewrite(rows, numbers[mine], sequences[mine] % (plan.sequence_length // length))
            batches.append(Batch.of(rows, sources[mine], numbers[mine]))
        return batches

    def _span(self, step: int) -> range:
        """The steps of the group of `step`; each stage begins a new group."""
        stage = self.plan.segment_of(step).stage
        count = max(GROUP * self.world // stage.sequences, 1)
        first = step - (step - stage.first_step) % count
        later = [s.first_step for s in self.plan.stages if s.first_step > step]
        return range(first, min([first + count, *later]))

    def _group(self, step: int) -> Group:
        first = self._span(step).start
        return self._groups.get(first) or self._make_group(first, step)

    def _make_group(self, first: int, step: int) -> Group:
        """Addresses of a group; starts fetching the blocks that it needs from `step` on."""
        steps = self._span(first)
        numbers = self.plan.numbers(steps, self.rank, self.world)
        source, _, block, sequence = order(self.plan, numbers)
        names, of = np.unique(source << 40 | block, return_inverse=True)
        keys = list(zip((names >> 40).tolist(), (names & (1 << 40) - 1).tolist(), strict=True))
        parts = self.plan.sequence_length // self.plan.segment_of(first).stage.length
        if parts > 1:  # rows that are parts of a sequence of full length
            numbers, of, source = (column.repeat(parts) for column in (numbers, of, source))
            sequence = (sequence[:, None] * parts + np.arange(parts)).ravel()
        group = self._groups[first] = Group(steps, keys, numbers, of, sequence, source)
        while len(self._groups) > 3:
            self._groups.popitem(last=False)
        wanted = group.place(step, steps.stop - step)
        soon = {at: keys[at] for at in of[wanted].tolist()}
        self.blocks.read_ahead(soon.values(), int(numbers[wanted.start]))
        return group

    def _packing(self, key: Key, block: BlockData, length: int) -> list[list[Piece]]:
        known = self._packings.get((key, length))
        if known is None:
            full = self.plan.sequence_length
            rows = (len(block.tokens) - 1) // full * (full // length)
            known = self._packings[key, length] = best_fit(block.starts, len(block.tokens), length, rows)
            if len(self._packings) > PACKINGS:
                self._packings.popitem(last=False)
        return known

    def _buffer(self, rows: int, width: int) -> Ints:
        """An array of this shape, reused if its batches are gone: new memory costs a page fault for each 4 KiB, as much as
        filling it."""
        for buffer in self._buffers:
            # Held here, by the loop, and by the call itself; a view of it holds it too.
            if sys.getrefcount(buffer) == 3 and buffer.shape == (rows, width):
                return buffer
        buffer = np.empty((rows, width), dtype=np.int64)
        self._buffers = [*self._buffers[-BUFFERS + 1 :], buffer]
        return buffer
