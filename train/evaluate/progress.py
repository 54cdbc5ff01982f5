"""How far a long evaluation is, in lines of the log."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from corpusmill.common.format import rate, time_left
from corpusmill.common.task_progress import watched
from corpusmill.train.log.sinks import log_line

EVERY = 10.0  # seconds between two lines


def reported(name: str, count: int, unit: str = "items") -> AbstractContextManager[None]:
    """While the block works through `count` of a `unit` and calls `advance` for each: now and then a line with how many are done and
    the time left."""
    began = time.monotonic()

    def show(done: float) -> None:
        took = time.monotonic() - began
        left = f", {time_left(took / done * (count - done))} left" if done else ""
        log_line(f"{name}: {done:,.0f} of {count:,} {unit}, {rate(done, took, unit)}{left}")

    return watched(show, count, every=EVERY)
