"""The order of all sequences of a run, as a pure function of the global sequence number n: no state but n.

    step, slot = divmod(n, global_batch);  the slot's source is fixed by the plan
    k          = step x lanes of the source + number of the slot among them:  the source's k-th sequence
    epoch, i   = divmod(k, sequences of the source)
    block      : blocks are permuted anew in each epoch; each run of `window_blocks` of them is a window
    sequence   : the sequences of a window are permuted together, and i walks window after window

So every sequence of a source comes once per epoch, nothing depends on ranks or workers, and what is read at
one time comes out of a few blocks. Permutations are sorts of splitmix64 hashes (Steele et al. 2014): the same on any
machine and with any version of numpy, whose own generators promise no such thing.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from train.data.plan import Plan

Ints = npt.NDArray[np.int64]


class Address(NamedTuple):
    """Where sequences lie; arrays of equal length. `source` counts the plan's sources, `block` the source's blocks."""

    source: Ints
    epoch: Ints
    block: Ints
    sequence: Ints


def order(plan: Plan, n: npt.ArrayLike) -> Address:
    """Addresses of the global sequence numbers `n` (int64, any shape flattened, any order)."""
    numbers = np.asarray(n, dtype=np.int64).ravel()
    step, slot = np.divmod(numbers, plan.global_batch)
    source = plan.slots[slot]
    result = Address(source, *(np.empty_like(numbers) for _ in range(3)))
    for index, part in enumerate(plan.sources):
        mine = np.flatnonzero(source == index)
        epoch, place = np.divmod(step[mine] * part.lanes + plan.ranks[slot[mine]], max(part.total, 1))
        result.epoch[mine] = epoch
        for e in np.unique(epoch):
            now = mine[epoch == e]
            result.block[now], result.sequence[now] = _locate(plan, index, int(e), place[epoch == e])
    return result


def _locate(plan: Plan, source: int, epoch: int, place: Ints) -> tuple[Ints, Ints]:
    """(block, sequence) of the places in one epoch of a source."""
    blocks, starts = _epoch(plan, source, epoch)
    windows = starts[:: plan.window_blocks]  # first place of each window
    window = np.searchsorted(windows, place, side="right") - 1
    shuffled = np.empty_like(place)
    for w in np.unique(window):
        inside = window == w
        shuffled[inside] = windows[w] + _window(plan, source, epoch, int(w))[place[inside] - windows[w]]
    at = np.searchsorted(starts, shuffled, side="right") - 1  # skips blocks without sequences
    return blocks[at], shuffled - starts[at]


@lru_cache(maxsize=128)
def _epoch(plan: Plan, source: int, epoch: int) -> tuple[Ints, Ints]:
    """(blocks in this epoch's order, first place of each). A memo: a pure function of its arguments."""
    part = plan.sources[source]
    blocks = permutation(len(part.sequences), plan.seed, part.name, epoch)
    starts = np.concatenate([[0], np.cumsum(part.sequences[blocks])[:-1]])
    return blocks, starts


@lru_cache(maxsize=512)
def _window(plan: Plan, source: int, epoch: int, window: int) -> Ints:
    part = plan.sources[source]
    blocks, _ = _epoch(plan, source, epoch)
    first = window * plan.window_blocks
    size = int(part.sequences[blocks[first : first + plan.window_blocks]].sum())
    return permutation(size, plan.seed, part.name, epoch, window)


def permutation(size: int, *key: int | str) -> Ints:
    """A permutation of range(size) that depends on the key alone."""
    start = int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little")
    with np.errstate(over="ignore"):
        x = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.argsort(x, kind="stable")
