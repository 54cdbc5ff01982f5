"""What the scripts share: reading the documents, and CPU seconds of this process (start-up not included)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def documents(path: str) -> tuple[list[str], list[str]]:
    """(ids, texts) of a file of JSON lines."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [row["id"] for row in rows], [row["text"] for row in rows]


def cpu_seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start
