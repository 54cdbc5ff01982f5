"""Tasks on real Dask workers: order, retries after a SIGKILL, a poison task named, a foreign cluster."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster


def square(number: int) -> int:
    return number * number


def fail_on_three(number: int) -> int:
    if number == 3:
        raise WorkError("three: cannot be done")
    return number


def die_once(marker: str) -> str:
    """Kills its own worker the first time, as the system's memory killer would."""
    if marker and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return marker


def die_always(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(Cluster(workers=2), progress=Progress(quiet=True)) as scheduler:
        yield scheduler


def test_results_come_in_the_order_of_the_items(workers: Workers) -> None:
    assert workers.map(square, list(range(50)), "square") == [n * n for n in range(50)]


def test_an_error_travels_as_it_is(workers: Workers) -> None:
    with pytest.raises(WorkError, match="three: cannot be done"):
        workers.map(fail_on_three, [1, 2, 3, 4], "fail")


def test_a_killed_worker_costs_a_retry_not_the_run(workers: Workers, tmp_path: Path) -> None:
    items = ["", "", str(tmp_path / "died"), ""]
    assert workers.map(die_once, items, "die once") == items


def test_a_task_that_keeps_killing_workers_is_named() -> None:
    with Workers(Cluster(workers=1, retries=1), progress=Progress(quiet=True)) as scheduler:
        with pytest.raises(WorkError, match=r"^1: its worker died 2 times.*memory_limit"):
            scheduler.map(die_always, [1], "poison")


def test_a_foreign_cluster_by_address(workers: Workers) -> None:
    address = workers.client.scheduler.address
    with Workers(Cluster(), address, Progress(quiet=True)) as scheduler:
        assert scheduler.map(square, [3], "square") == [9]


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.pipeline.engine.cluster.ANSWER", 0.5)
    with Workers(Cluster(), "tcp://127.0.0.1:1", Progress(quiet=True)) as scheduler:
        with pytest.raises(
            UserError, match=r"--scheduler tcp://127.0.0.1:1: no Dask scheduler answers there"
        ):
            scheduler.map(square, [3], "square")


def test_no_worker_at_all_works_in_this_process() -> None:
    with Workers(Cluster(workers=0), progress=Progress(quiet=True)) as scheduler:
        assert scheduler.map(os.path.basename, ["a/b"], "x") == ["b"]
        assert scheduler._client is None


def test_piped_progress_is_one_line_a_step() -> None:
    out = io.StringIO()
    with Workers(Cluster(workers=0), progress=Progress(out)) as scheduler:
        scheduler.map(square, [1, 2], "squares", sizes=[1_000_000, 1_000_000])
    (line,) = out.getvalue().splitlines()
    assert line.startswith("squares") and "2 tasks" in line and "MB/s" in line


def test_a_cluster_without_workers_is_given_up() -> None:
    with Workers(Cluster(workers=1, patience=0.5), progress=Progress(quiet=True)) as scheduler:
        assert scheduler.map(square, [2], "square") == [4]
        cluster = scheduler.client.cluster
        cluster.scale(0)
        while cluster.scheduler.workers:  # the last one would do the task
            time.sleep(0.01)
        with pytest.raises(WorkError, match="no worker has been alive"):
            scheduler.map(square, [3], "square")


def test_a_worker_that_the_cluster_forgot_is_replaced(tmp_path: Path) -> None:
    """Dask closes the nanny of a worker that is not back in time, and starts no other: 15 s, here none."""
    import dask

    items = [str(tmp_path / "died")]
    with Workers(Cluster(workers=1), progress=Progress(quiet=True)) as scheduler:
        assert scheduler.map(square, [2], "square") == [4]
        with dask.config.set({"distributed.deploy.lost-worker-timeout": "0s"}):
            assert scheduler.map(die_once, items, "die once") == items
