"""Which blocks stay: as few misses as the clairvoyant optimum, within the bytes, and nothing that is needed goes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.train.data.cache import Key, Memory, NextUse


def future(reads: list[Key]) -> NextUse:
    """`next_use` of a list of reads, the n-th of which is of sequence n."""

    def next_use(source: int, blocks: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.float64]:
        return np.array(
            [
                next((at for at in range(n, len(reads)) if reads[at] == (source, block)), np.inf)
                for block in blocks
            ]
        )

    return next_use


def misses(memory: Memory[str], reads: list[Key]) -> int:
    count = 0
    for n, key in enumerate(reads):
        memory.touch([key] if key in memory.kept else [], n)
        if key not in memory.kept:
            count += 1
            assert memory.take(key, 1, [key], ahead=False)
            memory.put(key, "data", 1, 1, unread=False)
            memory.touch([key], n)
            memory.trim([])
        assert memory.used == len(memory.kept) <= memory.capacity
    return count


def optimum(reads: list[Key], capacity: int) -> int:
    """Misses of the best order of evictions, found by trying all."""
    states = {frozenset[Key](): 0}
    for key in reads:
        after: dict[frozenset[Key], int] = {}
        for kept, count in states.items():
            options = [kept] if key in kept else [kept | {key}]
            if len(options[0]) > capacity:
                options = [options[0] - {gone} for gone in kept]
            for option in options:
                after[option] = min(after.get(option, len(reads)), count + (key not in kept))
        states = after
    return min(states.values())


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=24), st.integers(1, 5))
@settings(max_examples=60)
def test_no_order_of_evictions_misses_less(reads: list[Key], capacity: int) -> None:
    assert misses(Memory(capacity, future(reads)), reads) == optimum(reads, capacity)


def test_without_the_future_the_least_recently_used_goes() -> None:
    memory: Memory[str] = Memory(3, None)
    assert misses(memory, [(0, b) for b in (1, 2, 3, 1, 4, 2)]) == 5
    assert list(memory.kept) == [(0, 1), (0, 4), (0, 2)]


def test_reading_ahead_drops_nothing_that_is_needed_sooner() -> None:
    reads = [(0, b) for b in (1, 2, 3, 4, 5, 1)]
    memory: Memory[str] = Memory(3, future(reads))
    for key in reads[:3]:
        assert memory.take(key, 1, [], ahead=True)
        memory.put(key, "data", 1, 1, unread=True)
    assert not memory.take((0, 4), 1, [], ahead=True)  # 1, 2 and 3 come before it
    memory.touch(reads[:1], 0)
    memory.touch(reads[1:2], 1)  # 1 comes again at 5
    assert not memory.take((0, 9), 1, [], ahead=True)  # never read
    assert not memory.take((0, 4), 1, [(0, 1)], ahead=True)  # 1 is needed now
    assert memory.used == 3
    assert memory.take((0, 4), 1, [], ahead=True)
    assert list(memory.kept) == [(0, 2), (0, 3)] and memory.used == 3
    memory.give_back(1)
    assert memory.used == 2


def test_going_back_in_the_order_is_noticed() -> None:
    reads = [(0, b) for b in (1, 2, 3, 1, 2, 3, 3)]
    memory: Memory[str] = Memory(2, future(reads))
    misses(memory, reads)
    memory.touch([], 0)  # a run that is resumed at another place
    memory.take((0, 1), 1, [], ahead=False)
    memory.put((0, 1), "data", 1, 1, unread=False)
    memory.trim([])
    assert (0, 3) not in memory.kept  # 1 and 2 come first


def test_without_the_future_what_was_read_ahead_stays_for_its_use() -> None:
    memory: Memory[str] = Memory(3, None)
    for number in range(3):
        assert memory.take((0, number), 1, [], ahead=True)
        memory.put((0, number), "data", 1, 1, unread=True)
    assert not memory.take((0, 3), 1, [], ahead=True)
    memory.touch([(0, 1)], 0)
    assert memory.take((0, 3), 1, [], ahead=True) and (0, 1) not in memory.kept
