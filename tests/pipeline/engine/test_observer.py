"""What is logged of workers, from what a scheduler says of them; with real processes: `tests/operations/test_cluster.py`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.engine.observer import (
    SILENT,
    SLOW_SECONDS,
    SLOW_TIMES,
    Observer,
    Seen,
    Step,
    name_of,
)

A, B = "tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000"


def step(seconds: Sequence[float] = (), sizes: Sequence[int] | None = None, under_way: int = 1) -> Step:
    """A step with tasks that took so long, and others under way: `key0` and so on."""
    count = len(seconds)
    items = [f"part{index}" for index in range(count + under_way)]
    made = Step("filter", items, sizes, finished=list(enumerate(seconds)))
    made.keys = {f"key{number}": count + number for number in range(under_way)}
    return made


def test_lost_and_joined() -> None:
    observer = Observer()
    assert observer.joined([A, B]) == [f"worker {A} joined: 1 now", f"worker {B} joined: 2 now"]
    observer.hosts[A] = "node1"
    assert observer.lost({A: 2}) == [f"worker {A} on node1 was lost: 1 remains, 2 tasks will be repeated"]
    assert observer.lost({B: 0}) == [f"worker {B} was lost: 0 remain"]


def test_many_at_once_are_one_line() -> None:
    observer = Observer()
    many = [f"tcp://10.0.1.{number}:1" for number in range(40)]
    (line,) = observer.joined(many)
    assert line == f"40 workers joined ({', '.join(many[:3])}, …): 40 now"
    (line,) = observer.lost(dict.fromkeys(many[:39], 1))
    assert line.startswith("39 workers were lost (") and line.endswith(
        ": 1 remains, 39 tasks will be repeated"
    )


def test_silence_is_counted_by_our_clock() -> None:
    """The worker's clock is a year ahead, and that of another one stands still without meaning anything else."""
    observer = Observer()
    year = 365 * 86_400.0
    for now in range(0, 600, 5):
        assert observer.look(now, {A: Seen(year + now)}, {}, None) == []
    found = {
        now: lines
        for now in range(600, 1200, 5)
        if (lines := observer.look(now, {A: Seen(year + 595)}, {A: ["key0"]}, step()))
    }
    first = f"worker {A}: no sign of life for {SILENT:.0f} s (stopped, overloaded or cut off);"
    assert found[595 + int(SILENT)] == [f"{first} it has 1 task, repeated if the scheduler gives it up"]
    assert len(found) == 4  # 60, 120, 240 and 480 s: ever less often
    assert observer.look(1200, {A: Seen(year + 1200)}, {}, None) == []
    assert observer.look(1200 + SILENT, {A: Seen(year + 1200)}, {}, None) != []


def test_a_slow_task_in_relation_to_the_others() -> None:
    observer, slow = Observer(), step([10.0, 12.0, 14.0, 1000.0])
    observer.hosts[A] = "node1"
    limit = SLOW_TIMES * 13.0
    lines = {
        now: found
        for now in range(0, 300, 5)
        if (found := observer.look(now, {A: Seen(now)}, {A: ["key0"]}, slow))
    }
    assert min(lines) == limit and len(lines) == 3  # and when the time has doubled
    assert lines[65] == [
        f"filter: part4 runs for 65 s on worker {A} on node1; the median of 4 tasks is 13.0 s"
    ]


def test_a_large_task_may_take_longer() -> None:
    def named_after(sizes: Sequence[int] | None) -> int:
        observer, slow = Observer(), step([10.0, 20.0, 30.0], sizes)
        return next(
            now for now in range(0, 10_000, 5) if observer.look(now, {A: Seen(now)}, {A: ["key0"]}, slow)
        )

    assert named_after(None) == SLOW_TIMES * 20
    assert named_after([10, 20, 30, 400]) == SLOW_TIMES * 400
    assert named_after([10, 20, 30, 2]) == SLOW_SECONDS  # never sooner
    assert named_after([0, 20, 30, 400]) == SLOW_TIMES * 20  # sizes that are not known


