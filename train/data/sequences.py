"""The sequences of a source as chunks, permuted differently in each epoch.

A chunk is `size` sequences of one block, read together. Sequences left over at the ends of blocks form chunks across blocks,
others in each epoch. A place of an epoch is found by a few divisions: nothing is listed, however large the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.shuffle import key_of, keys_of, permute, unpermute

Ints = npt.NDArray[np.int64]


def runs(per_block: npt.ArrayLike) -> tuple[Ints, Ints]:
    """(counts, sequences) of `Sequences`, from the number of sequences in each block."""
    sequences = np.asarray(per_block, dtype=np.int64)
    first = np.flatnonzero(np.diff(sequences, prepend=sequences[:1] - 1))
    return np.diff(first, append=len(sequences)), sequences[first]


@dataclass(frozen=True, eq=False)
class Sequences:
    """`counts[i]` consecutive blocks have `sequences[i]` sequences each; `size`: of a chunk; `name` and `seed` key the order."""

    name: str
    seed: int
    size: int
    counts: Ints
    sequences: Ints

    # Whether the draws of the first epochs have an order of their own (`corpusmill.train.data.curriculum`).
    ordered: ClassVar[bool] = False

    def about(self) -> dict[str, Any]:
        """What a plan's hash covers beside the numbers and the name."""
        return {}

    @cached_property
    def total(self) -> int:
        """Sequences in an epoch."""
        return int((self.counts * self.sequences).sum())

    @cached_property
    def full(self) -> int:
        """Chunks in an epoch that lie in one block."""
        return int((self.counts * (self.sequences // self.size)).sum())

    @cached_property
    def over(self) -> int:
        """Sequences in an epoch that lie in no such chunk."""
        return self.total - self.full * self.size

    @cached_property
    def chunks(self) -> int:
        """Chunks in an epoch, those of leftovers included; fewer than `size` sequences are in none."""
        return self.total // self.size

    def at(self, epoch: Ints, place: Ints) -> tuple[Ints, Ints]:
        """(block, sequence in the block) of each place (0 to total - 1) of an epoch, in which its chunks lie permuted."""
        chunk, inner = np.divmod(place, self.size)
        there = np.minimum(chunk, self.chunks - 1)  # what is beyond the last lies in no chunk, and stays
        chunk = np.where(chunk < self.chunks, self.permuted(epoch, there), chunk)
        run, block, number = self._find(chunk, self._chunk_ends, self._per_block)
        sequence = number * self.size + inner
        pooled = np.flatnonzero(chunk >= self.full)
        if len(pooled):
            row = (chunk[pooled] - self.full) * self.size + inner[pooled]
            begin = keys_of(self._over_key, epoch[pooled]) % np.uint64(self.over)
            row = (row + begin.astype(np.int64)) % self.over
            run, block[pooled], number = self._find(row, self._over_ends, self._over_block)
            sequence[pooled] = self._per_block[run] * self.size + number
        return block, sequence

    def chunks_of(self, blocks: Ints, epoch: int) -> tuple[Ints, Ints]:
        """(index into `blocks`, chunk as permuted in an epoch) of every chunk within one of the blocks; without leftovers."""
        starts = self._first_blocks
        run = np.searchsorted(starts, blocks, side="right") - 1
        per = self._per_block[run]
        first = (self._chunk_ends - self.counts * self._per_block)[run] + (blocks - starts[run]) * per
        owner = np.repeat(np.arange(len(blocks)), per)
        which = np.repeat(first - (np.cumsum(per) - per), per) + np.arange(per.sum())
        return owner, self.unpermuted(epoch, which)

    def permuted(self, epoch: Ints, chunk: Ints) -> Ints:
        """The chunk that each place of an epoch (as many as there are chunks) has."""
        return permute(chunk, self.chunks, keys_of(self._key, epoch))

    def unpermuted(self, epoch: int, chunk: Ints) -> Ints:
        """The place that each chunk has in an epoch."""
        return unpermute(chunk, self.chunks, keys_of(self._key, epoch))

    @cached_property
    def _key(self) -> int:
        return key_of(self.seed, self.name, "epoch")

    @cached_property
    def _over_key(self) -> int:
        return key_of(self.seed, self.name, "leftovers")

    @cached_property
    def _per_block(self) -> Ints:
        return self.sequences // self.size

    @cached_property
    def _over_block(self) -> Ints:
        return self.sequences % self.size

    @cached_property
    def _chunk_ends(self) -> Ints:
        return np.cumsum(self.counts * self._per_block)

    @cached_property
    def _over_ends(self) -> Ints:
        return np.cumsum(self.counts * self._over_block)

    def _find(self, index: Ints, ends: Ints, per_block: Ints) -> tuple[Ints, Ints, Ints]:
        """(run, block, number within the block) of items counted `per_block` in each run; undefined beyond the last."""
        run = np.minimum(np.searchsorted(ends, index, side="right"), len(ends) - 1)
        per = np.maximum(per_block[run], 1)
        block, number = np.divmod(index - (ends - self.counts * per_block)[run], per)
        return run, self._first_blocks[run] + block, number

    @cached_property
    def _first_blocks(self) -> Ints:
        return np.cumsum(self.counts) - self.counts
