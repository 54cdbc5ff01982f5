"""Steps and sequence numbers: both ways, over stages, ramps and skips; what is behind, and what is to come."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.train.data.order import order
from corpusmill.train.data.plan import Plan, difference, past
from tests.train.data.toy import LENGTH, toy

PLANS = st.builds(
    lambda steps, counts, skips: toy(
        *((sum(steps[:i]) + 1, c) for i, c in enumerate(counts[: len(steps)])), skip=tuple(sorted(skips.items()))
    ),
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 2)), min_size=3, max_size=3),
    st.dictionaries(st.integers(1, 20), st.integers(1, 4), max_size=4),
)  # fmt: skip


@given(PLANS)
@settings(max_examples=100, deadline=None)
def test_each_step_takes_what_follows_the_step_before_and_what_is_skipped(plan: Plan) -> None:
    skip = dict(plan.skip)
    for step in range(1, 25):
        batch = plan.segment_of(step).stage.sequences
        assert plan.start_of(step) == plan.end_of(step - 1) + skip.get(step, 0) * batch
        assert plan.end_of(step) == plan.start_of(step) + batch
        assert plan.numbers(step).tolist() == list(range(plan.start_of(step), plan.end_of(step)))
        # every number from the end of the step before on belongs to this one, be it passed over
        for n in range(plan.end_of(step - 1), plan.start_of(step) + 1):
            assert plan.step_at(n) == step


@given(PLANS, st.integers(0, 24))
@settings(max_examples=100, deadline=None)
def test_cells_are_counted_as_the_order_deals_them(plan: Plan, step: int) -> None:
    drawn = np.bincount(order(plan, np.arange(plan.end_of(step))).source, minlength=3)
    assert plan.drawn(step).tolist() == drawn.tolist()
    numbers = np.concatenate([np.zeros(0, dtype=int), *(plan.numbers(s) for s in range(1, step + 1))])
    trained = np.bincount(order(plan, numbers).source, minlength=3)
    assert plan.trained(step).tolist() == trained.tolist() and plan.tokens(step) == trained.sum() * LENGTH


@given(PLANS)
@settings(max_examples=50, deadline=None)
def test_ranks_have_equal_parts_of_a_batch_side_by_side(plan: Plan) -> None:
    for step in range(1, 20):
        batch = plan.segment_of(step).stage.sequences
        for world in (n for n in range(1, batch + 1) if batch % n == 0):
            parts = [plan.numbers(step, rank, world) for rank in range(world)]
            assert np.concatenate(parts).tolist() == plan.numbers(step).tolist()
            assert all(len(a) == len(b) for a, b in pairwise(parts))


@given(PLANS, st.integers(1, 20), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_steps_of_one_segment_are_numbered_together(plan: Plan, first: int, count: int) -> None:
    steps = range(first, first + count)
    if plan.segment_of(first) is plan.segment_of(steps[-1]):
        each = [plan.numbers(step, 0, 1) for step in steps]
        assert plan.numbers(steps).tolist() == np.concatenate(each).tolist()


def test_the_hash_holds_the_data_and_the_order_but_not_where_the_data_lie() -> None:
    one = toy()
    assert one.sha256 == toy().sha256 and one == toy()
    others = [toy(seed=6), toy(chunk=3), toy(window=1), toy((1, (4, 2, 2))), toy(skip=((3, 1),))]
    assert len({plan.sha256 for plan in (one, *others)}) == 6


def test_past_leaves_out_what_begins_later() -> None:
    plan = toy((1, (4, 3, 0)), (10, (4, 2, 2)), skip=((4, 1), (12, 2))).as_json()
    assert past(plan, 9) == past(toy((1, (4, 3, 0)), skip=((4, 1),)).as_json(), 50) | {
        "sources": {name: plan["sources"][name] for name in ("s0", "s1")}
    }
    assert difference(past(plan, 9), past(plan, 12)) == [
        "sources.s2: absent -> there", "stages.10: absent -> there", "skip.12: absent -> 2"
    ]  # fmt: skip


def test_another_past_gives_another_order_and_another_future_does_not() -> None:
    plan, later = toy(), toy((1, (4, 3, 1)), (12, (1, 1, 6)), skip=((14, 1),))
    upto = plan.end_of(11)
    for a, b in zip(order(plan, np.arange(upto)), order(later, np.arange(upto)), strict=True):
        assert (a == b).all()
