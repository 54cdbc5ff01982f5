"""What a task uses is booked on the stage that was at work, once, and memory is that of the process then."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.common.costs import BETWEEN, METER, START, peak_bytes, reset_peak
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.planning import costs
from corpusmill.pipeline.engine.planning.meter import DRIVER, MeteredScheduler
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster


class Serial:
    count = 1

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], label: str, sizes: Any = None
    ) -> list[Any]:
        return [function(item) for item in items]

    def close(self, last: Callable[[], Any]) -> list[Any]:
        return []


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
    reset_peak()
    idle = peak_bytes()
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


def test_the_profile_has_all_processes_and_adds_up(tmp_path: Path) -> None:
    with Workers(Cluster(workers=2), None, Progress(quiet=True)) as workers:
        METER.restart()
        metered = MeteredScheduler(workers)
        start = time.process_time()
        with metered.at_work("first", "second"):
            metered.map(partial(two_stages, Folder(tmp_path)), range(6), "first: things")
        metered.end()
        assert metered.map(abs, [-1], "x") == [1]  # others are started
        profile = metered.profile()
        mine = time.process_time() - start
    driver, *others = profile.processes
    assert driver.process == "driver" and driver.cpu_seconds == pytest.approx(mine, abs=0.05)
    assert driver.seconds == pytest.approx(profile.seconds, abs=1e-3)
    done = [one for one in others if any(phase.phase == "things" for phase in one.phases)]
    assert done and all({START, BETWEEN} & {phase.phase for phase in one.phases} for one in done)
    assert {"first", "second"} <= {phase.stage for one in done for phase in one.phases}
    assert sum(phase.written_bytes for one in others for phase in one.phases) == 600
    assert profile.cpu_seconds == pytest.approx(sum(one.cpu_seconds for one in profile.processes), abs=0.01)
    assert ("first", DRIVER) in {(one.stage, one.phase) for one in driver.phases}

    shown = costs.lines(profile)
    assert all(len(line) <= 80 for line in shown)
    of_stage = [one.stage for one in costs.shortened(costs.of_profile(profile))]
    assert sorted(set(of_stage), key=of_stage.index)[-1] == costs.ITSELF
    assert sum(one.cpu for one in costs.shortened(costs.of_profile(profile))) == pytest.approx(
        profile.cpu_seconds, abs=0.01
    )


def test_a_worker_that_died_is_in_the_profile_with_its_finished_tasks(tmp_path: Path) -> None:
    with Workers(Cluster(workers=1), None, Progress(quiet=True)) as workers:
        metered = MeteredScheduler(workers)
        with metered.at_work("first"):
            metered.map(partial(two_stages, Folder(tmp_path)), [1], "first")
            metered.map(die_once, [tmp_path / "died"], "first")
        metered.end()
    by_tasks = [
        sum(phase.written_bytes for phase in one.phases)
        for one in metered.profile().processes
        if one.process != "driver"
    ]
    assert len(by_tasks) == 2 and sum(by_tasks) == 100


def die_once(marker: Path) -> bool:
    """Kills its process the first time."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return True
