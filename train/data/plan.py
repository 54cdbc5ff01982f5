"""The plan: what every step of a run is made of, decided before the run, and named by one sha256.

It is a row of segments, each with its mixture, batch and sequence length. `n` counts sequences of the full length
in the order that they are drawn; where a ramp has shorter ones, each is cut into as many as it holds.
`corpusmill.train.data.planning` makes plans, `corpusmill.train.data.order` computes which sequence number n is.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.lanes import LaneAssignment, lanes_of, layout, turns
from corpusmill.train.data.sequences import Sequences

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SourcePlan:
    """One source that the plan reads."""

    name: str
    tokens: int
    blocks: int
    index_xxh3: str  # of its index.json: names the data exactly
    sequences: Sequences


@dataclass(frozen=True)
class StageSpec:
    """A stage of the mixture as the config has it: from `first_step` on, `counts[i]` of the slots belong to source i."""

    first_step: int
    length: int  # tokens in a sequence
    sequences: int  # sequences of full length in a batch
    counts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Segment:
    """A stage and its position in the run: `n` is its first sequence number, `skips` are (step, batches)."""

    stage: StageSpec
    n: int
    skips: tuple[tuple[int, int], ...]
    slots: Ints  # source of each slot
    numbers: Ints  # number of each slot among those of its source
    assignments: dict[int, LaneAssignment]

    def skipped(self, step: int) -> int:
        """Batches of this segment skipped before the batch of `step`."""
        return sum(batches for at, batches in self.skips if at <= step)

    def start_of(self, step: int) -> int:
        return self.n + (step - self.stage.first_step + self.skipped(step)) * self.stage.sequences

    def lane_positions(self, upto: int) -> Ints:
        """[slots]: sequences that each slot has drawn once all sequence numbers below `upto` are."""
        whole, part = divmod(upto - self.n, len(self.slots))
        return whole + (np.arange(len(self.slots)) < part)

    def draws(self, source: int, upto: int) -> int:
        """Sequences of a source with numbers below `upto`, in this segment."""
        whole, part = divmod(upto - self.n, len(self.slots))
        return whole * self.stage.counts[source] + int((self.slots[:part] == source).sum())


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that `order` needs. Equal plans (by `sha256`) give the same batches on any machine."""

    seed: int
    sequence_length: int  # the full one, without a ramp
    window_blocks: int
    packing: str
    cross_documents: bool
    sources: tuple[SourcePlan, ...]
    stages: tuple[StageSpec, ...]
    skip: tuple[tuple[int, int], ...] = ()

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        found: list[Segment] = []
        n = 0
        before: dict[int, tuple[LaneAssignment, int]] = {}  # of each source, and what was drawn of it
        for stage, after in pairwise([*self.stages, None]):
            assert stage is not None
            last = after.first_step if after else 2**62
            skips = tuple((at, b) for at, b in self.skip if stage.first_step <= at < last)
            slots = layout(list(stage.counts), stage.sequences)
            numbers, assignments = np.empty_like(slots), {}
            for source, count in enumerate(stage.counts):
                mine = np.flatnonzero(slots == source)
                numbers[mine] = np.arange(count)
                if count:
                    sequences = self.sources[source].sequences
                    # Under a curriculum the draws of a source are one row, in its order, whatever the batch.
                    ordered = sequences.ordered
                    lanes = 1 if ordered else lanes_of(count, len(slots), stage.sequences)
                    order = turns(mine, lanes, stage.sequences)
                    window = 1 if ordered else self.window_blocks
                    fresh = LaneAssignment(lanes, window, sequences, order)
                    last_one = before.get(source)
                    assignments[source] = (
                        last_one[0].successor(last_one[1], lanes, order) if last_one else fresh
                    )
            segment = Segment(stage, n, skips, slots, numbers, assignments)
            found.append(segment)
            if after:
                n = segment.start_of(last - 1) + stage.sequences
                before |= {source: (one, segment.draws(source, n)) for source, one in assignments.items()}
        return tuple(found)

    @cached_property
    def starts(self) -> Ints:
        """First sequence number of each segment."""
        return np.array([segment.n for segment in self.segments], dtype=np.int64)

    def segment_of(self, step: int) -> Segment:
        """The segment of optimizer step `step`, counted from 1."""
        firsts = [stage.first_step for stage in self.stages]
        return self.segments[bisect_right(firsts, step) - 1]

    def start_of(self, step: int) -> int:
        """First sequence number of the batch of a step, after the data of any skip."""
        return self.segment_of(step).start_of(step)

    def end_of(self, step: int) -> int:
        """One past the last sequence number of the batch of a step; 0 for step 0."""
        return self.start_of(step) + self.segment_of(step).stage.sequences if step else 0

    def step_at(self, n: int) -> int:
        """The step that comes next when the sequence numbers below `n` are drawn."""
        segment = self.segments[int(np.searchsorted(self.starts, n, side="right")) - 1]
        first, passed = segment.stage.first_step, 0
        batches = -(-(n - segment.n) // segment.stage.sequences)
        for at, skipped in segment.skips:
            if first + batches - passed > at:
                # The part of the skip below n belongs to no step.
                passed += min(skipped, first + batches - passed - at)
        return first + batches - passed

    def numbers(self, steps: int | range, rank: int = 0, world: int = 1) -> Ints:
        """The sequence numbers of a rank's part of the batch of a step, or of the batches of steps of one segment."""
        steps = range(steps, steps + 1) if isinstance(steps, int) else steps
        segment = self.segment_of(steps.start)
        share = segment.stage.sequences // world
        starts = segment.start_of(steps.start) + np.arange(len(steps)) * segment.stage.sequences
        for at, batches in segment.skips:
            if at in steps[1:]:
                starts[at - steps.start :] += batches * segment.stage.sequences
        return (starts[:, None] + rank * share + np.arange(share)).ravel()

    def drawn(self, step: int) -> Ints:
        """[sources]: sequences drawn up to the end of a step, skipped or trained on."""
        return self._counted(step, skipped=True)

    def trained(self, step: int) -> Ints:
        """[sources]: sequences in the batches up to this step."""
        return self._counted(step, skipped=False)

    def tokens(self, step: int) -> int:
        """Tokens that the steps up to this one train on."""
        return int(self.trained(step).sum()) * self.sequence_length

    def _counted(self, step: int, skipped: bool) -> Ints:
        total = np.zeros(len(self.sources), dtype=np.int64)
        for segment, after in pairwise([*self.segments, None]):
            assert segment is not None
            first = segment.stage.first_step
            if first > step:
                break
            last = min(step, after.stage.first_step - 1) if after else step
            upto = segment.start_of(last) + segment.stage.sequences
            total += self._in(segment, segment.n, upto)
            if not skipped:
                for at, batches in segment.skips:
                    if at <= last:
                        begin = segment.start_of(at)
                        total -= self._in(segment, begin - batches * segment.stage.sequences, begin)
        return total

    def _in(self, segment: Segment, low: int, high: int) -> Ints:
        """[sources]: sequences with numbers in [low, high) of a segment."""
        drawn = segment.lane_positions(high) - segment.lane_positions(low)
        return np.bincount(segment.slots, weights=drawn, minlength=len(self.sources)).astype(np.int64)

    def as_json(self) -> dict[str, Any]:
        """What the hash covers; the data by the checksums of their indexes, wherever they are stored."""
        return {
            "v": 3,
            "seed": self.seed,
            "sequence_length": self.sequence_length,
            "window_blocks": self.window_blocks,
            "packing": self.packing,
            "cross_documents": self.cross_documents,
            "sources": {
                s.name: {
                    "tokens": s.tokens, "blocks": s.blocks, "sequences": s.sequences.total, "chunk": s.sequences.size,
                    "index_xxh3": s.index_xxh3, **s.sequences.about(),
                }
                for s in self.sources
            },
            "stages": {
                str(s.first_step): {
                    "sequence_length": s.length, "batch": s.sequences * (self.sequence_length // s.length),
                    "lanes": sum(s.counts),
                    "slots": {
                        source.name: count for source, count in zip(self.sources, s.counts, strict=True) if count
                    },
                }
                for s in self.stages
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
    """A plan's JSON without the stages, skips and sources that begin after `step`."""
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


def merged(stages: Iterable[StageSpec]) -> tuple[StageSpec, ...]:
    """Without those that change nothing."""
    kept: list[StageSpec] = []
    for stage in stages:
        if not kept or replace(kept[-1], first_step=stage.first_step) != stage:
            kept.append(stage)
    return tuple(kept)
