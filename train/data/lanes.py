"""The sequences of a source in the order in which they are drawn, and the slots of a batch that belong to the source.

An epoch is a permutation of a source's chunks. A chunk is `size` sequences of one block, read together; sequences left over
at the ends of blocks form chunks across blocks, others in each epoch. The source's draws go to its lanes in turn. Each lane
has its own chunks, some at a time, whose sequences are permuted, so that a rank reads few blocks at once; what does not fill
a round of all lanes comes at the end of the epoch, dealt to them in parts. So every sequence is drawn once before any is
drawn again, and a draw is found by a few divisions: nothing is listed, however large the source. Slots are laid out so that
every part of a batch has the mixture.
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

    @cached_property
    def chunks(self) -> int:
        """Chunks in an epoch, those of leftovers included; fewer than `size` sequences are in none."""
        return self.total // self.size

    def at(self, epoch: Ints, place: Ints) -> tuple[Ints, Ints]:
        """(block, sequence in the block) of each place (0 to total - 1) of an epoch, in which its chunks lie permuted."""
        chunk, inner = np.divmod(place, self.size)
        whole = chunk < self.chunks
        chunk[whole] = permute(chunk[whole], self.chunks, keys_of(self._key, epoch[whole]))
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
        return owner, unpermute(which, self.chunks, keys_of(self._key, epoch))

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


@dataclass(frozen=True)
class Dealt:
    """`count` draws, dealt to lanes in turn; of the rows that stand for them each lane has consecutive ones."""

    count: int
    lanes: int

    def per_lane(self, lane: npt.ArrayLike, upto: int | None = None) -> Ints:
        """How many of the first `upto` draws each lane has; of all without it."""
        count = self.count if upto is None else upto
        most: Ints = np.maximum(-((np.asarray(lane, dtype=np.int64) - count) // self.lanes), 0)
        return most

    def first_row(self, lane: npt.ArrayLike) -> Ints:
        """Where each lane's rows begin."""
        lane = np.asarray(lane, dtype=np.int64)
        rows: Ints = lane * (self.count // self.lanes) + np.minimum(lane, self.count % self.lanes)
        return rows

    def row_of(self, draw: Ints) -> Ints:
        return self.first_row(draw % self.lanes) + draw // self.lanes

    def draw_of(self, row: Ints) -> Ints:
        """The inverse of `row_of`."""
        least, longer = divmod(self.count, self.lanes)
        lane = np.where(
            row < longer * (least + 1),
            row // (least + 1),
            longer + (row - longer * (least + 1)) // max(least, 1),
        )
        return (row - self.first_row(lane)) * self.lanes + lane


@dataclass(frozen=True, eq=False)
class LaneAssignment:
    """A source's draws in one segment, number i of them by lane i modulo `lanes`: first what the assignment `before`, after
    `drawn` of its draws, had left of its epoch; then whole epochs, from `epoch` on."""

    lanes: int
    window: int  # chunks
    sequences: Sequences
    epoch: int = 0
    before: LaneAssignment | None = None
    drawn: int = 0

    @cached_property
    def span(self) -> int:
        """Sequences in a window."""
        return self.window * self.sequences.size

    @cached_property
    def regular(self) -> int:
        """Draws of an epoch in rounds of one window each lane."""
        return self.sequences.chunks // (self.window * self.lanes) * self.span * self.lanes

    @cached_property
    def carried(self) -> int:
        """Draws that the assignment before left of its epoch."""
        return self._rest.count if self._rest else 0

    @cached_property
    def _rest(self) -> Rest | None:
        if self.before is None:
            return None
        begin, count = self.before.phase(self.drawn)
        if not self.before.is_within(self.drawn):
            return None
        return Rest(begin, Dealt(count, self.before.lanes), self.drawn - begin)

    @cached_property
    def _carry(self) -> Dealt:
        return Dealt(self.carried, self.lanes)

    @cached_property
    def _tail(self) -> Dealt:
        return Dealt(self.sequences.total - self.regular, self.lanes)

    def phase(self, draw: int) -> tuple[int, int]:
        """(first draw, number of draws) of the epoch, or the rest of one, that a draw is in."""
        if draw < self.carried:
            return 0, self.carried
        total = self.sequences.total
        return draw - (draw - self.carried) % total, total

    def epoch_of(self, draw: int) -> int:
        return (
            self.epoch - 1
            if draw < self.carried
            else self.epoch + (draw - self.carried) // self.sequences.total
        )

    def is_within(self, drawn: int) -> bool:
        """Whether, after so many draws, some sequences of an epoch were drawn and others were not."""
        return drawn < self.carried or drawn > self.phase(drawn)[0]

    def successor(self, drawn: int, lanes: int) -> LaneAssignment:
        """The assignment of the source's next segment, after `drawn` draws of this one."""
        epoch = self.epoch_of(drawn) + self.is_within(drawn)
        return LaneAssignment(lanes, self.window, self.sequences, epoch, self, drawn)

    def locate(self, draw: Ints) -> tuple[Ints, Ints]:
        """(epoch, place in its order of chunks: see `Sequences.at`) of each draw."""
        epoch, number = np.divmod(draw - self.carried, self.sequences.total)
        epoch += self.epoch
        place = np.empty_like(draw)
        carried = draw < self.carried
        now = np.flatnonzero(~carried)
        place[now] = self._places(epoch[now], number[now])
        if len(now) < len(draw) and self.before is not None and self._rest is not None:
            then = np.flatnonzero(carried)
            epoch[then], place[then] = self.before.locate(self._rest.draw_of(self._carry.row_of(draw[then])))
        return epoch, place

    def _places(self, epoch: Ints, number: Ints) -> Ints:
        """Of draws of whole epochs: `number` counts them within each."""
        size, lane = self.sequences.size, number % self.lanes
        tail = number >= self.regular
        window, inner = np.divmod(number // self.lanes, self.span)
        window[tail], inner[tail] = 0, (number[tail] - self.regular) // self.lanes
        first = (
            np.where(tail, self.regular, window * self.span * self.lanes) + lane
        )  # draw of a window, or part of the tail
        sizes = np.where(tail, self._tail.per_lane(lane), self.span)
        inner = permute(inner, sizes, keys_of(self._key, epoch * self.sequences.total + first))
        chunk = (window * self.window + inner // size) * self.lanes + lane
        return np.where(tail, self.regular + self._tail.first_row(lane) + inner, chunk * size + inner % size)

    def reach(self, epoch: int, chunk: Ints) -> tuple[Ints, Ints]:
        """(first, last draw) between which sequences of each permuted chunk of an epoch are drawn, to a window or a lane's
        part of the tail; -1 for chunks that were drawn before."""
        if epoch < self.epoch:
            if self.before is None or self._rest is None:
                return np.full_like(chunk, -1), np.full_like(chunk, -1)
            rows = self._rest.rows(*self.before.reach(epoch, chunk))
            first, last = (np.where(row < 0, -1, self._carry.draw_of(np.maximum(row, 0))) for row in rows)
            return first, np.maximum(first, last)
        size, begin = self.sequences.size, self.carried + (epoch - self.epoch) * self.sequences.total
        window, lane = chunk // (self.window * self.lanes), chunk % self.lanes
        tail = np.flatnonzero(chunk * size >= self.regular)
        first = window * self.span * self.lanes + lane
        last = first + (self.span - 1) * self.lanes
        lane = self._tail.draw_of(chunk[tail] * size - self.regular) % self.lanes
        first[tail] = self.regular + lane
        last[tail] = first[tail] + (self._tail.per_lane(lane) - 1) * self.lanes
        return first + begin, last + begin

    @cached_property
    def _key(self) -> int:
        return key_of(self.sequences.seed, self.sequences.name, "window")


@dataclass(frozen=True, eq=False)
class Rest:
    """What is left of `dealt` draws, which begin with number `begin` of their assignment, after `drawn` of them: lane after
    lane, as rows."""

    begin: int
    dealt: Dealt
    drawn: int

    @property
    def count(self) -> int:
        return self.dealt.count - self.drawn

    @cached_property
    def _done(self) -> Ints:
        """[lanes]: draws of each lane that are done."""
        return self.dealt.per_lane(np.arange(self.dealt.lanes), self.drawn)

    @cached_property
    def _ends(self) -> Ints:
        """[lanes]: where the rows of each lane end."""
        return np.cumsum(self.dealt.per_lane(np.arange(self.dealt.lanes)) - self._done)

    def draw_of(self, row: Ints) -> Ints:
        """The draw, of the assignment before, of each row."""
        lane = np.searchsorted(self._ends, row, side="right")
        left = self.dealt.per_lane(lane) - self._done[lane]
        number = self._done[lane] + row - (self._ends[lane] - left)
        return self.begin + number * self.dealt.lanes + lane

    def rows(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """The first and last row that is left of the draws of a lane between two; -1 where none is."""
        number, lane = np.divmod(first - self.begin, self.dealt.lanes)
        done, left = self._done[lane], self.dealt.per_lane(lane) - self._done[lane]
        begin, end = self._ends[lane] - left, (last - self.begin) // self.dealt.lanes - done
        gone = (last < self.begin) | (end < 0)
        return np.where(gone, -1, begin + np.maximum(number - done, 0)), np.where(gone, -1, begin + end)
