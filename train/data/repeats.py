"""How often a run was trained on each sequence and each token of its sources, from its plan: repeats counted, unlike in `trained`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.fetch import BlockData, Blocks, Key
from corpusmill.train.data.order import order
from corpusmill.train.data.pack import best_fit, unlabelled
from corpusmill.train.data.plan import Plan
from corpusmill.train.data.trained import AHEAD

Ints = npt.NDArray[np.int64]
AT_ONCE = 1 << 20  # sequences whose addresses are computed together: 32 MB
FULL = 0  # the key of rows of full length, in `Repeats.counts`


class Repeats(NamedTuple):
    """Of one source. `first[b]`: the number of block b's first sequence among all; `counts[length]`: int32 [sequences], how often each
    was drawn as rows of that length, `FULL` where the length makes no difference."""

    first: Ints
    counts: dict[int, npt.NDArray[np.int32]]

    @property
    def total(self) -> int:
        """Sequences drawn, each repeat counted."""
        return sum(int(count.sum(dtype=np.int64)) for count in self.counts.values())

    @property
    def distinct(self) -> int:
        """Sequences drawn at least once."""
        return (
            int((np.sum([count > 0 for count in self.counts.values()], axis=0) > 0).sum())
            if self.counts
            else 0
        )


def repeats(plan: Plan, step: int, without: Collection[int] = ()) -> list[Repeats]:
    """Of each source of a plan, in the batches up to `step` but those of the steps `without`. Four bytes a sequence of memory."""
    found = []
    for source in plan.sources:
        per_block = np.repeat(source.sequences.sequences, source.sequences.counts)
        found.append(Repeats(np.concatenate([[0], np.cumsum(per_block)]), {}))
    for numbers, length in _numbers(plan, step, without):
        at = order(plan, numbers)
        key = FULL if plan.packing == "windows" or length == plan.sequence_length else length
        for which in np.unique(at.source).tolist():
            one, mine = found[which], at.source == which
            place = one.first[at.block[mine]] + at.sequence[mine]
            count = one.counts.setdefault(key, np.zeros(int(one.first[-1]), dtype=np.int32))
            np.add.at(count, place, 1)
    return found


def _numbers(plan: Plan, step: int, without: Collection[int]) -> Iterator[tuple[Ints, int]]:
    """(sequence numbers, length of their rows) of the batches, some steps of one segment at a time."""
    for index, segment in enumerate(plan.segments):
        after = plan.stages[index + 1].first_step if index + 1 < len(plan.stages) else step + 1
        last, batch = min(step, after - 1), segment.stage.sequences
        size = max(AT_ONCE // batch, 1)
        for first in range(segment.stage.first_step, last + 1, size):
            steps = range(first, min(first + size, last + 1))
            kept = ~np.isin(np.arange(steps.start, steps.stop), list(without))
            yield plan.numbers(steps).reshape(len(steps), batch)[kept].ravel(), segment.stage.length


def repeated(plan: Plan, blocks: Blocks, found: Sequence[Repeats]) -> Iterator[tuple[Key, BlockData, Ints]]:
    """(source and block, its data, int64 [ntokens]: how often each token was a label) of each block that was drawn from.

    `blocks`: of the plan's sources. Raises `WorkError` if the store fails.
    """
    keys = list[Key]()
    for number, one in enumerate(found):
        drawn = np.zeros(len(one.first) - 1, dtype=np.int64)
        for count in one.counts.values():
            drawn += np.add.reduceat(np.append(count, 0), one.first[:-1]) * (np.diff(one.first) > 0)
        keys += [(number, block) for block in np.flatnonzero(drawn).tolist()]
    for at, (number, block) in enumerate(keys):
        blocks.read_ahead(keys[at : at + AHEAD])
        data = blocks.get([(number, block)])[number, block]
        one = found[number]
        here = slice(int(one.first[block]), int(one.first[block + 1]))
        labels = np.zeros(len(data.tokens), dtype=np.int64)
        for length, count in one.counts.items():
            labels += of_tokens(plan, data, length or plan.sequence_length, count[here])
        yield (number, block), data, labels * ~unlabelled(data)


def of_tokens(plan: Plan, block: BlockData, length: int, counts: npt.NDArray[np.int32]) -> Ints:
    """How often each token of a block was in a row, int64 [ntokens], from how often each of its sequences was drawn."""
    found = np.zeros(len(block.tokens), dtype=np.int64)
    full = plan.sequence_length
    if plan.packing == "windows":
        found[1 : len(counts) * full + 1] = np.repeat(counts, full)
        return found
    parts = full // length
    rows = best_fit(block.starts, len(block.tokens), length, len(counts) * parts)
    for sequence in np.flatnonzero(counts).tolist():
        for row in rows[sequence * parts : (sequence + 1) * parts]:
            for start, size in row:
                found[start : start + size] += counts[sequence]
    return found
