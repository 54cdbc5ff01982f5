"""Processes as a user starts them: Python alone, or several under torchrun, a core each."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.conftest import IMPORT_PATH, ROOT

SECONDS = 900  # a test that hangs fails then


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1", **more}


def python(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` in the project's folder, to its end."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
        timeout=SECONDS,
    )  # fmt: skip


def torchrun(processes: int, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """`torchrun ARGUMENTS` on this machine: options of its own, then a script or `-m` and a module."""
    return python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, *arguments)
