"""Traces of some steps (`log.profile`), by torch.profiler: one file a process, and a table of the operators that took longest."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.train.log.sinks import log_line

if TYPE_CHECKING:
    from corpusmill.train.parallel.mesh import World

OPERATORS = 20  # rows of the table


class Profile:
    """`steps`: first and last, or None for no profile.

    Each process writes `profile/steps-<first>-<last>/rank-<n>.json.gz` in the run's folder, for Perfetto or Chrome's tracing;
    the first one also writes `operators.txt`. A process that starts in the middle of these steps profiles the rest.
    """

    def __init__(self, steps: tuple[int, int] | None, run: Folder, world: World) -> None:
        self.steps, self.run, self.world = steps, run, world
        self._profiler: Any = None
        self._began = self._last = 0
        self._seconds = 0.0

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Profile what is done in here, if it is one of the steps."""
        if self.steps is None or not self.steps[0] <= step <= self.steps[1]:
            yield
            return
        if self._profiler is None:
            self._start(step)
        with torch.profiler.record_function(f"step {step}"):
            yield
        self._last = step
        if step == self.steps[1]:
            self.close()

    def paused(self) -> float:
        """Seconds that beginning and writing took since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> None:
        """Write what was profiled, if anything."""
        if self._profiler is None:
            return
        began, profiler, self._profiler = time.monotonic(), self._profiler, None
        profiler.stop()
        folder = self.run / f"profile/steps-{self._began}-{self._last}"
        try:
            with tempfile.TemporaryDirectory() as place:
                file = Path(place) / "trace.json.gz"
                profiler.export_chrome_trace(str(file))
                (folder / f"rank-{self.world.rank}.json.gz").write(file.read_bytes())
            if self.world.first:
                self._table(profiler, folder)
        except (WorkError, OSError) as error:  # the run matters more
            log_line(f"log.profile: not written: {error}")
        self._seconds += time.monotonic() - began

    def _start(self, step: int) -> None:
        began, activities = time.monotonic(), [torch.profiler.ProfilerActivity.CPU]
        if self.world.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities, acc_events=True)
        self._profiler.start()
        self._began = step
        self._seconds += time.monotonic() - began

    def _table(self, profiler: Any, folder: Folder) -> None:
        key = "self_cuda_time_total" if self.world.device.type == "cuda" else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=key, row_limit=OPERATORS, max_name_column_width=40)
        (folder / "operators.txt").write(table.encode())
        log_line(f"profile of steps {self._began} to {self._last}: {folder}")
