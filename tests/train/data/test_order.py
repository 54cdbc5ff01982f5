"""The order of a run: exactly once per epoch, the mixture exact in every batch, nothing but n."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.train.data.inspect import reads
from corpusmill.train.data.lanes import lanes_of, layout, turns
from corpusmill.train.data.order import order
from corpusmill.train.data.plan import Plan
from tests.conftest import IMPORT_PATH
from tests.train.data.toy import sequences_of, toy


def drawn(plan: Plan, steps: int) -> list[list[tuple[int, int, int]]]:
    """Of each source, the (epoch, block, sequence) of the first steps, in the order in which they are drawn."""
    at = order(plan, np.arange(plan.end_of(steps)))
    found = []
    for source in range(len(plan.sources)):
        mine = at.source == source
        found.append(list(zip(*(c[mine].tolist() for c in (at.epoch, at.block, at.sequence)), strict=True)))
    return found


def assert_exact(plan: Plan, steps: int, epochs: int = 1) -> None:
    """Every sequence of an epoch is drawn once before any of the next is drawn."""
    for source, mine in enumerate(drawn(plan, steps)):
        there = sequences_of(plan, source)
        assert len(mine) >= epochs * len(there)
        for epoch, begin in enumerate(range(0, len(mine), len(there))):
            one = mine[begin : begin + len(there)]
            assert {e for e, _, _ in one} == {epoch}
            found = {(b, s) for _, b, s in one}
            assert len(found) == len(one) and (found == there if len(one) == len(there) else found <= there)


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("chunk", [1, 2, 3, 6])
def test_every_sequence_comes_once_per_epoch_and_source(window: int, chunk: int) -> None:
    assert_exact(toy(window=window, chunk=chunk), 160, epochs=2)


def test_a_source_that_is_smaller_than_its_lanes() -> None:
    assert_exact(toy((1, (40, 30, 20)), chunk=1), 20, epochs=5)


STRETCHES = st.lists(
    st.tuples(st.integers(1, 30), st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))),
    min_size=1, max_size=6,
).filter(lambda found: all(any(counts) for _, counts in found))  # fmt: skip


@given(STRETCHES, st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**30))
@settings(max_examples=150, deadline=None)
def test_a_change_of_mixture_or_batch_neither_loses_nor_repeats(
    changes: list[tuple[int, tuple[int, int, int]]], chunk: int, window: int, seed: int
) -> None:
    first, stages = 1, []
    for steps, counts in changes:
        stages.append((first, counts))
        first += steps
    stages.append((first, (3, 2, 2)))  # read long enough afterwards for whatever was left to come
    assert_exact(toy(*stages, chunk=chunk, window=window, seed=seed), first + 150, epochs=1)


SIX = st.lists(
    st.tuples(st.integers(1, 30), st.tuples(st.integers(0, 13), st.integers(0, 7), st.integers(0, 5))),
    min_size=1, max_size=6,
).filter(lambda found: all(any(counts) for _, counts in found))  # fmt: skip


@given(SIX, st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**30))
@settings(max_examples=150, deadline=None)
def test_nor_does_one_within_the_batches_that_have_the_mixture_together(
    changes: list[tuple[int, tuple[int, int, int]]], chunk: int, window: int, seed: int
) -> None:
    """Batches of 6 of more slots, whose draws are made in an order of their own."""
    first, stages = 1, []
    for steps, (a, b, c) in changes:
        stages.append((first, (a, b, c + -(a + b + c) % 6)))
        first += steps
    stages.append((first, (13, 8, 3)))
    assert_exact(toy(*stages, batch=6, chunk=chunk, window=window, seed=seed), first + 150, epochs=1)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 12))
def test_every_lane_has_as_many_draws_of_a_cycle_and_neighbouring_slots(
    count: int, batches: int, batch: int
) -> None:
    total = batches * batch
    count = min(count, total)
    places = np.flatnonzero(layout([count, total - count], batch) == 0)
    lanes = lanes_of(count, total, batch)
    assert count * batch / total <= lanes <= max(1, -(-count * batch // total) * 3 / 2)
    found = turns(places, lanes, batch)
    assert sorted(found.tolist()) == list(range(len(found))) and len(found) % lanes == len(found) % count == 0
    assert np.bincount(found % lanes, minlength=lanes).tolist() == [len(found) // lanes] * lanes
    if batches == 1:
        assert (found == np.arange(count)).all(), "a lane for each slot, in the order of the slots"
    where = np.tile(places % batch, len(found) // count)
    spread = [where[found % lanes == lane] for lane in range(lanes)]
    assert all(a.max() <= b.min() for a, b in pairwise(spread)), "a lane lies before the next one"


@pytest.mark.parametrize("world", [1, 4])
def test_an_exact_mixture_opens_no_more_blocks_than_a_rounded_one(world: int) -> None:
    blocks = tuple([64] * 4_000 for _ in range(3))
    rounded = toy((1, (5, 7, 4)), chunk=64, window=2, blocks=blocks)
    exact = toy((1, (24, 36, 20)), batch=16, chunk=64, window=2, blocks=blocks)
    found = [reads(plan, [1_000] * 3, 1, world, 1 << 30) for plan in (rounded, exact)]
    assert found[1].resident <= 1.5 * found[0].resident and found[1].fetched < 1.3, found


def test_each_batch_holds_exactly_the_slots_of_each_source_in_its_stage() -> None:
    plan = toy((1, (4, 3, 1)), (11, (2, 2, 2)), (17, (0, 5, 3)))
    for step in range(1, 40):
        counts = np.bincount(order(plan, plan.numbers(step)).source, minlength=3)
        assert counts.tolist() == ([4, 3, 1] if step < 11 else [2, 2, 2] if step < 17 else [0, 5, 3])


def test_with_more_lanes_than_a_batch_each_batch_is_within_one_and_all_together_exact() -> None:
    plan = toy((1, (13, 8, 3)), batch=6)
    for lane_position in range(5):
        found = order(plan, np.arange(24) + 24 * lane_position).source
        assert np.bincount(found).tolist() == [13, 8, 3]
        for part in np.split(found, 4):
            assert (abs(np.bincount(part, minlength=3) - np.array([13, 8, 3]) / 4) < 1).all()


@given(st.lists(st.integers(0, 10_000), max_size=100))
@settings(max_examples=50, deadline=None)
def test_an_address_depends_on_its_n_alone(numbers: list[int]) -> None:
    plan = toy((1, (4, 3, 1)), (9, (1, 1, 4)), (20, (3, 3, 3)))
    together = order(plan, np.array(numbers, dtype=np.int64))
    for place, n in enumerate(numbers):
        alone = order(plan, n)
        assert [int(column[0]) for column in alone] == [int(column[place]) for column in together]


def test_epochs_and_seeds_give_other_orders() -> None:
    def first_source(seed: int) -> dict[int, list[tuple[int, int]]]:
        plan = toy(seed=seed)
        at = order(plan, np.arange(plan.end_of(30)))
        found: dict[int, list[tuple[int, int]]] = {}
        for s, e, b, c in zip(*(column.tolist() for column in at), strict=True):
            if s == 0:
                found.setdefault(e, []).append((b, c))
        return found

    five, six = first_source(5), first_source(6)
    assert five[0] != five[1] and sorted(five[0]) == sorted(five[1])
    assert five[0] != six[0] and sorted(five[0]) == sorted(six[0])


def test_another_source_changes_no_order_of_the_first() -> None:
    two, three = toy((1, (4, 3))), toy((1, (4, 3, 1)))
    a, b = order(two, np.arange(7 * 50)), order(three, np.arange(8 * 50))
    lists = [
        sorted(zip(*(c[at.source == 0].tolist() for c in (at.epoch, at.block, at.sequence)), strict=True))
        for at in (a, b)
    ]
    assert lists[0] == lists[1]


@pytest.mark.parametrize("world", [2, 4, 8])
def test_ranks_read_their_own_blocks_alone(world: int) -> None:
    """Fetch amplification: with as many chunks as lanes want, every block is read by one rank in an epoch."""
    plan = toy((1, (8,)), chunk=10, window=2, blocks=([10] * 64,))
    owners: dict[tuple[int, int], set[int]] = {}
    for step in range(1, 81):  # one epoch: 640 sequences, 8 a step
        for rank in range(world):
            at = order(plan, plan.numbers(step, rank, world))
            for epoch, block in zip(at.epoch.tolist(), at.block.tolist(), strict=True):
                owners.setdefault((epoch, block), set()).add(rank)
    assert len(owners) == 64 and all(len(ranks) == 1 for ranks in owners.values())


def test_the_order_survives_hash_seeds() -> None:
    code = (
        "from tests.train.data.toy import toy; import numpy as np; from corpusmill.train.data.order import order;"
        "print(toy().sha256, np.concatenate(order(toy(), np.arange(500))).sum())"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": IMPORT_PATH},
                       capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1


def test_the_order_is_the_same_for_ever() -> None:
    """These may never change: a run of last year must resume today."""
    at = order(toy((1, (4, 3, 1)), (5, (2, 2, 2))), np.arange(0, 80, 9))
    assert [column.tolist() for column in at] == PINNED


PINNED = [
    [0, 1, 0, 1, 1, 1, 1, 1, 1],
    [0, 0, 0, 0, 1, 1, 1, 1, 2],
    [3, 2, 7, 0, 1, 2, 1, 2, 1],
    [3, 0, 5, 0, 3, 2, 0, 1, 0],
]
