"""A whole run while ten of its workers are killed and its scheduler is: it needs no restart, and writes the same bytes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import IMPORT_PATH, ROOT
from tests.e2e.cli import difference, published, write_recipe
from tests.e2e.killing import points
from tests.operations.cluster import dask_cluster

KILLS, WORKERS, SEED = 10, 3, 18


@pytest.mark.slow
def test_ten_workers_and_the_scheduler_are_killed(finished: Path, corpus: Path, tmp_path: Path) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    out, log = tmp_path / "run", tmp_path / "run.log"
    recipe = write_recipe(tmp_path / "small.yaml", corpus, out)
    whole = sum(1 for file in finished.rglob("*") if file.is_file())
    moments = points(chance, int(0.9 * whole), KILLS + 1)
    scheduler_dies = moments[chance.randrange(2, KILLS - 1)]
    # A task that is killed by chance is not to be taken for one that kills.
    with dask_cluster(tmp_path, {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20"}) as cluster:
        cluster.keep(WORKERS)
        command = [
            sys.executable,
            "-m",
            "corpusmill",
            "run",
            str(recipe),
            "--scheduler",
            str(tmp_path / "scheduler.json"),
        ]
        with log.open("wb") as stderr:
            run = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=stderr, cwd=ROOT, env={**os.environ, "PYTHONPATH": IMPORT_PATH}
            )  # fmt: skip

        def until(condition: Callable[[], object]) -> None:
            deadline = time.monotonic() + 300
            while not condition():
                assert run.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)

        try:
            for moment in moments:
                until(lambda moment=moment: files(out) >= moment)  # type: ignore[misc]
                if moment == scheduler_dies:
                    cluster.restart_scheduler()
                    print("scheduler killed at", moment, "of", whole, "files")
                else:
                    until(cluster.busy)
                    number = chance.choice(cluster.busy() or [0])
                    cluster.kill_worker(number)
                    print("worker", number, "killed at", moment, "of", whole, "files")
            assert run.wait(timeout=500) == 0, log.read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                run.send_signal(signal.SIGKILL)
            run.wait()
    lines = log.read_text()
    print(lines)
    assert "Traceback" not in lines and "is back, workers: " in lines
    assert sum(" lost: " in line for line in lines.splitlines()) >= KILLS / 2
    assert difference(published(out), published(finished)) == []


def files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))