def test_what_waits_at_a_worker_is_not_slow() -> None:
    """A worker of one thread runs the task that was submitted first, and goes on to the next when that is finished."""
    observer, slow = Observer(), step([1.0, 1.0, 1.0], under_way=2)
    for now in range(0, 50, 5):
        assert observer.look(now, {A: Seen(now)}, {A: ["key1", "key0"]}, slow) == []
    del slow.keys["key0"]
    for now in range(50, 50 + int(SLOW_SECONDS), 5):
        assert observer.look(now, {A: Seen(now)}, {A: ["key1"]}, slow) == []
    assert observer.look(50 + SLOW_SECONDS, {A: Seen(0)}, {A: ["key1"]}, slow) != []


def test_nothing_is_slow_while_few_are_finished() -> None:
    observer, slow = Observer(), step([1.0, 1.0])
    assert all(
        observer.look(now, {A: Seen(now)}, {A: ["key0", "of another run"]}, slow) == []
        for now in range(0, 900, 5)
    )


def test_a_repeated_task_begins_again() -> None:
    observer, slow = Observer(), step([1.0, 1.0, 1.0])
    observer.look(0, {A: Seen(0)}, {A: ["key0"]}, slow)
    assert observer.look(SLOW_SECONDS - 5, {B: Seen(1)}, {B: ["key0"]}, slow) == []
    assert observer.look(SLOW_SECONDS, {B: Seen(2)}, {B: ["key0"]}, slow) == []
    assert observer.look(2 * SLOW_SECONDS, {B: Seen(3)}, {B: ["key0"]}, slow) != []


workers = st.sampled_from([A, B, "tcp://c:1", "tcp://d:1", "tcp://e:1"])


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e4), st.dictionaries(workers, st.tuples(st.floats(0, 1e9), st.integers(0, 3))),
            st.dictionaries(workers, st.lists(st.sampled_from(["key0", "key1", "key2", "other"]), unique=True)), st.booleans(),
        )
    )
)  # fmt: skip
def test_whatever_a_scheduler_says(
    looks: list[tuple[float, dict[str, tuple[float, int]], dict[str, list[str]], bool]],
) -> None:
    """Looks in any order give lines, each with a worker that is there, and nothing is kept of workers that are gone."""
    observer, under_way = Observer(), step([1.0, 1.0, 1.0], under_way=3)
    now = 0.0
    for pause, seen, tasks, at_work in looks:
        now += pause
        current = {address: Seen(*values) for address, values in seen.items()}
        for line in observer.look(now, current, tasks, under_way if at_work else None):
            assert any(address in line for address in current)
        assert set(observer._signs) == set(observer._running) == set(current)


def test_a_look_at_many_workers_computes_the_usual_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hundreds of workers whose tasks all take minutes, every look asks of each whether it is slow."""
    computed = []
    median = statistics.median
    monkeypatch.setattr(statistics, "median", lambda data: computed.append(1) or median(data))
    observer, busy = Observer(), step([100.0] * 50, [10] * 250, under_way=200)
    workers = {f"tcp://10.0.2.{number}:1": f"key{number}" for number in range(200)}
    tasks = {worker: [key] for worker, key in workers.items()}
    for now in (0.0, 2 * SLOW_SECONDS):
        assert observer.look(now, {worker: Seen(now) for worker in workers}, tasks, busy) == []
    assert len(computed) <= 2


def test_a_task_may_end_during_a_look() -> None:
    """The run takes its key away in another thread."""

    class Ending(dict[str, int]):
        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            self.clear()
            return found

    observer, slow = Observer(), step([1.0, 1.0, 1.0])
    observer.look(0, {A: Seen(0)}, {A: ["key0"]}, slow)
    slow.keys = Ending(slow.keys)
    assert observer.look(SLOW_SECONDS, {A: Seen(1), B: Seen(1)}, {A: ["key0"]}, slow) != []


def test_the_name_of_a_task_is_short() -> None:
    assert name_of("part0") == "part0"
    assert len(name_of("x" * 10_000)) == 101
    assert name_of(3) == "3"
