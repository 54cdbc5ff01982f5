"""What a task costs the driver of a cluster of many workers: the run's own scheduler class by the address of a Dask scheduler, all on
this machine, with tasks that sleep and give what a task of a local stage gives.

The command, Dask's scheduler and every worker are processes of their own, so that each one's CPU seconds are known. Workers are
forked from a process that has imported what they need: a hundred of them start in seconds and share its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import _plan_driver
from bench.peers import ONE_THREAD, ROOT, NotMeasured

SECONDS = 10.0  # that the workers sleep for in all, one after the other's task
AT_LEAST, AT_MOST = 4, 4_000  # tasks of each worker; of all
NO_SLEEP = 2_000  # tasks that only begin and end
PHASES = 8  # of a task, which its account names
PATIENCE = 120.0  # seconds in which all workers must be there


class Handed(NamedTuple):
    """Tasks of one length, on all workers at once. CPU seconds are those of all tasks."""

    sleep: float  # seconds of each
    tasks: int
    wall: float
    driver: float  # of the run's command
    scheduler: float  # of Dask's scheduler


def measure(workers: int, sleeps: list[float]) -> list[Handed]:
    """Tasks of each of these lengths, in new processes. Raises `NotMeasured` if the cluster does not come up."""
    command = [
        sys.executable,
        "-c",
        "import sys; from bench._many_workers import child; child(*sys.argv[1:])",
    ]
    done = subprocess.run(
        [*command, str(workers), *map(repr, sleeps)], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, **ONE_THREAD},
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise NotMeasured(f"{workers} workers: {last[0][:200]}")
    return [Handed(*one) for one in json.loads(done.stdout)]


def child(workers: str, *sleeps: str) -> None:
    """What the process does: the driver's part."""
    import psutil

    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.local_workers import collecting_rarely
    from corpusmill.pipeline.engine.planning.meter import MeteredScheduler
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.schemas.recipe import Cluster
    from tests.operations.cluster import dask_cluster

    number, found = int(workers), list[Handed]()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(dask_cluster(folder))
        stack.enter_context(_forked(cluster.address, number, folder))
        stack.enter_context(collecting_rarely())
        inner = stack.enter_context(Workers(Cluster(), cluster.address, Progress(io.StringIO())))
        inner.client.wait_for_workers(number, timeout=PATIENCE)
        scheduler, dask = MeteredScheduler(inner), psutil.Process(cluster.scheduler.pid)
        _handed(scheduler, dask, 0.0, AT_LEAST * number)  # each worker's first
        for sleep in map(float, sleeps):
            each = max(AT_LEAST, round(SECONDS / sleep)) if sleep else 0
            found.append(_handed(scheduler, dask, sleep, min(AT_MOST, each * number) or NO_SLEEP))
    print(json.dumps(found))


def _handed(scheduler: Any, dask: Any, sleep: float, tasks: int) -> Handed:
    """So many tasks through the run's scheduler."""
    items = [_task(number) for number in range(tasks)]
    before, own, wall = dask.cpu_times(), time.process_time(), time.monotonic()
    with scheduler.at_work("filter"):
        scheduler.map(partial(rest, sleep), items, "filter", [64 << 20] * tasks)
    wall, own, after = time.monotonic() - wall, time.process_time() - own, dask.cpu_times()
    used = after.user + after.system - before.user - before.system
    return Handed(sleep, tasks, wall, own, used)


def _task(number: int) -> Any:
    """A partition's, as the runner sends it."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.stage import Partition
    from corpusmill.pipeline.engine.tasks import PartitionTask, Step
    from corpusmill.schemas.recipe import Recipe

    recipe = Recipe.model_validate({"name": "bench", "sources": {"web": {"paths": ["/data/web"]}}})
    folder = Folder("/data/run/filter")
    partition = Partition(f"00-web_{number:08d}-000", folder, 20_000, 64 << 20, f"{number:032x}")
    return PartitionTask(recipe.model_dump_json(), (Step("filter", f"{0:032x}", folder),), partition)


def rest(sleep: float, task: Any) -> Any:
    """The task: it only sleeps. Its result is the manifest of a partition, its account has phases; on a worker."""
    from corpusmill.common.costs import METER

    for number in range(PHASES):
        with METER.phase(f"phase {number} of a stage"):
            pass
    time.sleep(sleep)
    return _manifests()


@lru_cache(maxsize=1)
def _manifests() -> Any:
    return _plan_driver.manifests(1)


@contextlib.contextmanager
def _forked(address: str, workers: int, folder: Path) -> Iterator[None]:
    """That many workers during the block."""
    command = [
        sys.executable,
        "-c",
        "import sys; from bench._many_workers import nursery; nursery(*sys.argv[1:])",
    ]
    with (folder / "workers.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, address, str(workers), str(folder)], stdout=log, stderr=log, cwd=ROOT, start_new_session=True
        )  # fmt: skip
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def nursery(address: str, workers: str, folder: str) -> None:
    """Fork the workers, and wait until all have ended."""
    import distributed  # noqa: F401 (what the workers share)

    import corpusmill.pipeline.engine.planning.meter
    import corpusmill.pipeline.engine.tasks
    import corpusmill.pipeline.engine.watch  # noqa: F401

    _manifests()
    gc.freeze()
    pids = []
    for number in range(int(workers)):
        pid = os.fork()
        if not pid:
            asyncio.run(_work(address, f"{folder}/{number}"))
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


async def _work(address: str, folder: str) -> None:
    """A worker with one thread, until the scheduler is gone."""
    import dask
    from distributed import Worker

    # It is not what is measured, and a hundred of them look after themselves on the same cores.
    quiet = {
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.system-monitor.interval": "60s",
    }
    with dask.config.set(quiet):
        async with Worker(
            address, nthreads=1, memory_limit=0, host="127.0.0.1", local_directory=folder
        ) as worker:
            await worker.finished()
