"""Ctrl-C: at a terminal it reaches all processes, and only the driver answers it. It says what the state is, and
closes its workers; one that is left alone ends with its nanny.

Dask loads this module in each worker.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


def dask_setup(worker: Any) -> None:
    """Leave SIGINT to the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def explained(state: str | Callable[[], str]) -> Iterator[None]:
    """Where Ctrl-C ends the block, say in a line what the state is and what to do."""
    try:
        yield
    except KeyboardInterrupt:
        line = state if isinstance(state, str) else state()
        print(f"interrupted; {line}", file=sys.stderr, flush=True)
        raise


@contextlib.contextmanager
def held(answer: bool) -> Iterator[None]:
    """Keep Ctrl-C out of a block that is left half done by it, such as the start and the end of workers: it is answered
    when the block is over, or where `answer` is false not at all. Threads and processes that begin in the block never
    get it."""
    if threading.current_thread() is not threading.main_thread():  # which alone gets it
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # begun in the block, it would let the signal through again
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if came and answer and callable(before):
        before(signal.SIGINT, None)
