"""Tasks on real Dask workers: order, retries after a SIGKILL (also while a worker starts), a poison task named, a foreign cluster."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.pipeline.engine import cluster, watch
from corpusmill.pipeline.engine.cluster import LITTLE, Workers
from corpusmill.pipeline.engine.local_workers import PATIENCE, RARELY, collecting_rarely
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster
from tests.conftest import IMPORT_PATH


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


def test_results_are_fetched_together(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "AT_ONCE", 7)
    gather, sizes = workers.client.gather, list[int]()

    def counted(futures: list[Any], **options: Any) -> Any:
        sizes.append(len(futures))
        return gather(futures, **options)

    monkeypatch.setattr(workers.client, "gather", counted)
    assert workers.map(square, list(range(200)), "square") == [n * n for n in range(200)]
    assert sizes and max(sizes) <= 7
    # Of those that end together with one that fails, each is fetched alone.
    with pytest.raises(WorkError, match="three: cannot be done"):
        workers.map(fail_on_three, list(range(40)), "fail")


def test_the_largest_are_begun_first(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, begun = workers.client.map, list[int]()

    def noted(function: Any, works: Any, items: list[int], *rest: Any, **options: Any) -> Any:
        begun.extend(items)
        return submit(function, works, items, *rest, **options)

    monkeypatch.setattr(workers.client, "map", noted)
    assert workers.map(square, [0, 1, 2, 3, 4], "square", sizes=[10, 30, 20, 30, 5]) == [0, 1, 4, 9, 16]
    assert begun == [1, 3, 2, 0, 4]
    begun.clear()
    workers.map(square, [2, 3, 1], "square")
    assert begun == [2, 3, 1]


def meet(folder: str) -> str:
    """Wait for the driver's sign, after one of its own."""
    (Path(folder) / "task").touch()
    return "met" if appears(Path(folder) / "driver") else "alone"


def appears(file: Path) -> bool:
    end = time.monotonic() + 60
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return file.exists()


def test_the_driver_works_beside_its_tasks(workers: Workers, tmp_path: Path) -> None:
    def own() -> str:
        assert appears(tmp_path / "task")
        (tmp_path / "driver").touch()
        return "done"

    done = workers.beside(own)
    assert workers.map(meet, [str(tmp_path)], "meet") == ["met"] and done() == "done"

    def fails() -> None:
        raise WorkError("the driver's own")

    failed = workers.beside(fails)
    assert workers.map(square, [3], "square") == [9]
    with pytest.raises(WorkError, match="the driver's own"):
        failed()
    seen = list[int]()
    with Workers(Cluster(workers=0), progress=Progress(quiet=True)) as here:
        found = here.beside(lambda: seen.append(1))
        assert seen == [1] and found() is None  # at once, where there are no others


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


def test_without_workers_no_other_process_is_started() -> None:
    code = (
        "import sys\nfrom corpusmill.pipeline.engine.cluster import Workers\nfrom corpusmill.schemas.recipe import Cluster\n"
        "with Workers(Cluster(workers=0)) as one: assert one.map(str, [1], 'x') == ['1']\n"
        "with Workers(Cluster(workers=2)): pass\n"
        "assert 'multiprocessing.resource_tracker' not in sys.modules and 'distributed' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": IMPORT_PATH}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


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


def test_a_worker_that_the_cluster_forgot_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask closes the nanny of a worker that is not back in time, and starts no other."""
    import dask

    monkeypatch.setattr(watch, "LOOK", 0.5)
    items = [str(tmp_path / "died")]
    with Workers(Cluster(workers=1), progress=Progress(quiet=True)) as scheduler:
        assert scheduler.map(square, [2], "square") == [4]
        with dask.config.set({"distributed.deploy.lost-worker-timeout": "0s"}):
            assert scheduler.map(die_once, items, "die once") == items


def processes_of_workers() -> set[int]:
    """This process's workers, also those that are only starting."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("spawn_main" in word for word in child.cmdline()):
                found.add(child.pid)
    return found


def kill_new(seen: set[int], until: Callable[[], bool] | None = None) -> None:
    """SIGKILL to each worker that is none of these, as soon as its process is there, until something has happened: by
    default one is killed."""
    killed: set[int] = set()
    until = until or (lambda: bool(killed))
    deadline = time.monotonic() + 120
    while not until():
        assert time.monotonic() < deadline
        for pid in processes_of_workers() - seen - killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(0.01)


def test_a_worker_that_dies_while_all_start_costs_another_start() -> None:
    out = io.StringIO()
    with (
        ThreadPoolExecutor(1) as beside,
        Workers(Cluster(workers=2, retries=1), progress=Progress(out)) as scheduler,
    ):
        killed = beside.submit(kill_new, processes_of_workers())
        assert scheduler.map(square, [2, 3], "square") == [4, 9]
        killed.result()
    assert "the workers could not be started: Nanny failed to start.; trying again" in out.getvalue()


def test_workers_that_die_at_every_start_end_the_run() -> None:
    with (
        ThreadPoolExecutor(1) as beside,
        Workers(Cluster(workers=1, retries=0), progress=Progress(quiet=True)) as scheduler,
    ):
        killed = beside.submit(kill_new, processes_of_workers())
        with pytest.raises(
            WorkError, match=r"^the workers could not be started: .*run the same command again$"
        ):
            scheduler.map(square, [2], "square")
        killed.result()


def test_a_replacement_that_dies_while_it_starts_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster has forgotten the first worker, so no nanny starts the second one again."""
    import dask

    monkeypatch.setattr(watch, "LOOK", 0.5)
    out, items = io.StringIO(), [str(tmp_path / "died")]
    with ThreadPoolExecutor(1) as beside, Workers(Cluster(workers=1), progress=Progress(out)) as scheduler:
        assert scheduler.map(square, [2], "square") == [4]
        with dask.config.set({"distributed.deploy.lost-worker-timeout": "0s"}):
            killed = beside.submit(
                kill_new, processes_of_workers(), lambda: "could not be started" in out.getvalue()
            )
            assert scheduler.map(die_once, items, "die once") == items
        killed.result()
    lines = out.getvalue()
    for part in (
        "was lost: 0 remain, 1 task will be repeated",
        "worker 0 could not be started",
        "joined: 1 now",
    ):
        assert part in lines


def test_workers_of_this_machine_are_not_waited_for_as_long_as_a_cluster(workers: Workers) -> None:
    assert workers.map(square, [2], "square") == [4]
    assert workers._watch.patience == PATIENCE < Cluster().patience


def test_little_text_has_no_workers() -> None:
    cores, here = os.cpu_count() or 1, os.getpid()
    assert Workers(Cluster()).adapt(LITTLE + 1) == cores
    assert Workers(Cluster()).adapt(0) == cores  # not known
    assert Workers(Cluster(workers=3)).adapt(1) == 3
    with Workers(Cluster(), progress=Progress(quiet=True)) as scheduler:
        assert scheduler.adapt(LITTLE) == 1
        assert scheduler.map(process, [1, 2], "little") == [here, here]
    with Workers(Cluster(), progress=Progress(quiet=True)) as scheduler:
        scheduler.adapt(LITTLE + 1)
        assert here not in scheduler.map(process, [1, 2], "much")


def process(_: int) -> int:
    return os.getpid()


def test_garbage_is_collected_rarely_only_during_a_command() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), collecting_rarely():
        assert gc.get_threshold() == RARELY != before
        raise KeyError
    assert gc.get_threshold() == before
