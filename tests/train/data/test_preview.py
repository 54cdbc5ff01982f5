"""What a plan will fetch, beside what a walk over every read finds."""

from __future__ import annotations

import numpy as np
import pytest

from corpusmill.train.data.inspect import reads
from tests.train.data.toy import LENGTH, toy

EVEN = ([10] * 640,)


@pytest.mark.parametrize("world", [1, 2, 8])
def test_with_memory_enough_every_block_is_fetched_once_by_one_rank(world: int) -> None:
    plan = toy((1, (8,)), chunk=10, window=2, blocks=EVEN)
    found = reads(plan, [10 * LENGTH * 2], 2, world, 1 << 20)
    assert found.fetched == pytest.approx(1.0) and found.requests == pytest.approx(0.1)
    assert found.resident == 8 // world * 2 * 10 * LENGTH * 2 and found.fits


def test_with_too_little_memory_it_says_how_often_blocks_come_again() -> None:
    plan = toy((1, (8,)), chunk=10, window=2, blocks=EVEN)
    found = reads(plan, [np.full(640, 10 * LENGTH * 2)], 2, 1, 4 * 10 * LENGTH * 2)
    assert found.fetched > 4 and not found.fits


def test_the_last_stage_is_walked_beyond_the_rests_of_the_one_before() -> None:
    plan = toy((1, (8,)), (5, (4,)), chunk=10, window=2, blocks=EVEN)
    found = reads(plan, [10 * LENGTH * 2], 2, 4, 1 << 20)
    assert found.fetched == pytest.approx(1.0) and found.resident == 2 * 10 * LENGTH * 2


def test_lanes_beyond_a_batch_are_walked_too() -> None:
    plan = toy((1, (8, 4)), batch=6, chunk=10, window=2, blocks=([10] * 640, [10] * 640))
    found = reads(plan, [10 * LENGTH * 2] * 2, 2, 2, 1 << 20)
    assert found.fetched == pytest.approx(1.0)
