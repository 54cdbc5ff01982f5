"""How tasks on Dask's workers report how far they are: as events of its scheduler, which reach the client while the task runs. They
need no file, no connection of their own and no worker that answers later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import uuid4

from corpusmill.common.task_progress import watched
from corpusmill.pipeline.engine.phase import Phase
from corpusmill.pipeline.engine.stage import Item, Result

TOPIC = "corpusmill-progress"  # one for all runs: a scheduler keeps every topic that it ever had


def listen(client: Any, phase: Phase) -> str:
    """Pass the reports that a Dask client receives on to `phase`, from now on; the token that they must have. Those of earlier
    phases, and of other clients, are passed over."""
    wanted = uuid4().hex

    def take(event: tuple[float, tuple[str, int, float]]) -> None:
        token, task, done = event[1]
        if token == wanted:
            phase.under_way(task, done)

    client.subscribe_topic(TOPIC, take)
    return wanted


def run_reported(
    function: Callable[[Item], Result], token: str, every: float, item: Item, task: int, size: int
) -> Result:
    """`function(item)` on a worker, which reports the bytes done every so many seconds."""
    distributed: Any = import_module("distributed")  # untyped
    worker = distributed.get_worker()

    def report(done: float) -> None:
        with contextlib.suppress(Exception):  # the work goes on whether anyone hears of it or not
            worker.log_event(TOPIC, (token, task, done))

    with watched(report, size, every):
        return function(item)
