"""When the page of a run is written: once, again and again until the run is done, or by the run itself (`log.dashboard`)."""

from __future__ import annotations

import sys
import time
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.dashboard.history import History
from corpusmill.train.log.dashboard.page import finished, render

PAGE = "dashboard.html"
SECONDS = 30.0  # between two pages, at least
SHARE = 0.005  # of the run's time that writing pages may take


def write(
    config: TrainConfig, run: Folder, out: str | None = None, live: float = 0, history: History | None = None
) -> dict[str, Any]:
    """The page, published whole at `out` (default: dashboard.html in the run's folder); where it is and what it has.
    `history`: what was read of the run before."""
    file = Folder(out) if out else run / PAGE
    history = (history or History()).read(run)
    page = render(run, config, history, live).encode()
    file.write(page)
    rows = max((len(history.column(name)[0]) for name in history.names), default=0)
    return {"page": file.url, "step": int(history.last.get("step", 0)), "rows": rows, "bytes": len(page)}


def write_until_done(config: TrainConfig, run: Folder, out: str | None, seconds: float) -> dict[str, Any]:
    """The page every so many seconds, and a last one, which stays, when the run has come to its end or is
    interrupted. Of the time, writing a long run's page takes a tenth at most."""
    history = History()
    try:
        while not finished(run, config):
            began = time.monotonic()
            result = write(config, run, out, seconds, history)
            print(f"{result['page']}: step {result['step']:,}", file=sys.stderr, flush=True)
            time.sleep(max(seconds, 9 * (time.monotonic() - began)))
    except KeyboardInterrupt:
        pass
    return write(config, run, out, 0, history)


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
