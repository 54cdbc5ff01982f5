"""Where tasks run: Dask workers on this machine, any Dask cluster by address, or this process."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any
from uuid import uuid4

from corpusmill.common.costs import METER
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import quantity
from corpusmill.common.task_progress import watched
from corpusmill.pipeline.engine.local_workers import PATIENCE, WORKER_ENV, count_of_workers, start_workers
from corpusmill.pipeline.engine.observer import Step, name_of
from corpusmill.pipeline.engine.phase import Phase
from corpusmill.pipeline.engine.progress import Progress, held
from corpusmill.pipeline.engine.reports import listen, run_reported
from corpusmill.pipeline.engine.stage import Item, Result
from corpusmill.pipeline.engine.watch import Answer, Watch, answered
from corpusmill.schemas.recipe import Cluster

ANSWER = 10.0  # seconds in which a scheduler must answer at its address, and have a worker
FETCH = 60.0  # seconds for the result of a finished task, before it is looked whether to go on waiting
AT_ONCE = 500  # tasks that are submitted, and results that are fetched, in one message
LITTLE = 16 << 20  # bytes of text of a run for which starting processes of its own does not pay


class SchedulerLost(Exception):
    """The connection to the scheduler is gone, and with it whatever was not finished."""


class Workers:
    """A `Scheduler` on Dask. Nothing starts before the first task, so a finished run costs no start-up.

    `address` is a running scheduler (`tcp://host:port`), or the file that it wrote its address to (`dask scheduler
    --scheduler-file`); otherwise a LocalCluster on loopback with `config.workers` processes (default: the cores, see `adapt`);
    0 runs the tasks in this process. What becomes of the workers is logged (`corpusmill.pipeline.engine.watch`).
    """

    def __init__(self, config: Cluster, address: str | None = None, progress: Progress | None = None) -> None:
        self.config, self.address = config, address
        self.progress = progress or Progress()
        self._client: Any = None
        self._watch: Any = None
        self._stack = contextlib.ExitStack()
        self._begun = False  # whether there may be something to end

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if not self._begun:
            return
        # A cluster that is already gone must not hide the reason. One that is closed in part waits 10 s at the end.
        with held(answer=False), contextlib.suppress(Exception):
            self._stack.close()
        self._client = None

    def close(self, last: Callable[[], Result]) -> list[Result]:
        """See `corpusmill.pipeline.engine.stage.Scheduler`. Workers of a cluster by address stay."""
        if self._client is None or self.address:
            return []
        found: dict[str, Result] = {}
        # A worker that does not answer is no reason for a finished run to fail.
        with contextlib.suppress(Exception):
            found = self._client.run(last, on_error="ignore", callback_timeout=ANSWER)
        self._end()
        return list(found.values())

    @property
    def _here(self) -> bool:
        return self.config.workers == 0 and not self.address

    @property
    def client(self) -> Any:
        if self._client is None:
            self._begun = True
            with held(answer=True):  # workers that are starting cannot be closed
                self._client = self._connect()
        return self._client

    @property
    def count(self) -> int:
        """How many workers there are, or will be; 1 where the tasks run in this process."""
        if self.address:
            return max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        return max(1, count_of_workers(self.config))

    def adapt(self, text_bytes: float) -> int:
        """How many workers a run over so much text has: by default none, but this process, for no more than `LITTLE`."""
        if self.config.workers is None and 0 < text_bytes <= LITTLE:
            self.config = self.config.model_copy(update={"workers": 0})
        return self.count

    def everywhere(
        self, function: Callable[..., Result], *arguments: Any, patience: float = 0.0
    ) -> dict[str, Result]:
        """`function(*arguments)` on every worker of the cluster by address, once: address -> result.

        Raises `UserError` if there is no worker, nor one within `patience` seconds, or one that cannot import this package, or if the
        scheduler cannot, which unpacks the tasks.
        """
        client = self.client
        lacks = "not the same version of corpusmill as this command"
        try:
            client.run_on_scheduler(address_of, "tcp://")
        except (ImportError, AttributeError) as error:
            raise UserError(
                f"--scheduler {self.address}: it has {lacks} ({error}); install it there"
            ) from None
        try:
            client.wait_for_workers(1, timeout=ANSWER)
        except TimeoutError:
            try:
                if patience > ANSWER:
                    self.progress.log(f"no worker yet; waiting for the first, up to {patience:.0f} s")
                client.wait_for_workers(1, timeout=max(patience - ANSWER, 0.1))
            except TimeoutError:
                raise UserError(
                    f"--scheduler {self.address}: it has no worker; start some with `dask worker {client.scheduler.address}`"
                ) from None
        found: dict[str, Any] = client.run(function, *arguments, on_error="return")
        for address, result in found.items():
            # Dask sends what it cannot unpack there as an `Exception` with the text of the error.
            lacking = ("ModuleNotFoundError(", "ImportError(", "AttributeError(")
            if isinstance(result, ImportError | AttributeError) or str(result).startswith(lacking):
                raise UserError(f"worker {address}: it has {lacks} ({result}); install it there")
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
                # A worker that is started again on a busy machine is not given up after 15 s.
                "distributed.deploy.lost-worker-timeout": "60s",
                "distributed.worker.daemon": True,
                # It looks at the frames of tasks from the event loop's thread, where a parsed page must not be freed.
                "distributed.worker.profile.enabled": False,
                "distributed.admin.tick.limit": "60s",  # a long tokenizer call is no reason to warn
                # By default Dask looks at itself fifty times a second, which costs every waiting process CPU time.
                "distributed.admin.tick.interval": "1s",
                "distributed.admin.system-monitor.interval": "5s",
                "distributed.worker.memory.monitor-interval": "250ms",
                "distributed.nanny.pre-spawn-environ": WORKER_ENV,
                "distributed.worker.preload": ["corpusmill.pipeline.engine.progress"],
            }
        )
        for noisy in ("", ".nanny", ".scheduler", ".worker", ".client", ".batched", ".core"):
            logging.getLogger(f"distributed{noisy}").setLevel(logging.CRITICAL)
        if self.address:
            try:
                client = distributed.Client(address_of(self.address), timeout=ANSWER)
                return self._watched(self._stack.enter_context(client))
            except (OSError, ValueError, TimeoutError) as error:
                reason = str(error).splitlines()[0]
                raise UserError(
                    f"--scheduler {self.address}: no Dask scheduler answers there: {reason}"
                ) from None
        cluster = start_workers(self.config, self.progress.log)
        self._stack.enter_context(cluster)
        return self._watched(self._stack.enter_context(distributed.Client(cluster)))

    def _watched(self, client: Any) -> Any:
        patience = self.config.patience if self.address else min(self.config.patience, PATIENCE)
        watch = Watch(client, self.address, patience, self.progress.log)
        self._watch = self._stack.enter_context(watch)
        return client

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
        if self._client is None and not self._here:
            with self.progress.work("start of the workers"), METER.phase("start of the workers"):
                self.client  # noqa: B018 (connects)
        with self.progress.phase(label, len(items), sizes) as phase:
            results: dict[int, Result] = {}
            for index, result in self._results(function, Step(label, items, sizes), phase):
                results[index] = result
                phase.end(index)
        return [results[index] for index in range(len(items))]

    def beside(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """See `corpusmill.pipeline.engine.stage.Scheduler`."""
        if self._here:
            result = work()
            return lambda: result
        self._begun = True
        under_way: Future[Result] = self._stack.enter_context(ThreadPoolExecutor(1)).submit(work)
        return under_way.result

    def _results(
        self, function: Callable[[Item], Result], step: Step, phase: Phase
    ) -> Iterator[tuple[int, Result]]:
        """(index of the item, result) as they come; what a lost scheduler had not finished is submitted to the next one."""
        sizes = phase.sizes
        if self._here:
            for index, item in enumerate(step.items):
                with watched(partial(phase.under_way, index), sizes[index] if sizes else 0, 0.0):
                    result = function(item)
                yield index, result
            return
        # The largest first, as far as that is known: the small ones fill what is left, and all workers end at about the same time.
        order = range(len(step.items)) if not sizes else sorted(range(len(sizes)), key=lambda at: -sizes[at])
        left = dict.fromkeys(order)
        fruitless = 0
        while left:
            before = len(left)
            try:
                for index, result in self._attempt(function, step, phase, list(left)):
                    del left[index]
                    yield index, result
            except SchedulerLost:
                fruitless = fruitless + 1 if len(left) == before else 0
                if fruitless > self.config.retries or not self.address:
                    where = f"--scheduler {self.address}: the" if self.address else "the workers'"
                    raise WorkError(
                        f"{where} scheduler was lost {quantity(fruitless or 1, 'time')} without a finished task between; see its log, and"
                        " run the same command again"
                    ) from None
                self._reconnect(len(left))

    def _attempt(
        self, function: Callable[[Item], Result], step: Step, phase: Phase, indices: Sequence[int]
    ) -> Iterator[tuple[int, Result]]:
        """Raises `SchedulerLost` if it is lost before all of these are finished."""
        distributed: Any = import_module("distributed")
        client = self.client
        futures: dict[Any, int] = {}
        step.keys, step.inbox = {}, SimpleQueue()
        sizes, every = phase.sizes, self.progress.report_every
        token = listen(client, phase) if sizes is not None and every != inf else ""
        try:
            for first in range(0, len(indices), AT_ONCE):
                some = indices[first : first + AT_ONCE]
                futures |= zip(self._submitted(function, step, some, sizes, token), some, strict=True)
            self._watch.step = step
            for future in futures:
                future.add_done_callback(step.inbox.put)
            left = len(indices)
            while left:
                for future, answer in self._answers(step, futures):
                    left -= 1
                    self._watch.observer.hosts[answer.worker] = answer.host
                    step.finished.append((futures[future], answer.seconds))
                    del step.keys[future.key]
                    future.release()
                    yield futures[future], answer.result
        except distributed.client.ClosedClientError:
            raise SchedulerLost from None
        finally:
            self._watch.step = None
            if client.status == "running" and step.gave_up is None:  # else nobody would answer
                with contextlib.suppress(Exception):
                    client.cancel(list(futures), force=True)

    def _submitted(
        self,
        function: Callable[[Item], Result],
        step: Step,
        indices: Sequence[int],
        sizes: Sequence[int] | None,
        token: str,
    ) -> list[Any]:
        """The futures of these items. Many at once: a message for each would cost the driver more than all else."""
        from dask.utils import funcname

        works: list[Callable[[Item], Result]] = [function] * len(indices)
        if sizes is not None and token:
            every = self.progress.report_every
            works = [
                partial(run_reported, function, token, every, task=index, size=sizes[index])
                for index in indices
            ]
        # Keys of our own: Dask must not guess from arguments that two tasks are one.
        keys = [f"{funcname(function)}-{uuid4()}" for _ in indices]
        step.keys |= zip(keys, indices, strict=True)
        items, named = [step.items[index] for index in indices], [self.address is not None] * len(indices)
        found: list[Any] = self.client.map(answered, works, items, named, key=keys, pure=False)
        return found

    def _answers(self, step: Step, futures: dict[Any, int]) -> Iterator[tuple[Any, Answer]]:
        """What the next task that ends gave, and those that have ended by then: fetched together, unless one of them failed."""
        ended = [step.inbox.get()]
        with contextlib.suppress(Empty):
            while len(ended) < AT_ONCE:
                ended.append(step.inbox.get_nowait())
        found: list[Answer] = []
        if len(ended) > 1 and step.gave_up is None:
            client = self.client
            with contextlib.suppress(Exception):  # it is found again below, with the task that it belongs to
                found = client.sync(partial(client.gather, ended, asynchronous=True), callback_timeout=FETCH)
        for place, future in enumerate(ended):
            yield future, found[place] if found else self._answer(future, step, futures.get(future))

    def _answer(self, future: Any, step: Step, index: int | None) -> Answer:
        """What a task gave, or its exception; the step is given up if the watch gave it up (`future` may be None)."""
        from concurrent.futures import CancelledError

        distributed: Any = import_module("distributed")
        while True:
            if step.gave_up is not None:
                raise step.gave_up
            try:
                found: Answer = future.result(timeout=FETCH)
                return found
            except CancelledError:
                raise SchedulerLost from None
            except distributed.KilledWorker as error:
                raise WorkError(
                    f"{name_of(step.items[index or 0])}: its worker died {quantity(error.allowed_failures + 1, 'time')} (out of memory?);"
                    f" {self._more_memory()}, or lower ingest.partition_mb"
                ) from None
            except TimeoutError:
                if future.status == "error":
                    raise  # the task's own; otherwise its result was lost with its worker, and is made again
            except OSError:
                if future.status == "error":
                    raise
                raise SchedulerLost from None

    def _more_memory(self) -> str:
        return (
            "give workers more memory (`dask worker --memory-limit`)"
            if self.address
            else "raise cluster.memory_limit"
        )

    def _reconnect(self, unfinished: int) -> None:
        """Wait for a scheduler to answer at the address again. Raises `WorkError` after `cluster.patience`."""
        patience = self.config.patience
        self.progress.log(
            f"the scheduler at {self.address} was lost, with {quantity(unfinished, 'task')} of this step unfinished; waiting for"
            f" it, up to {patience:.0f} s"
        )
        deadline = time.monotonic() + patience
        with contextlib.suppress(Exception):
            self._stack.close()
        self._client = None
        while True:
            try:
                workers = len(self.client.scheduler_info(n_workers=-1)["workers"])
                break
            except UserError:
                if time.monotonic() > deadline:
                    raise WorkError(
                        f"--scheduler {self.address}: the scheduler was lost, and none answered there for {patience:.0f} s; start it,"
                        " and run the same command again"
                    ) from None
                time.sleep(min(1.0, patience))
        self.progress.log(
            f"the scheduler at {self.address} is back, workers: {workers}; submitting {quantity(unfinished, 'task')} again"
        )


def address_of(scheduler: str) -> str:
    """The address of a scheduler that is given by its address or by the file that it wrote.

    Raises `ValueError` for a file that is not there, or is none of a scheduler.
    """
    if "://" in scheduler or not (scheduler.endswith(".json") or Path(scheduler).exists()):
        return scheduler
    try:
        return str(json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"])
    except FileNotFoundError:
        raise ValueError("no such file; `dask scheduler --scheduler-file FILE` writes it") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError("not a file that `dask scheduler --scheduler-file FILE` has written") from None
