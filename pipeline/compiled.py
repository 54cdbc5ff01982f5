"""Compiled kernels that are out of date.

Numba keeps compiled code while the file of a function is unchanged, whatever became of the functions that it calls in
other files. Each folder of kernels therefore forgets, when it is imported, what is older than the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def forget_stale(caches: Iterable[Path], kernels: Iterable[Path]) -> None:
    """Delete what Numba keeps anywhere below the folders `caches` from before the last change of a kernel: of a file
    among `kernels`, or below a folder among them, that compiles something. A folder that may not be written is left."""
    files = (file for place in kernels for file in ([place] if place.is_file() else place.rglob("*.py")))
    changed = max(file.stat().st_mtime for file in files if b"njit" in file.read_bytes())
    with suppress(OSError):
        for index in (index for folder in caches for index in folder.rglob("*.nbi")):
            if index.stat().st_mtime < changed:
                index.unlink(missing_ok=True)
