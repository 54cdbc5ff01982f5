"""The order backwards: never later than a block is read, and never "never" for one that is."""

from __future__ import annotations

import numpy as np
import pytest

from corpusmill.train.data.lanes import LaneAssignment
from corpusmill.train.data.order import Future, order
from corpusmill.train.data.plan import Plan
from tests.train.data.toy import toy


@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 2), (3, 4)])
@pytest.mark.parametrize(
    "plan",
    [
        toy((1, (8, 4)), chunk=5, window=2, blocks=([10] * 64, [15] * 40)),
        toy((1, (8, 4)), (20, (4, 4)), chunk=10, window=2, blocks=([10] * 64, [20] * 40)),
        toy((1, (16, 8)), batch=12, chunk=4, window=3, blocks=([8] * 64, [4] * 40)),
        toy((1, (37, 23)), batch=12, chunk=4, window=2, blocks=([8] * 64, [4] * 40)),
        toy((1, (37, 23)), (20, (25, 11)), batch=12, chunk=4, window=2, blocks=([8] * 64, [4] * 40)),
    ],
    ids=["one stage", "two stages", "two batches", "five batches", "five, then three, within them"],
)
def test_it_is_a_bound_that_is_tight_to_a_window(plan: Plan, rank: int, world: int) -> None:
    future = Future(plan, rank, world)
    numbers = np.concatenate([plan.numbers(step, rank, world) for step in range(1, 160)])
    at = order(plan, numbers)
    exact = 0
    for now in range(0, 600, 37):
        segment = plan.segments[int(np.searchsorted(plan.starts, now, "right")) - 1]
        for source, blocks in enumerate(plan.sources):
            bound = future.next_use(source, np.arange(blocks.blocks), now)
            assert bound.shape == (blocks.blocks,) and (bound >= now).all()
            assignment = segment.assignments[source]
            window = assignment.span * len(segment.slots)  # sequence numbers of a window
            cut = cut_off(assignment)
            for block in range(blocks.blocks):
                reads = numbers[(at.source == source) & (at.block == block) & (numbers >= now)]
                if (
                    len(reads)
                    and block not in cut
                    and not (world > 1 and ends_an_epoch(plan, source, int(reads[0])))
                    and reads[0] < now + 2 * window
                    and (plan.step_at(int(reads[0])) < 20) == (segment.n == 0)
                ):
                    assert bound[block] <= reads[0]
                    exact += bound[block] > reads[0] - window
    assert exact > 40


def ends_an_epoch(plan: Plan, source: int, n: int) -> bool:
    """Whether an epoch ends in the cycle of a sequence, so that any rank may read it."""
    segment = plan.segments[int(np.searchsorted(plan.starts, n, "right")) - 1]
    assignment = segment.assignments[source]
    made = segment.draws(source, n)
    found = assignment._ends_an_epoch(np.array([made // len(assignment.turns)]))
    return bool(found[0]) and not assignment._in_order


def cut_off(assignment: LaneAssignment) -> set[int]:
    """Blocks of the draws of a cycle that the end of the segment before cut off."""
    if assignment.before is None or assignment._rest is None:
        return set()
    epoch, place = assignment.before._locate(assignment._rest.open)
    return set(assignment.sequences.at(epoch, place)[0].tolist())


def test_blocks_that_another_rank_reads_are_not_wanted_soon() -> None:
    plan = toy((1, (8,)), chunk=10, window=1, blocks=([10] * 64,))
    bound = [Future(plan, rank, 2).next_use(0, np.arange(64), 0) for rank in (0, 1)]
    for rank in (0, 1):
        at = order(plan, plan.numbers(1, rank, 2))
        numbers = plan.numbers(1, rank, 2)
        assert (bound[rank][at.block] == numbers).all() and (bound[1 - rank][at.block] > numbers).all()
