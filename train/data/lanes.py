"""The sequences of a source as chunks, the slots of a batch that belong to the source, and the chunks of each slot.

A source is an endless series of chunks of equal size. A chunk is `size` sequences of one block, read together. Sequences
left over at the ends of blocks form chunks across blocks; and since an epoch need not be a whole number of chunks, its last
leftovers share a chunk with the first of the next epoch. So every chunk is full, every sequence occurs once in every epoch,
and a chunk is found by a few divisions: nothing is listed, however large the source. Chunks are permuted differently in
each epoch. Slots are laid out so that every part of a batch has the mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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

    def chunks_before(self, epoch: npt.ArrayLike) -> Ints:
        """Number of the first chunk of an epoch."""
        return np.asarray(epoch, dtype=np.int64) * self.total // self.size

    def at(self, chunk: npt.ArrayLike, place: npt.ArrayLike) -> tuple[Ints, Ints, Ints]:
        """(epoch, block, sequence in the block) of each place (0 to size - 1) in chunks of the endless series."""
        chunk, place = np.asarray(chunk, dtype=np.int64), np.asarray(place, dtype=np.int64)
        epoch = self.epoch_of(chunk)
        first = self.chunks_before(epoch)
        which = permute(chunk - first, self.chunks_before(epoch + 1) - first, keys_of(self._key, epoch))
        run, block, number = self._find(which, self._chunk_ends, self._per_block)
        sequence = number * self.size + place
        pooled = np.flatnonzero(which >= self.full)
        if len(pooled):
            e = epoch[pooled]
            row = (e * self.over // self.size + which[pooled] - self.full) * self.size + place[pooled]
            epoch = epoch.copy()
            epoch[pooled], row = np.divmod(row, self.over)
            run, block[pooled], number = self._find(row, self._over_ends, self._over_block)
            sequence[pooled] = self._per_block[run] * self.size + number
        return epoch, block, sequence

    def epoch_of(self, chunk: Ints) -> Ints:
        """The epoch that a chunk is counted in."""
        return -(-(chunk + 1) * self.size // self.total) - 1

    def chunks_of(self, blocks: Ints, epoch: npt.ArrayLike) -> tuple[Ints, Ints]:
        """(index into `blocks`, chunk) of every chunk of an epoch within one of the blocks; without leftovers."""
        starts = self._first_blocks
        run = np.searchsorted(starts, blocks, side="right") - 1
        per = self._per_block[run]
        first = (self._chunk_ends - self.counts * self._per_block)[run] + (blocks - starts[run]) * per
        owner = np.repeat(np.arange(len(blocks)), per)
        which = np.repeat(first - (np.cumsum(per) - per), per) + np.arange(per.sum())
        now = np.broadcast_to(np.asarray(epoch, dtype=np.int64), blocks.shape)[owner]
        base = self.chunks_before(now)
        return owner, base + unpermute(which, self.chunks_before(now + 1) - base, keys_of(self._key, now))

    @cached_property
    def _key(self) -> int:
        return key_of(self.seed, self.name, "epoch")

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


def layout(counts: list[int], batch: int) -> Ints:
    """Source of each slot, int64 [sum(counts)]; `counts` are the slots of each source.

    Each batch of `batch` consecutive slots has of every source its share, to one slot; so has every part of a batch that
    repeated halving (or division by the next prime factor) gives. `batch` divides the slots.
    """
    total = sum(counts)
    if batch < 1 or total % batch:
        raise ValueError(f"{total} slots are not a whole number of batches of {batch}")
    parts = [np.array(counts, dtype=np.int64)]
    for factor in [total // batch, *_prime_factors(batch)]:
        parts = [piece for part in parts for piece in _split(part, factor)]
    return np.concatenate([np.repeat(np.arange(len(counts)), part) for part in parts]).astype(np.int64)


def _split(counts: Ints, parts: int) -> list[Ints]:
    """`counts` cut in `parts` of equal sums, each count in each part rounded down or up.

    Remainders are distributed to the parts in turn, source by source (McNaughton 1959), so no part gets two of one.
    """
    whole, over = np.divmod(counts, parts)
    seats = np.repeat(np.arange(len(counts)), over)
    found = []
    for part in range(parts):
        mine = whole.copy()
        mine[seats[part::parts]] += 1
        found.append(mine)
    return found


def _prime_factors(number: int) -> list[int]:
    factors, prime = [], 2
    while prime * prime <= number:
        while number % prime == 0:
            factors.append(prime)
            number //= prime
        prime += 1
    return [*factors, number] if number > 1 else factors


@dataclass(frozen=True, eq=False)
class LaneAssignment:
    """A source's chunks among its lanes in one segment: first the leftovers of the assignment `before` (`carry_over`), then
    new chunks from `first` on. `taken[i]`: sequences that lane i of the assignment before had drawn when it ended."""

    lanes: int
    window: int  # chunks
    sequences: Sequences
    first: int = 0
    before: LaneAssignment | None = None
    taken: Ints | None = None

    @cached_property
    def carry_over(self) -> Ints:
        """[lanes of the assignment before + 1]: cumulative number of sequences that its lanes left over."""
        if self.before is None or self.taken is None:
            return np.zeros(1, dtype=np.int64)
        ends = self.before.carried_per_lane + self.before.opened(self.taken) * self.span
        return np.concatenate([[0], np.cumsum(ends - self.taken)])

    @cached_property
    def span(self) -> int:
        """Sequences in a window."""
        return self.window * self.sequences.size

    @cached_property
    def edges(self) -> Ints:
        """[lanes + 1]: where each lane's part of the leftovers begins; parts differ by at most one sequence."""
        edges: Ints = np.arange(self.lanes + 1) * self.carry_over[-1] // self.lanes
        return edges

    @cached_property
    def carried_per_lane(self) -> Ints:
        """[lanes]: left-over sequences that each lane begins with."""
        return np.diff(self.edges)

    def opened(self, taken: Ints) -> int:
        """Windows of every lane that count as begun when lanes have drawn `taken` sequences."""
        windows = -(-(taken - self.carried_per_lane) // self.span)  # rounded up
        return max(int(windows.max()), 0)

    def successor(self, taken: Ints, lanes: int) -> LaneAssignment:
        """The assignment of the source's next segment, after the lanes of this one have drawn `taken` sequences."""
        first = self.first + self.opened(taken) * self.window * self.lanes
        return LaneAssignment(lanes, self.window, self.sequences, first, self, taken)

    def locate(self, lane: Ints, lane_position: Ints) -> tuple[Ints, Ints]:
        """(chunk, place in the chunk) of each lane's sequence number `lane_position`."""
        window, inner = np.divmod(lane_position - self.carried_per_lane[lane], self.span)
        first = self.first + window * (self.window * self.lanes) + lane  # identifies lane and window
        number, place = np.divmod(permute(inner, self.span, keys_of(self._key, first)), self.sequences.size)
        chunk = first + number * self.lanes
        rest = np.flatnonzero(window < 0)
        if len(rest) and self.before is not None and self.taken is not None:
            row = self.edges[lane[rest]] + lane_position[rest]
            owner = np.searchsorted(self.carry_over, row, side="right") - 1
            chunk[rest], place[rest] = self.before.locate(
                owner, self.taken[owner] + row - self.carry_over[owner]
            )
        return chunk, place

    @cached_property
    def _key(self) -> int:
        return key_of(self.sequences.seed, self.sequences.name, "window")
