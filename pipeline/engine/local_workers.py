"""Workers of this machine, each a process with a nanny that starts it again if it dies, and what is done where that fails."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from corpusmill.common.errors import WorkError
from corpusmill.schemas.recipe import Cluster

# Workers are single-threaded processes: one core each, and results that cannot depend on thread timing.
WORKER_ENV = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
PATIENCE = 120.0  # seconds without any, at most: they are back in seconds, or something is wrong here


# Objects between two searches for cycles, as `gc.set_threshold` takes them. Most of what is looked at are imported modules, which
# takes much of the CPU time of a process that lives for seconds. Tables are freed without it.
RARELY = (10_000, 10, 10)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Look for cycles of objects less often during the block."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def count_of_workers(config: Cluster) -> int:
    """How many processes; 0: none, tasks run in the driver."""
    return config.workers if config.workers is not None else os.cpu_count() or 1


def start_workers(config: Cluster, log: Callable[[str], None]) -> Any:
    """A Dask LocalCluster on loopback. A worker that dies while it starts costs another start, up to `config.retries` times;
    then raises `WorkError`."""
    distributed: Any = import_module("distributed")  # untyped
    os.environ.update({name: os.environ.get(name, value) for name, value in WORKER_ENV.items()})
    for left in reversed(range(config.retries + 1)):
        try:
            return distributed.LocalCluster(
                n_workers=count_of_workers(config),
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                memory_limit=config.memory_limit,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            if not left:
                raise WorkError(
                    f"the workers could not be started: {reason}; run the same command again"
                ) from None
            log(f"the workers could not be started: {reason}; trying again")
    raise AssertionError("unreachable: the last attempt returns or raises")


def replace_workers(cluster: Any) -> list[str]:
    """Start workers in place of those that no nanny starts again; the lines to log.

    A cluster forgets a worker that is not back within Dask's lost-worker-timeout, as on a busy machine, and keeps a nanny
    whose worker died while it started. Asked for as many workers as it had, it makes others for those that it has not.
    """
    status: Any = import_module("distributed.core").Status
    workers = cluster.workers
    failed = [name for name, nanny in list(workers.items()) if nanny.status in (status.failed, status.closed)]
    for name in failed:
        workers.pop(name, None)
    if len(workers) < len(cluster.worker_spec):
        cluster.scale(len(cluster.worker_spec))
    return [f"worker {name} could not be started; trying again" for name in failed]
