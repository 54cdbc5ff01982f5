"""Writes the page of a run, once or until the run is done."""

from __future__ import annotations

import sys
import time
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.dashboard.history import History
from corpusmill.train.log.dashboard.page import finished, render

PAGE = "dashboard.html"


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
    """The page every so many seconds, and a last one, which stays, when the run has come to its end or somebody
    interrupts. A long run's page takes its time: nine tenths of it are left to others."""
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
