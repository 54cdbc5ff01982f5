"""dashboard.html in a run's folder, kept up to date by the run itself (`log.dashboard`)."""

from __future__ import annotations

import time
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.dashboard.history import History
from corpusmill.train.log.dashboard.page import render
from corpusmill.train.log.dashboard.write import PAGE

SECONDS = 30.0  # between two pages, at least
SHARE = 0.005  # of the run's time that writing pages may take


class Live:
    """A sink that keeps columns of all rows, and writes a page when it is time: at a row, at most every `SECONDS`, and so
    seldom that it takes `SHARE` of the time at most. The last page is written at the end."""

    def __init__(self, run: Folder, config: TrainConfig, rows: list[dict[str, Any]]) -> None:
        self.run, self.config, self.history = run, config, History()
        for row in rows:
            self.history.add(row)
        self._next = 0.0

    def write(self, row: dict[str, Any]) -> None:
        self.history.add(row)
        if time.monotonic() >= self._next:
            self._publish(SECONDS)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._publish(0)

    def _publish(self, live: float) -> None:
        began = time.monotonic()
        (self.run / PAGE).write(render(self.run, self.config, self.history, live).encode())
        now = time.monotonic()
        self._next = now + max(SECONDS, (now - began) / SHARE)
