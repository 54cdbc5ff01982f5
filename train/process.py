"""The process itself: the signals that end it, and when Python collects its garbage."""

from __future__ import annotations

import gc
import signal
import threading
import time
from typing import Any

TOGETHER = 10.0  # seconds
FREEZE = 2  # steps after which what exists is there to stay


class Stop:
    """Records the first SIGTERM or SIGINT in `signal` (0: none yet); a second one has its usual effect. A SIGTERM that soon follows
    another one is the same: Slurm sends it to torchrun and to the processes of torchrun, which passes it on to them."""

    def __init__(self) -> None:
        self.signal, self._at = 0, 0.0
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)
            }

    def _note(self, number: int, _frame: object) -> None:
        if not self.signal:
            self.signal, self._at = number, time.monotonic()
        elif not (number == self.signal == signal.SIGTERM and time.monotonic() - self._at < TOGETHER):
            self.release()
            signal.raise_signal(number)

    def release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Garbage:
    """Python's garbage collection at set steps. By itself it runs in each process at another moment, and all wait for each.

    After the first steps the objects that exist are left out of collections until the run ends (`gc.freeze`), unless the program
    that trains has frozen some already: `gc.unfreeze` would take those with it.
    """

    def __init__(self, every: int | None) -> None:
        self.every, self._steps, self._was, self._froze = every, 0, gc.isenabled(), False
        if every is not None:
            gc.disable()

    def step(self, step: int) -> None:
        """Call it after each step."""
        if self.every is None:
            return
        self._steps += 1
        if self._steps == FREEZE:
            gc.collect()
            if not gc.get_freeze_count():
                gc.freeze()
                self._froze = True
        elif step % self.every == 0:
            gc.collect()

    def release(self) -> None:
        if self.every is None:
            return
        if self._froze:
            gc.unfreeze()
        if self._was:
            gc.enable()
