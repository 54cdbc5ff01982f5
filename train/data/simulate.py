"""What a plan will fetch on so many ranks, by walking its order without reading a byte."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.order import order
from corpusmill.train.data.plan import Plan

SAMPLED_CELLS = 1 << 21  # sequences walked for each rank, at most
SAMPLED_WINDOWS = 32  # windows of each lane walked, at most; the first and the last may be cut
SAMPLED_RANKS = 2


@dataclass(frozen=True)
class Reads:
    """Of all ranks together, per sequence that is drawn, and of one rank."""

    requests: float  # blocks fetched for each sequence drawn
    fetched: (
        float  # bytes fetched for each byte of the sequences drawn: 1 if every block is read once in an epoch
    )
    resident: int  # bytes of the blocks that a rank's lanes have open at once
    fits: bool  # whether they fit in its memory


def reads(
    plan: Plan,
    block_bytes: list[npt.NDArray[np.int64]] | list[int],
    token_bytes: int,
    world: int,
    memory: int,
) -> Reads:
    """Walk some windows of all lanes, on the first rank and one in the middle, with `memory` bytes for blocks.

    `block_bytes`: per source, the bytes of each block, or of any. The last segment of the plan is walked, from its first
    window that no earlier segment has a part in. Least recently used blocks go first, so that it is no less
    than what the loader, which knows the future, will fetch.
    """
    segment = plan.segments[-1]
    batch, slots = segment.stretch.cells, len(segment.slots)
    turns = max(deal.span for deal in segment.deals.values())
    first = max(int(deal.heads.max(initial=0)) for deal in segment.deals.values())
    share = batch // world
    most = SAMPLED_CELLS * batch // (slots * share)
    turns = turns * min(SAMPLED_WINDOWS, most // turns) if most >= turns else max(most, 1)
    missed = sampled = fetched = resident = 0
    for rank in sorted({0, world // 2})[:SAMPLED_RANKS]:
        starts = segment.n + first * slots + np.arange(turns * (slots // batch)) * batch + rank * share
        at = order(plan, (starts[:, None] + np.arange(share)).ravel())
        size = np.array([np.max(b) for b in block_bytes])[at.source]
        for source, sizes in enumerate(block_bytes):
            if isinstance(sizes, np.ndarray):
                mine = at.source == source
                size[mine] = sizes[at.block[mine]]
        missed_now, fetched_now = _least_recently_used(at.source, at.block, size, memory)
        missed, fetched, sampled = missed + missed_now, fetched + fetched_now, sampled + len(size)
        resident = max(resident, _open(at.source, at.block, size))
    return Reads(
        missed / sampled,
        fetched / (sampled * plan.sequence_length * token_bytes),
        resident,
        resident <= memory,
    )


def _least_recently_used(
    source: npt.NDArray[np.int64], block: npt.NDArray[np.int64], size: npt.NDArray[np.int64], memory: int
) -> tuple[int, int]:
    """(misses, bytes fetched) of a row of reads."""
    kept: OrderedDict[tuple[int, int], int] = OrderedDict()
    held = misses = fetched = 0
    for s, b, n in zip(source.tolist(), block.tolist(), size.tolist(), strict=True):
        if (s, b) in kept:
            kept.move_to_end((s, b))
            continue
        kept[s, b] = n
        misses, fetched, held = misses + 1, fetched + n, held + n
        while held > memory and len(kept) > 1:
            held -= kept.popitem(last=False)[1]
    return misses, fetched


def _open(source: npt.NDArray[np.int64], block: npt.NDArray[np.int64], size: npt.NDArray[np.int64]) -> int:
    """The most bytes of blocks that are between their first and their last read at one time."""
    _, which = np.unique(np.stack([source, block]), axis=1, return_inverse=True)
    which = which.ravel()
    first, last = np.full(which.max() + 1, len(which)), np.zeros(which.max() + 1, dtype=np.int64)
    where = np.arange(len(which))
    np.minimum.at(first, which, where)
    np.maximum.at(last, which, where)
    change = np.zeros(len(which) + 1, dtype=np.int64)
    np.add.at(change, first, size[first])
    np.add.at(change, last + 1, -size[first])
    return int(np.cumsum(change).max())
