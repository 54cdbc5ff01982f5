"""A phase of a run in numbers: tasks and bytes done, how fast, and how long it will still take."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from corpusmill.common.format import plain_size, rate, time_left

# Seconds over which the time left is judged: what an earlier run had finished passes much faster.
WINDOW = 120.0
SAMPLES = 240  # of the window
LONGEST = 1000 * 86_400.0  # seconds: more time left than this is judged by too little


class Phase:
    """`total` tasks, or none that can be counted (0), which work through the bytes of `sizes` if those are known.

    Safe to use from several threads. What a task under way has done replaces what it, or an earlier try of it, had
    done before, so a task that is repeated counts once.
    """

    def __init__(self, label: str, total: int = 0, sizes: Sequence[int] | None = None) -> None:
        self.label, self.total = label, total
        self.bytes = sum(sizes) if sizes is not None else 0
        self.sizes = sizes if self.bytes else None
        self.start = time.monotonic()
        self.finished = 0  # tasks
        self._lock = threading.Lock()
        self._ended: set[int] = set()
        self._ended_bytes = 0
        self._under_way: dict[int, float] = {}  # task -> bytes of it that are done
        self._samples: deque[tuple[float, float]] = deque([(self.start, 0.0)], SAMPLES)

    def under_way(self, task: int, done: float) -> None:
        """`done` bytes of a task are done so far."""
        with self._lock:
            if task not in self._ended and self.sizes is not None:
                self._under_way[task] = min(done, self.sizes[task])

    def end(self, task: int) -> None:
        """A task is finished."""
        with self._lock:
            if task not in self._ended:
                self._ended.add(task)
                self._under_way.pop(task, None)
                self.finished += 1
                self._ended_bytes += self.sizes[task] if self.sizes else 0

    @property
    def done_bytes(self) -> float:
        """Of finished tasks and those under way."""
        with self._lock:
            return self._ended_bytes + sum(self._under_way.values())

    @property
    def share(self) -> float | None:
        """Of the phase that is done, 0 to 1: by bytes if they are known; None if nothing can be counted."""
        if self.sizes is not None:
            return min(1.0, self.done_bytes / self.bytes)
        return self.finished / self.total if self.total else None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.start

    @property
    def rate(self) -> str:
        """`12.3 MB/s`, or tasks a second where no bytes are known; empty where nothing is counted."""
        if self.sizes is not None:
            return rate(self.done_bytes / 1e6, self.seconds, "MB")
        return rate(self.finished, self.seconds, "tasks") if self.total else ""

    @property
    def left(self) -> str:
        """The time left, as the last minutes went; empty where it is not known."""
        share, now = self.share, time.monotonic()
        if share is None or share >= 1:
            return ""
        with self._lock:
            recent = [sample for sample in self._samples if now - sample[0] <= WINDOW]
            since, before = recent[0] if recent else self._samples[-1]
            if now - self._samples[-1][0] >= WINDOW / SAMPLES:
                self._samples.append((now, share))
        if share <= before or now <= since:  # nothing was done in the window
            since, before = self.start, 0.0
        seconds = (1 - share) * (now - since) / (share - before) if share > before else LONGEST
        return time_left(seconds) if seconds < LONGEST else ""

    def line(self) -> str:
        """The phase so far, for a log."""
        parts = []
        if self.total > 1 or (self.total and self.sizes is None):
            parts.append(f"{self.finished:,} of {self.total:,} tasks")
        if self.sizes is not None:
            parts.append(f"{plain_size(self.done_bytes)} of {plain_size(self.bytes)}")
        parts += [f"{time_left(self.seconds)} so far"]
        parts += [self.rate] if self.rate else []
        parts += [f"{left} left"] if (left := self.left) else []
        percent = "" if self.share is None else f" {100 * self.share:.0f} %:"
        return f"{self.label}:{percent} {', '.join(parts)}"

    def summary(self) -> str:
        """The whole phase, when it is over."""
        tasks = "task" if self.finished == 1 else "tasks"  # padded: `quantity` would not line up
        return f"{self.label:<25} {self.finished:>5} {tasks:<5}  {self.seconds:7.1f} s  {self.rate}"
