"""Which tokens a run was trained on up to a step: each of them once, however often it was drawn; block by block."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.schemas.data import FetchConfig
from corpusmill.train.data.fetch import BlockData, Blocks, Key
from corpusmill.train.data.order import order
from corpusmill.train.data.pack import best_fit, unlabelled
from corpusmill.train.data.plan import Plan
from corpusmill.train.data.shards import Source

Ints = npt.NDArray[np.int64]

MOST_DRAWS = 1 << 22  # sequences whose addresses are computed, at most: 400 MB
AHEAD = 8  # blocks read ahead


class Drawn(NamedTuple):
    """Distinct sequences in the order of the data, int64 [n] each: `length` of their rows. `of`: how many there are in all;
    an upper bound where more than `MOST_DRAWS` were drawn."""

    source: Ints
    block: Ints
    length: Ints
    sequence: Ints
    of: int


def spread(sizes: Ints, most: int) -> Ints:
    """Which of some groups to take, evenly spread, so that their sizes sum to at most `most`; at least one, if there is one."""
    total, count = int(sizes.sum()), len(sizes)
    if total <= most:
        return np.arange(count)
    kept = max(count * most // total, 1)
    chosen = np.arange(kept) * count // kept
    fits = int(np.searchsorted(np.cumsum(sizes[chosen]), most, side="right"))
    return chosen[: max(fits, 1)]


def numbers(plan: Plan, step: int, without: Collection[int], most: int) -> tuple[Ints, Ints]:
    """(sequence numbers, lengths of their rows) of the batches up to `step`, without those of the steps `without`; if there
    are more than `most`, so many spread evenly over them."""
    # First number of each batch, sequences of a batch, length of a row.
    found: list[tuple[Ints, int, int]] = []
    for index, segment in enumerate(plan.segments):
        first = segment.stage.first_step
        last = plan.stages[index + 1].first_step - 1 if index + 1 < len(plan.stages) else step
        steps = np.arange(first, min(last, step) + 1)
        steps = steps[~np.isin(steps, list(without))]
        passed = np.zeros(len(steps), dtype=np.int64)
        for at, batches in segment.skips:
            passed[steps >= at] += batches
        starts = segment.n + (steps - first + passed) * segment.stage.sequences
        found.append((starts, segment.stage.sequences, segment.stage.length))
    total = sum(len(starts) * batch for starts, batch, _ in found)
    count = min(total, most)
    wanted = np.arange(count) * total // max(count, 1)
    result, lengths, before = [], [], 0
    for starts, batch, length in found:
        after = before + len(starts) * batch
        mine = wanted[wanted.searchsorted(before) : wanted.searchsorted(after)] - before
        result.append(starts[mine // batch] + mine % batch)
        lengths.append(np.full(len(mine), length))
        before = after
    return np.concatenate(result), np.concatenate(lengths)


def drawn(plan: Plan, step: int, without: Collection[int] = (), most: int = 2**62) -> Drawn:
    """The distinct sequences of the batches up to `step`, without those of the steps `without`: all those of blocks spread
    evenly over the data, of `most` tokens together (or of one block, if it has more)."""
    number, length = numbers(plan, step, without, MOST_DRAWS)
    if plan.packing == "windows":  # rows of a shorter length are parts of the same tokens
        length = np.full_like(length, plan.sequence_length)
    at = order(plan, number)
    which = at.source << 40 | at.block
    by = np.lexsort((at.sequence, length, which))
    columns = np.stack([which, length, at.sequence])[:, by]
    new = (np.diff(columns, prepend=columns[:, :1] - 1) != 0).any(0)
    which, length, sequence = columns[:, new]
    of = len(which)
    passed = sum(plan.segment_of(other).stage.sequences for other in without if other <= step)
    if int(plan.trained(step).sum()) - passed > len(number):  # no source has more sequences than it has
        totals = np.array([source.sequences.total for source in plan.sources])
        of = int(np.minimum(plan.trained(step), totals).sum())
    _, group, sizes = np.unique(which, return_inverse=True, return_counts=True)
    kept = np.isin(group, spread(sizes * plan.sequence_length, most))
    which, length, sequence = which[kept], length[kept], sequence[kept]
    return Drawn(which >> 40, which & (1 << 40) - 1, length, sequence, of)


def labels(plan: Plan, block: BlockData, length: int, sequences: Ints) -> npt.NDArray[np.bool_]:
    """Which tokens of a block are labels in some of its sequences, cut into rows of `length`: bool [ntokens]."""
    return _drawn(plan, block, length, sequences) & ~unlabelled(block)


def _drawn(plan: Plan, block: BlockData, length: int, sequences: Ints) -> npt.NDArray[np.bool_]:
    """The same with those that are no labels in training."""
    chosen = np.zeros(len(block.tokens), dtype=np.bool_)
    full = plan.sequence_length
    if plan.packing == "windows":
        count = (len(block.tokens) - 1) // full
        chosen[1 : count * full + 1].reshape(count, full)[sequences] = True
        return chosen
    parts = full // length
    rows = best_fit(block.starts, len(block.tokens), length, (len(block.tokens) - 1) // full * parts)
    for sequence in sequences.tolist():
        for row in rows[sequence * parts : (sequence + 1) * parts]:
            for start, size in row:
                chosen[start : start + size] = True
    return chosen


def trained_on(
    plan: Plan, sources: Sequence[Source], found: Drawn, fetch: FetchConfig
) -> Iterator[tuple[BlockData, npt.NDArray[np.bool_]]]:
    """Each block that holds some of the sequences, and which of its tokens are their labels. `sources`: those of the plan. A
    damaged block has the substitute that the run read. Raises `WorkError` if the store fails."""
    which = found.source << 40 | found.block
    starts = np.flatnonzero(np.diff(which, prepend=which[:1] - 1))
    keys = list(zip(found.source[starts].tolist(), found.block[starts].tolist(), strict=True))
    ends = [*starts[1:].tolist(), len(which)]
    substitutes = fetch.model_copy(update={"bad_blocks": 2**31})
    for block, start, end in zip(read(sources, keys, substitutes), starts.tolist(), ends, strict=True):
        chosen = np.zeros(len(block.tokens), dtype=np.bool_)
        for length in np.unique(found.length[start:end]).tolist():
            mine = found.sequence[start:end][found.length[start:end] == length]
            chosen |= labels(plan, block, length, mine)
        yield block, chosen


def read(sources: Sequence[Source], keys: Sequence[Key], fetch: FetchConfig) -> Iterator[BlockData]:
    """The blocks of these keys, in their order, read ahead."""
    with closing(Blocks(sources, fetch)) as blocks:
        for number, key in enumerate(keys):
            blocks.read_ahead(keys[number : number + AHEAD])
            yield blocks.get([key])[key]
