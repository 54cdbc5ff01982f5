"""Plans over small made-up sources, without a shard set."""

from __future__ import annotations

import numpy as np

from corpusmill.train.data.plan import Plan, SourcePlan, StageSpec
from corpusmill.train.data.sequences import Sequences, runs

# Blocks of unequal length, one without a sequence; a source of equal ones; one of a single block.
UNEQUAL = ([5, 1, 0, 7, 3, 3, 2, 9], [4, 4, 4], [6])
LENGTH = 16


def toy(
    *stages: tuple[int, tuple[int, ...]],
    chunk: int = 2,
    window: int = 2,
    seed: int = 5,
    batch: int | None = None,
    blocks: tuple[list[int], ...] = UNEQUAL,
    skip: tuple[tuple[int, int], ...] = (),
) -> Plan:
    """`stages`: (first step, slots of each source); a batch is all slots, or `batch` of them."""
    made = [
        StageSpec(first, LENGTH, batch or sum(counts), counts)
        for first, counts in stages or ((1, (4, 3, 1)),)
    ]
    sources = tuple(
        SourcePlan(f"s{i}", 0, len(sequences), "", Sequences(f"s{i}", seed, chunk, *runs(sequences)))
        for i, sequences in enumerate(blocks[: len(made[0].counts)])
    )
    return Plan(seed, LENGTH, window, "windows", False, sources, tuple(made), skip)


def sequences_of(plan: Plan, source: int) -> set[tuple[int, int]]:
    """(block, sequence) of every sequence of a source."""
    sequences = plan.sources[source].sequences
    per_block = np.repeat(sequences.sequences, sequences.counts)
    return {(b, s) for b, count in enumerate(per_block) for s in range(count)}
