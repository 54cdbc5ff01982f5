"""The plan: what every step of a run is made of, decided before the run, and named by one sha256.

It is a row of segments, each with its mixture, batch and sequence length. `n` counts sequences of the full length
("cells") in the order that they are drawn; where a ramp has shorter ones, each cell is cut into as many as it holds.
`corpusmill.train.data.planning` makes plans, `corpusmill.train.data.order` says which sequence number n is.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.sequences import Cells
from corpusmill.train.data.order import Deal
from corpusmill.train.data.lanes import layout

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SourcePlan:
    """One source that the plan reads."""

    name: str
    tokens: int
    blocks: int
    index_xxh3: str  # of its index.json: names the data exactly
    cells: Cells


@dataclass(frozen=True)
class Stretch:
    """A segment as it is asked for: from `first_step` on, `counts[i]` of the slots belong to source i."""

    first_step: int
    length: int  # tokens in a sequence
    cells: int  # sequences of full length in a batch
    counts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Segment:
    """A stretch with its place in the run: `n` is its first sequence number, `skips` are (step, batches)."""

    stretch: Stretch
    n: int
    skips: tuple[tuple[int, int], ...]
    slots: Ints  # source of each slot
    lanes: Ints  # number of each slot among those of its source
    deals: dict[int, Deal]

    def skipped(self, step: int) -> int:
        """Batches of this segment passed over before the batch of `step`."""
        return sum(batches for at, batches in self.skips if at <= step)

    def start_of(self, step: int) -> int:
        return self.n + (step - self.stretch.first_step + self.skipped(step)) * self.stretch.cells

    def turns(self, upto: int) -> Ints:
        """[slots]: cells that each slot has come to when the sequence numbers below `upto` are drawn."""
        whole, part = divmod(upto - self.n, len(self.slots))
        return whole + (np.arange(len(self.slots)) < part)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that `order` needs. Equal plans (by `sha256`) give the same batches on any machine."""

    seed: int
    sequence_length: int  # the full one, of a cell
    window_blocks: int
    packing: str
    cross_documents: bool
    sources: tuple[SourcePlan, ...]
    stretches: tuple[Stretch, ...]
    skip: tuple[tuple[int, int], ...] = ()

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        found: list[Segment] = []
        n, rests = (
            0,
            dict[int, tuple[Deal, Ints]](),
        )  # rests: each source's last deal, and how far its lanes came
        for stretch, after in pairwise([*self.stretches, None]):
            assert stretch is not None
            last = after.first_step if after else 2**62
            skips = tuple((at, b) for at, b in self.skip if stretch.first_step <= at < last)
            slots = layout(list(stretch.counts), stretch.cells)
            lanes, deals = np.empty_like(slots), {}
            for source, count in enumerate(stretch.counts):
                lanes[slots == source] = np.arange(count)
                if count:
                    before = rests.get(source)
                    fresh = Deal(count, self.window_blocks, self.sources[source].cells)
                    deals[source] = before[0].successor(before[1], count) if before else fresh
            segment = Segment(stretch, n, skips, slots, lanes, deals)
            found.append(segment)
            if after:
                n = segment.start_of(last - 1) + stretch.cells
                turns = segment.turns(n)
                rests.update({source: (deal, turns[slots == source]) for source, deal in deals.items()})
        return tuple(found)

    @cached_property
    def starts(self) -> Ints:
        """First sequence number of each segment."""
        return np.array([segment.n for segment in self.segments], dtype=np.int64)

    def segment_of(self, step: int) -> Segment:
        """The segment of optimizer step `step`, counted from 1."""
        firsts = [stretch.first_step for stretch in self.stretches]
        return self.segments[bisect_right(firsts, step) - 1]

    def start_of(self, step: int) -> int:
        """First sequence number of the batch of a step; what a skip passes over lies before it."""
        return self.segment_of(step).start_of(step)

    def end_of(self, step: int) -> int:
        """One past its last; 0 for step 0."""
        return self.start_of(step) + self.segment_of(step).stretch.cells if step else 0

    def step_at(self, n: int) -> int:
        """The step that comes next when the sequence numbers below `n` are drawn."""
        segment = self.segments[int(np.searchsorted(self.starts, n, side="right")) - 1]
        first, passed = segment.stretch.first_step, 0
        batches = -(-(n - segment.n) // segment.stretch.cells)
        for at, skipped in segment.skips:
            if first + batches - passed > at:
                # What of the skip lies below n belongs to no step.
                passed += min(skipped, first + batches - passed - at)
        return first + batches - passed

    def numbers(self, steps: int | range, rank: int = 0, world: int = 1) -> Ints:
        """The sequence numbers of a rank's part of the batch of a step, or of the batches of steps of one segment."""
        steps = range(steps, steps + 1) if isinstance(steps, int) else steps
        segment = self.segment_of(steps.start)
        share = segment.stretch.cells // world
        starts = segment.start_of(steps.start) + np.arange(len(steps)) * segment.stretch.cells
        for at, batches in segment.skips:
            if at in steps[1:]:
                starts[at - steps.start :] += batches * segment.stretch.cells
        return (starts[:, None] + rank * share + np.arange(share)).ravel()

    def drawn(self, step: int) -> Ints:
        """[sources]: cells that are drawn up to the end of a step, passed over or trained on."""
        return self._counted(step, skipped=True)

    def trained(self, step: int) -> Ints:
        """[sources]: cells that the batches of the steps up to this one hold."""
        return self._counted(step, skipped=False)

    def tokens(self, step: int) -> int:
        """Tokens that the steps up to this one train on."""
        return int(self.trained(step).sum()) * self.sequence_length

    def _counted(self, step: int, skipped: bool) -> Ints:
        total = np.zeros(len(self.sources), dtype=np.int64)
        for segment, after in pairwise([*self.segments, None]):
            assert segment is not None
            first = segment.stretch.first_step
            if first > step:
                break
            last = min(step, after.stretch.first_step - 1) if after else step
            upto = segment.start_of(last) + segment.stretch.cells
            total += self._in(segment, segment.n, upto)
            if not skipped:
                for at, batches in segment.skips:
                    if at <= last:
                        begin = segment.start_of(at)
                        total -= self._in(segment, begin - batches * segment.stretch.cells, begin)
        return total

    def _in(self, segment: Segment, low: int, high: int) -> Ints:
        """[sources]: cells with numbers in [low, high) of a segment."""
        turns = segment.turns(high) - segment.turns(low)
        return np.bincount(segment.slots, weights=turns, minlength=len(self.sources)).astype(np.int64)

    def as_json(self) -> dict[str, Any]:
        """What the hash is taken of. The data are in it by the checksums of their indexes, their place is not."""
        return {
            "v": 2,
            "seed": self.seed,
            "sequence_length": self.sequence_length,
            "window_blocks": self.window_blocks,
            "packing": self.packing,
            "cross_documents": self.cross_documents,
            "sources": {
                s.name: {
                    "tokens": s.tokens, "blocks": s.blocks, "sequences": s.cells.total, "chunk": s.cells.size,
                    "index_xxh3": s.index_xxh3,
                }
                for s in self.sources
            },
            "stages": {
                str(s.first_step): {
                    "sequence_length": s.length, "batch": s.cells * (self.sequence_length // s.length),
                    "lanes": sum(s.counts),
                    "slots": {
                        source.name: count for source, count in zip(self.sources, s.counts, strict=True) if count
                    },
                }
                for s in self.stretches
            },
            "skip": {str(step): batches for step, batches in self.skip},
        }  # fmt: skip

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)


def past(plan: dict[str, Any], step: int) -> dict[str, Any]:
    """Of a plan's JSON, what the steps up to `step` are made of: stages and skips that begin later are left out."""
    read = {
        name
        for first, stage in plan["stages"].items()
        if int(first) <= max(step, 1)
        for name in stage["slots"]
    }
    return {
        **plan,
        "sources": {name: source for name, source in plan["sources"].items() if name in read},
        "stages": _upto(plan["stages"], max(step, 1)),
        "skip": _upto(plan["skip"], step),
    }


def _upto(by_step: dict[str, Any], step: int) -> dict[str, Any]:
    return {first: value for first, value in by_step.items() if int(first) <= step}


def difference(before: dict[str, Any], after: dict[str, Any], prefix: str = "") -> list[str]:
    """What differs between two plans' JSON, as `key: old -> new`."""
    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += difference(old, new, f"{prefix}{key}.")
        elif old != new:
            lines.append(f"{prefix}{key}: {_short(old)} -> {_short(new)}")
    return lines


def _short(value: Any) -> str:
    return "absent" if value is None else "there" if isinstance(value, dict) else str(value)


def merged(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Without those that change nothing."""
    kept: list[Stretch] = []
    for stretch in stretches:
        before = kept[-1] if kept else None
        if not before or (before.length, before.cells, before.counts) != (
            stretch.length, stretch.cells, stretch.counts
        ):  # fmt: skip
            kept.append(stretch)
    return tuple(kept)
