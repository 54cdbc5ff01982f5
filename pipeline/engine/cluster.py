"""Where tasks run: Dask workers on this machine, any Dask cluster by address, or this process."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

from corpusmill.common.errors import UserError, WorkError
from corpusmill.pipeline.engine.progress import Progress, held
from corpusmill.pipeline.engine.stage import Item, Result
from corpusmill.schemas.recipe import Cluster

# Workers are single-threaded processes: one core each, and results that cannot depend on thread timing.
WORKER_ENV = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

ANSWER = 10.0  # seconds in which a scheduler must answer at its address, and have a worker
PATIENCE = 120.0  # seconds without any worker: those that died are started again within a few


class Workers:
    """A `Scheduler` on Dask. Nothing starts before the first task, so a finished run costs no start-up.

    `address` is a running scheduler (`tcp://host:port`); otherwise a LocalCluster on loopback with
    `config.workers` processes (default: the cores); 0 runs the tasks in this process.
    """

    def __init__(self, config: Cluster, address: str | None = None, progress: Progress | None = None) -> None:
        self.config, self.address = config, address
        self.progress = progress or Progress()
        self._client: Any = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A cluster that is already gone must not hide the reason. One that is closed in part waits 10 s at the end.
        with held(answer=False), contextlib.suppress(Exception):
            self._stack.close()
        self._client = None

    @property
    def client(self) -> Any:
        if self._client is None:
            with held(answer=True):  # workers that are starting cannot be closed
                self._client = self._connect()
        return self._client

    def everywhere(self, function: Callable[..., Result], *arguments: Any) -> dict[str, Result]:
        """`function(*arguments)` on every worker of the cluster by address, once: address -> result.

        Raises `UserError` if there is no worker, or one that cannot import this package.
        """
        client = self.client
        try:
            client.wait_for_workers(1, timeout=ANSWER)
        except TimeoutError:
            raise UserError(
                f"--scheduler {self.address}: it has no worker; start some with `dask worker {self.address}`"
            ) from None
        found: dict[str, Any] = client.run(function, *arguments, on_error="return")
        for address, result in found.items():
            # Dask sends what it cannot unpack there as an `Exception` with the text of the error.
            lacking = ("ModuleNotFoundError(", "ImportError(", "AttributeError(")
            if isinstance(result, ImportError | AttributeError) or str(result).startswith(lacking):
                raise UserError(
                    f"worker {address}: it has not the same version of corpusmill as this command ({result}); install it there"
                )
            if isinstance(result, BaseException):
                raise WorkError(f"worker {address}: {type(result).__name__}: {result}")
        return found

    def _connect(self) -> Any:
        import logging

        import dask

        distributed: Any = import_module("distributed")  # untyped
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": self.config.retries,
                "distributed.comm.timeouts.connect": "30s",
                "distributed.worker.daemon": True,
                # It looks at the frames of tasks from the event loop's thread, where a parsed page must not be freed.
                "distributed.worker.profile.enabled": False,
                "distributed.admin.tick.limit": "60s",  # a long tokenizer call is no reason to warn
                "distributed.nanny.pre-spawn-environ": WORKER_ENV,
                "distributed.worker.preload": ["corpusmill.pipeline.engine.progress"],
            }
        )
        for noisy in ("distributed", "distributed.nanny", "distributed.scheduler", "distributed.worker"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        if self.address:
            try:
                return self._stack.enter_context(distributed.Client(self.address, timeout=ANSWER))
            except (OSError, ValueError, TimeoutError) as error:
                reason = str(error).splitlines()[0]
                raise UserError(
                    f"--scheduler {self.address}: no Dask scheduler answers there: {reason}"
                ) from None
        workers = self.config.workers if self.config.workers is not None else os.cpu_count() or 1
        os.environ.update({name: os.environ.get(name, value) for name, value in WORKER_ENV.items()})
        try:
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                memory_limit=self.config.memory_limit,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise WorkError(
                f"the workers could not be started: {reason}; run the same command again"
            ) from None
        self._stack.enter_context(cluster)
        return self._stack.enter_context(distributed.Client(cluster))

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Result]:
        """See `corpusmill.pipeline.engine.stage.Scheduler`."""
        if not items:
            return []
        with self.progress.task(label, len(items), sum(sizes) if sizes else None) as advance:
            results: dict[int, Result] = {}
            for index, result in self._results(function, items):
                results[index] = result
                advance(sizes[index] if sizes else 0)
        return [results[index] for index in range(len(items))]

    def _results(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        if self.config.workers == 0 and not self.address:
            for index, item in enumerate(items):
                yield index, function(item)
            return
        from concurrent.futures import CancelledError

        distributed: Any = import_module("distributed")
        # pure=False: Dask must not guess from arguments that two tasks are one.
        futures = {self.client.submit(function, item, pure=False): index for index, item in enumerate(items)}
        stop = threading.Event()
        watch = threading.Thread(target=self._watch, args=(list(futures), stop), daemon=True)
        watch.start()
        try:
            for future in distributed.as_completed(list(futures)):
                try:
                    yield futures[future], future.result()
                except CancelledError:
                    raise WorkError(
                        f"no worker has been alive for {PATIENCE:.0f} s, and none came back (out of memory?);"
                        " run the same command again"
                    ) from None
                except distributed.KilledWorker:
                    raise WorkError(
                        f"{items[futures[future]]}: its worker died {self.config.retries + 1} times (out of memory?);"
                        " raise cluster.memory_limit, or lower ingest.partition_mb"
                    ) from None
                future.release()
        finally:
            stop.set()
            with contextlib.suppress(Exception):
                self.client.cancel(list(futures), force=True)

    def _watch(self, futures: list[Any], stop: threading.Event) -> None:
        """Replace workers of this machine that died; if all are gone and none comes back, cancel the tasks: no
        result ever would. A cluster by address may yet get its first worker.

        A worker's nanny starts it again, but a cluster forgets one that takes longer than Dask's lost-worker-timeout,
        15 s, as on a busy machine; asked for as many workers as it had, it makes another.
        """
        alive = time.monotonic()
        while not self.address and not stop.wait(min(5.0, PATIENCE)):
            with contextlib.suppress(Exception):
                cluster = self.client.cluster
                if len(cluster.workers) < len(cluster.worker_spec):
                    cluster.scale(len(cluster.worker_spec))
                if cluster.scheduler.workers:
                    alive = time.monotonic()
                elif time.monotonic() - alive > PATIENCE:
                    self.client.cancel(futures, force=True)
                    return
