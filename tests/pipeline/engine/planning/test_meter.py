"""What a task uses is booked on the stage that was at work, once, and memory is that of the process then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.planning import meter
from corpusmill.pipeline.engine.planning.meter import METER, MeteredScheduler
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster


class Serial:
    count = 1

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], label: str, sizes: Any = None
    ) -> list[Any]:
        return [function(item) for item in items]


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def two_stages(folder: Folder, number: int) -> int:
    METER.enter("first")
    (folder / str(number)).write(b"x" * 100)
    work(0.02)
    METER.enter("second")
    (folder / str(number)).read()
    return number


def test_a_task_of_several_stages_is_booked_on_each(tmp_path: Path) -> None:
    metered = MeteredScheduler(Serial())
    with metered.at_work("first", "second"):
        work(0.02)
        assert metered.map(partial(two_stages, Folder(tmp_path)), [1, 2, 3], "x") == [1, 2, 3]
    first, second = metered.used("first"), metered.used("second")
    assert (first.puts, first.gets, first.written_bytes) == (3, 0, 300)
    assert (second.puts, second.gets, second.read_bytes) == (0, 3, 300)
    assert (first.tasks, second.tasks) == (3, 3)
    assert first.cpu_seconds >= 0.08 > second.cpu_seconds  # the driver's own share is on the first
    assert first.seconds > second.seconds > 0


def test_tasks_in_the_driver_are_not_counted_twice(tmp_path: Path) -> None:
    metered = MeteredScheduler(Serial())
    with metered.at_work("first", "second"):
        metered.map(partial(two_stages, Folder(tmp_path)), range(2), "x")
        (Folder(tmp_path) / "own").write(b"12345")
    assert metered.used("first").written_bytes == 205
    assert metered.booked["first"].driver.traffic.written == 5


def test_work_ahead_counts_and_a_second_run_begins_at_nothing(tmp_path: Path) -> None:
    metered = MeteredScheduler(Serial())
    with metered.ahead("first"):
        (Folder(tmp_path) / "a").write(b"123")
    for expected in (3, 0):
        with metered.at_work("first"):
            pass
        assert metered.used("first").written_bytes == expected
    assert metered.used("never").tasks == 0


def hold(megabytes: int) -> int:
    block = np.ones(megabytes << 17)  # of 8 bytes
    METER.enter("small")
    del block
    return megabytes


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no high-water mark to set back")
def test_peak_memory_is_that_of_the_stage(tmp_path: Path) -> None:
    metered = MeteredScheduler(Serial())
    with metered.at_work("large", "small"):
        pass
    meter.reset_peak()
    idle = meter.peak_bytes()
    with metered.at_work("large", "small"):
        metered.map(hold, [256], "x")
    with metered.at_work("later"):
        metered.map(abs, [1], "x")
    assert metered.used("large").worker_bytes >= idle + (200 << 20)
    assert metered.used("later").worker_bytes <= metered.used("large").worker_bytes - (150 << 20)


def test_workers_of_their_own_report_their_memory(tmp_path: Path) -> None:
    with Workers(Cluster(workers=1), None, Progress(quiet=True)) as workers:
        metered = MeteredScheduler(workers)
        with metered.at_work("large", "small"):
            assert metered.map(hold, [300], "x") == [300]
    used = metered.used("large")
    assert used.worker_bytes > (300 << 20) and metered.booked["large"].driver.peak > 0
    assert workers.count == 1
