"""How far the task of this thread is. Code that works through bytes calls `advance`; the code that runs the task watches it with
`watched`. Where nobody does, a call costs a look-up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TypeVar

Item = TypeVar("Item")


class _Watch:
    """The bytes of a task that are done. `show` gets the sum, `every` seconds at most."""

    def __init__(self, show: Callable[[float], None], size: float, every: float) -> None:
        self.show, self.every = show, every
        self.done = 0.0
        self.limit, self.scale = size, 1.0  # of the present portion
        self._next = time.monotonic() + every

    def to(self, done: float) -> None:
        self.done = min(done, self.limit)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self.every
            self.show(self.done)


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)


def advance(size: float) -> None:
    """So many bytes more of the present task, or portion of it, are done. Cheap: for every block, not for every document."""
    watch = _WATCH.get()
    if watch is not None:
        watch.to(watch.done + float(size) * watch.scale)


@contextlib.contextmanager
def portion(worth: float, size: float) -> Iterator[None]:
    """A block that is worth `worth` bytes of the task and advances by `size` bytes of its own. What it has not advanced by
    counts when it ends; what it advances by beyond that never does."""
    watch = _WATCH.get()
    if watch is None:
        yield
        return
    limit, scale = watch.limit, watch.scale
    end = min(limit, watch.done + worth * scale)
    watch.limit, watch.scale = end, (end - watch.done) / max(size, 1)
    try:
        yield
    finally:
        watch.limit, watch.scale = limit, scale
    watch.to(end)


@contextlib.contextmanager
def watched(show: Callable[[float], None], size: float, every: float) -> Iterator[None]:
    """`show(done)` from time to time while the block works through `size` bytes, in the block's own thread.

    `done` is the sum since the block began, at most `size`.
    """
    token = _WATCH.set(_Watch(show, size, every))
    try:
        yield
    finally:
        _WATCH.reset(token)


def carried(items: Iterator[Item]) -> Iterator[Item]:
    """`items`, of which each advances the task of this thread, whichever thread takes it; one at a time."""
    end = object()
    return iter(partial(copy_context().run, next, items, end), end)  # type: ignore[arg-type]
