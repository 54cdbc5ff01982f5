"""Loaded by Dask in each worker: Ctrl-C at a terminal reaches all processes, and only the driver answers it.

The driver closes its workers; one that is left alone ends with its nanny.
"""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Leave SIGINT to the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
