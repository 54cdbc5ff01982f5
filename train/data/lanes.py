"""The slots of a batch that belong to each source, and the order in which a source's sequences are drawn for them.

A source's draws go to its lanes in turn. Each lane has its own chunks, some at a time, whose sequences are permuted, so that a
rank reads few blocks at once; what does not fill a round of all lanes comes at the end of the epoch, dealt to them in parts. So
every sequence is drawn once before any is drawn again. Slots are laid out so that every part of a batch has the mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.sequences import Sequences
from corpusmill.train.data.shuffle import key_of, keys_of, permute

Ints = npt.NDArray[np.int64]


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


def lanes_of(count: int, slots: int, batch: int) -> int:
    """Lanes of a source that has `count` of `slots` slots, of which a batch is `batch`: as many as its sequences in a batch,
    or up to half as many more where its draws are then dealt to them in a shorter cycle."""
    least = -(-count * batch // slots)
    return min(range(least, least * 3 // 2 + 1), key=lambda lanes: (lanes // math.gcd(count, lanes), lanes))


def turns(places: Ints, lanes: int, batch: int) -> Ints:
    """In which order the draws of a cycle are made: int64 [cycle], for each place in time the number of the draw, by which
    lane number i modulo `lanes` has it. `places`: the source's slots.

    The cycle is the shortest of whole rounds of slots that deals equally many draws to every lane. A lane has slots that lie
    next to each other within their batches, so that a rank reads its blocks and no other does.
    """
    rounds = lanes // math.gcd(len(places), lanes)
    time = np.arange(rounds * len(places))
    by_place = np.lexsort((time, np.tile(places % batch, rounds)))
    lane = np.empty_like(time)
    lane[by_place] = time // (len(time) // lanes)
    found = np.empty_like(time)
    found[np.lexsort((time, lane))] = time % (len(time) // lanes)
    return found * lanes + lane


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
    `drawn` of its draws, had left of its epoch; then whole epochs, from `epoch` on.

    Draws are made in the order of `turns`, cycle by cycle; in that of their numbers in a cycle in which an epoch ends, so that
    none of the next comes before. `made` counts them in time, `draw` by number.
    """

    lanes: int
    window: int  # chunks
    sequences: Sequences
    turns: Ints
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
        if not self.before.is_within(self.drawn):
            return None
        begin, count = self.before.phase(self.drawn)
        cycle, part = divmod(self.drawn, len(self.before.turns))
        dealt, first = Dealt(count, self.before.lanes), cycle * len(self.before.turns)
        if not part or self.before._ends_an_epoch(np.array([cycle]))[0]:
            return Rest(begin, dealt, self.drawn - begin, np.zeros(0, dtype=np.int64))
        return Rest(begin, dealt, first + len(self.before.turns) - begin, first + self.before.turns[part:])

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

    def successor(self, drawn: int, lanes: int, turns: Ints) -> LaneAssignment:
        """The assignment of the source's next segment, after `drawn` draws of this one."""
        epoch = self.epoch_of(drawn) + self.is_within(drawn)
        return LaneAssignment(lanes, self.window, self.sequences, turns, epoch, self, drawn)

    def draw_at(self, made: Ints) -> Ints:
        """The number of each draw, by how many were made before it."""
        return self._in_cycles(made, self.turns)

    def made_before(self, draw: Ints) -> Ints:
        """The inverse of `draw_at`."""
        return self._in_cycles(draw, self._inverse)

    @cached_property
    def _inverse(self) -> Ints:
        return np.argsort(self.turns)

    @cached_property
    def _in_order(self) -> bool:
        return bool((np.diff(self.turns) > 0).all())

    def _in_cycles(self, numbers: Ints, within: Ints) -> Ints:
        if self._in_order:
            return numbers
        cycle, place = np.divmod(numbers, len(within))
        return np.where(self._ends_an_epoch(cycle), numbers, cycle * len(within) + within[place])

    def _ends_an_epoch(self, cycle: Ints) -> npt.NDArray[np.bool_]:
        """Whether draws of two epochs, or of the rest of one and the next, are in a cycle."""
        first = cycle * len(self.turns) - self.carried
        last, total = first + len(self.turns) - 1, self.sequences.total
        return np.where(first < 0, last >= 0, first // total != last // total)

    def locate(self, made: Ints) -> tuple[Ints, Ints]:
        """(epoch, place in its order of chunks: see `Sequences.at`) of each draw."""
        return self._locate(self.draw_at(made))

    def _locate(self, draw: Ints) -> tuple[Ints, Ints]:
        epoch, number = np.divmod(draw - self.carried, self.sequences.total)
        epoch += self.epoch
        if not self.carried or draw.min(initial=self.carried) >= self.carried:
            return epoch, self._places(epoch, number)
        assert self.before is not None and self._rest is not None
        place = np.empty_like(draw)
        now, then = np.flatnonzero(draw >= self.carried), np.flatnonzero(draw < self.carried)
        place[now] = self._places(epoch[now], number[now])
        epoch[then], place[then] = self.before._locate(self._rest.draw_of(self._carry.row_of(draw[then])))
        return epoch, place

    def _places(self, epoch: Ints, number: Ints) -> Ints:
        """Of draws of whole epochs: `number` counts them within each."""
        size = self.sequences.size
        key = epoch * self.sequences.total  # and the first draw of a window, or part of the tail
        turn, lane = np.divmod(number, self.lanes)
        window, inner = np.divmod(turn, self.span)
        inner = permute(inner, self.span, keys_of(self._key, key + window * (self.span * self.lanes) + lane))
        chunk, inner = np.divmod(inner, size)
        place: Ints = ((window * self.window + chunk) * self.lanes + lane) * size + inner
        tail = np.flatnonzero(number >= self.regular)
        if len(tail):
            lane, turn = lane[tail], turn[tail] - self.regular // self.lanes
            keys = keys_of(self._key, key[tail] + self.regular + lane)
            row = permute(turn, self._tail.per_lane(lane), keys)
            place[tail] = self.regular + self._tail.first_row(lane) + row
        return place

    def reach(self, epoch: int, chunk: Ints) -> tuple[Ints, Ints]:
        """(first, last number of the draws) between which sequences of each permuted chunk of an epoch are drawn, to a window or a lane's
        part of the tail; -1 for chunks that were drawn before."""
        if epoch < self.epoch:
            if self.before is None or self._rest is None:
                return np.full_like(chunk, -1), np.full_like(chunk, -1)
            rows = self._rest.rows(*self.before.reach(epoch, chunk))
            first, last = (np.where(row < 0, -1, self._carry.draw_of(np.maximum(row, 0))) for row in rows)
            return first, last
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
    """What is left of `dealt` draws, which begin with number `begin` of their assignment, after the first `drawn` of them, of
    which `open` were not made: these, and then the others, each lane after lane, as rows."""

    begin: int
    dealt: Dealt
    drawn: int
    open: Ints

    @property
    def count(self) -> int:
        return self.dealt.count - self.drawn + len(self.open)

    @cached_property
    def _open(self) -> Ints:
        """By lane, then number: its place among all draws in that order."""
        number, lane = np.divmod(self.open - self.begin, self.dealt.lanes)
        return np.sort(lane * self.dealt.count + number)

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
        if len(self._open):
            lane, number = np.divmod(self._open[np.minimum(row, len(self._open) - 1)], self.dealt.count)
            opened = self.begin + number * self.dealt.lanes + lane
            rest = replace(self, open=self.open[:0]).draw_of(np.maximum(row - len(self._open), 0))
            return np.where(row < len(self._open), opened, rest)
        lane = np.searchsorted(self._ends, row, side="right").clip(max=self.dealt.lanes - 1)
        left = self.dealt.per_lane(lane) - self._done[lane]
        number = self._done[lane] + row - (self._ends[lane] - left)
        return self.begin + number * self.dealt.lanes + lane

    def rows(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """The first and last row that is left of the draws of a lane between two, without those that are `open`; -1 where
        none is."""
        number, lane = np.divmod(first - self.begin, self.dealt.lanes)
        done, left = self._done[lane], self.dealt.per_lane(lane) - self._done[lane]
        begin = self._ends[lane] - left + len(self._open)
        end = (last - self.begin) // self.dealt.lanes - done
        gone = (last < self.begin) | (end < 0)
        return np.where(gone, -1, begin + np.maximum(number - done, 0)), np.where(gone, -1, begin + end)
