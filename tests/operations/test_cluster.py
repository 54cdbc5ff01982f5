"""What becomes of a run when parts of its cluster are lost, stopped or slow: scheduler and workers are processes of their own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.pipeline.engine import observer, watch
from corpusmill.pipeline.engine.cluster import SchedulerLost, Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster
from tests.operations.cluster import DaskCluster, dask_cluster

WAIT = 300.0  # seconds for anything, also on a busy machine


class Lines(Progress):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)

    def wait_for(self, *parts: str) -> str:
        """The first line with all these parts, once it is there."""
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            for line in list(self.lines):
                if all(part in line for part in parts):
                    return line
            time.sleep(0.1)
        raise AssertionError(f"no line with {parts} within {WAIT} s: {self.lines}")


def held(file: str) -> str:
    """Says where it runs, in a file beside, and waits for the file; without a name it does nothing."""
    if file:
        from distributed import get_worker

        place = Path(f"{file}.runs")
        place.with_suffix(".part").write_text(f"{os.getpid()} {get_worker().address}")
        place.with_suffix(".part").replace(place)
        while not Path(file).exists():
            time.sleep(0.02)
    return file


def fails(kind: str) -> str:
    raise {"user": UserError, "work": WorkError, "own": OSError}[kind]("no key")


def runs_on(file: Path) -> tuple[int, str]:
    """The process and the address of the worker that holds the task."""
    wait_until(Path(f"{file}.runs").exists)
    pid, address = Path(f"{file}.runs").read_text().split()
    return int(pid), address


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def log() -> Lines:
    return Lines()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path) as made:
        yield made


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """A thread for the run."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_workers_that_are_lost_stopped_and_slow_are_named(
    cluster: DaskCluster,
    beside: ThreadPoolExecutor,
    log: Lines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "LOOK", 0.2)
    monkeypatch.setattr(observer, "SILENT", 2.0)
    monkeypatch.setattr(observer, "SLOW_SECONDS", 1.0)
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    with Workers(Cluster(), cluster.address, log) as workers:
        assert workers.client is not None  # connected before there is a worker, so that it is seen to join
        cluster.add_worker(tmp_path / "a")
        assert workers.map(held, ["", "", ""], "quick") == ["", "", ""]
        joined = log.wait_for("joined: 1 now")
        run: Future[list[str]] = beside.submit(workers.map, held, ["", "", "", first, second], "slow")
        pid, address = runs_on(Path(first))
        assert f"worker {address}" in joined
        slow = log.wait_for("slow: ", "first runs for", address)
        assert f"on {os.uname().nodename}; the median of 3 tasks is 0.0 s" in slow
        os.kill(pid, signal.SIGSTOP)
        silent = log.wait_for(address, "no sign of life for")
        assert "it has 2 tasks, repeated if the scheduler gives it up" in silent
        cluster.add_worker(tmp_path / "b")
        log.wait_for("joined: 2 now")
        cluster.kill_worker(0)
        lost = log.wait_for(f"worker {address} on {os.uname().nodename} was lost: 1 remains, ")
        assert "will be repeated" in lost
        for file in (first, second):
            Path(file).touch()
        assert run.result(WAIT) == ["", "", "", first, second]
    assert not [line for line in log.lines if "scheduler" in line and "gives it up" not in line]


def test_a_restarted_scheduler_gets_what_was_not_finished(
    cluster: DaskCluster, beside: ThreadPoolExecutor, log: Lines, tmp_path: Path
) -> None:
    """It is found by its file, as it is where jobs get their machines from a queue."""
    cluster.keep(2)
    files = [str(tmp_path / f"file{number}") for number in range(4)]
    with Workers(Cluster(), str(tmp_path / "scheduler.json"), log) as workers:
        run: Future[list[str]] = beside.submit(workers.map, held, ["", "", *files], "step")
        runs_on(Path(files[0]))
        cluster.kill_scheduler()
        log.wait_for("was lost, with ", " of this step unfinished; waiting for it, up to 600 s")
        for file in files:
            Path(file).touch()  # the workers end with their tasks
        cluster.restart_scheduler()
        assert run.result(WAIT) == ["", "", *files]
        log.wait_for("is back, workers: ", "submitting ")
        assert workers.map(held, ["", ""], "next step") == ["", ""]
        cluster.restart_scheduler()  # between two steps
        assert workers.map(held, ["", ""], "last step") == ["", ""]


