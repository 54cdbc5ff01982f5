"""The memory that reading a file takes, measured in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

from tests.forks import launch
from tests.pipeline.ingest.helpers import ingest


def peak(path: Path | str) -> tuple[int, list[list[str]], int]:
    """(documents, [rule, detail] of each rejected record, MiB above what the imports took), in a process of its own.

    A fork, but for the formats of Arrow: a thread of its allocator gives memory back, and a fork does not have it.
    """
    if str(path).endswith((".arrow", ".parquet")):
        command = [sys.executable, "-m", "tests.pipeline.ingest.memory", str(path)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        done = launch(1, "tests.pipeline.ingest.memory:measure", path, preload="commands")
        assert done.returncode == 0, done.stderr
        printed = done.stdout
    documents, rejected, mib = json.loads(printed)
    return documents, rejected, mib


def measure(path: str) -> None:
    """Ingest a file and print what `peak` returns. A fork's peak begins with what it shares with its parent."""
    before = _highest()
    result = ingest(path)
    rejected = [[row["rule"], row["detail"]] for row in result.decisions]
    print(json.dumps([len(result.docs), rejected, (_highest() - before) >> 10]))


def _highest() -> int:
    """KiB of memory that this process had at most at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    measure(sys.argv[1])