def test_a_cluster_that_does_not_come_back_ends_the_run(
    cluster: DaskCluster, beside: ThreadPoolExecutor, log: Lines, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    with Workers(Cluster(patience=2), cluster.address, log) as workers:
        cluster.add_worker(tmp_path / "a")
        cluster.wait_for_worker(tmp_path / "a")  # which may take longer than the patience
        assert workers.map(held, [""], "quick") == [""]
        run = beside.submit(workers.map, held, [str(file)], "without workers")
        runs_on(file)
        cluster.kill_worker(0)
        with pytest.raises(
            WorkError, match=r"^no worker has been alive for 2 s.*`dask worker tcp://.*same command again$"
        ):
            run.result(WAIT)
        log.wait_for("no worker is left; waiting for one, up to 2 s")
        run = beside.submit(workers.map, held, [""], "without a scheduler")
        cluster.kill_scheduler()
        with pytest.raises(
            WorkError, match=r"the scheduler was lost, and none answered there for 2 s; start it"
        ):
            run.result(WAIT)


def test_a_scheduler_that_hangs_ends_the_run(
    cluster: DaskCluster,
    beside: ThreadPoolExecutor,
    log: Lines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "ANSWER", 1.0)
    cluster.add_worker(tmp_path / "a")
    cluster.wait_for_worker(tmp_path / "a")
    with Workers(Cluster(patience=3), cluster.address, log) as workers:
        assert workers.map(held, [""], "quick") == [""]
        os.kill(cluster.scheduler.pid, signal.SIGSTOP)
        run = beside.submit(workers.map, held, [""], "hangs")
        log.wait_for("the scheduler at tcp://", "has not answered for")
        with pytest.raises(
            WorkError, match=r"no answer for \d+ s; restart the scheduler; run the same command again"
        ):
            run.result(WAIT)


def test_a_scheduler_that_dies_of_the_tasks(log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for as long as tasks are finished between, and no task is asked for twice."""
    workers = Workers(Cluster(retries=2), "tcp://nowhere:1", log)
    monkeypatch.setattr(workers, "_client", object())  # connected
    reconnected: list[int] = []
    monkeypatch.setattr(workers, "_reconnect", reconnected.append)

    def lost_after(count: int) -> Callable[..., Iterator[tuple[int, int]]]:
        def attempt(
            function: object, step: object, phase: object, indices: list[int]
        ) -> Iterator[tuple[int, int]]:
            yield from ((index, 10 * index) for index in indices[:count])
            if len(indices) > count:
                raise SchedulerLost

        return attempt

    monkeypatch.setattr(workers, "_attempt", lost_after(1))
    assert workers.map(abs, [0, 1, 2, 3, 4], "step") == [0, 10, 20, 30, 40]
    assert reconnected == [4, 3, 2, 1]
    monkeypatch.setattr(workers, "_attempt", lost_after(0))
    with pytest.raises(WorkError, match="was lost 3 times without a finished task between"):
        workers.map(abs, [0, 1], "step")
    assert reconnected[4:] == [2, 2]


def test_a_scheduler_file_that_is_none(tmp_path: Path, log: Lines) -> None:
    (tmp_path / "other.json").write_text("[]")
    for name, reason in (("gone.json", "no such file"), ("other.json", "not a file that `dask scheduler")):
        with Workers(Cluster(), str(tmp_path / name), log) as workers, pytest.raises(UserError, match=reason):
            workers.map(held, [""], "step")


def test_errors_say_where_and_are_those_of_the_task(cluster: DaskCluster, log: Lines, tmp_path: Path) -> None:
    cluster.add_worker(tmp_path / "a")
    with Workers(Cluster(), cluster.address, log) as workers:
        for name, kind in (("user", UserError), ("work", WorkError)):
            with pytest.raises(
                kind, match=rf"^no key \(on worker tcp://127.*, host {os.uname().nodename}\)$"
            ):
                workers.map(fails, [name], "fails")
        with pytest.raises(OSError, match="^no key$"):  # not taken for a lost connection
            workers.map(fails, ["own"], "fails")
    assert not [line for line in log.lines if "scheduler" in line]


def test_threads_end_with_the_run(cluster: DaskCluster, log: Lines, tmp_path: Path) -> None:
    cluster.add_worker(tmp_path / "a")
    with Workers(Cluster(), cluster.address, log) as workers:
        assert workers.map(held, [""], "quick") == [""]
        watching = workers._watch._thread
        assert watching in threading.enumerate()
    assert not watching.is_alive()
