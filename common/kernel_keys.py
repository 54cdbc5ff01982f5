"""Where what takes long to make is kept for a machine: compiled kernels, tables, the code of templates.

Equal content shares what was made of it: between processes, checkouts and environments. Kernels are known by what they are made
of (`kernel_content`); for what else is kept here that is the source of its module and of all that this imports.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

PACKAGE = __name__.split(".")[0]
ROOT = Path(__file__).parent.parent  # of the folders that stand for PACKAGE's subpackages
_IMPORT = re.compile(
    rf"^\s*(?:from|import) +({PACKAGE}(?:\.\w+)+)(?: +import +(\([^)]*\)|[^\n]*))?", re.MULTILINE
)
_KEEPERS = {
    f"{PACKAGE}.common.{name}"
    for name in (
        "costs",
        "kernel_cache",
        "kernel_code",
        "kernel_compiler",
        "kernel_content",
        "kernel_keys",
        "stored_tables",
    )
}
_FORMAT = 4  # of the folder; raise it when kernels are compiled in another way


def cache_folder() -> Path:
    """`$CORPUSMILL_KERNEL_CACHE`, or `corpusmill/kernels` in the user's cache folder; below it, one for each Numba."""
    given = os.environ.get("CORPUSMILL_KERNEL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given or Path(base, "corpusmill", "kernels")) / _generation()


def shipped_folder() -> Path:
    """Of the code that a wheel brings along (`tools/wheel.py`), read where the cache has none; a clone has no such folder."""
    return ROOT / "machine_code" / _generation()


@cache
def _generation() -> str:
    return f"{_FORMAT}-numba-{version('numba')}"


def is_first_use() -> bool:
    """Whether no kernel has been compiled on this machine, and none came with the package that its processor runs."""
    if _has_code(cache_folder()):
        return False
    from corpusmill.common.kernel_code import runs_portable  # loads LLVM

    return not (_has_code(shipped_folder()) and runs_portable())


def _has_code(folder: Path) -> bool:
    return next(folder.glob("*/*.code"), None) is not None


def folder_of(function: Callable[..., Any]) -> Path:
    """For what a function makes: a folder for each state of its module and of what that imports."""
    module = function.__module__
    key = digest(module, Path(function.__code__.co_filename))
    return cache_folder() / f"{module.removeprefix(PACKAGE + '.')}-{key[:16]}"


def keep(file: Path, data: bytes) -> None:
    """Write a file of that folder in one piece, as other processes read it; nothing where it cannot be written."""
    part = file.with_suffix(f".{uuid4().hex}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()


@cache
def digest(module: str, file: Path) -> str:
    """SHA-256 (hex) of a module's source and of the sources of this package that it imports, however far."""
    first = _Source.of(file)
    found, todo = {module: first}, [first]
    while todo:
        for name in todo.pop().imports:
            if name not in found and (source := _source(name)) is not None:
                found[name] = source
                todo.append(source)
    whole = hashlib.sha256()
    for name in sorted(found):
        whole.update(name.encode() + b"\0" + found[name].sha256)
    return whole.hexdigest()


class _Source(NamedTuple):
    """A module's source: its hash, and the modules of this package that it names in imports, with what may be modules among
    the names taken from them. What keeps kernels is none of them, as it does not change what they are."""

    sha256: bytes
    imports: frozenset[str]

    @classmethod
    def of(cls, file: Path) -> _Source:
        data = file.read_bytes()
        found = set()
        for module, names in _IMPORT.findall(data.decode("utf-8")):
            found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
        return cls(hashlib.sha256(data).digest(), frozenset(found - _KEEPERS))


@cache
def _source(module: str) -> _Source | None:
    """A module of this package; of a package, its `__init__.py`; None if there is none."""
    place = ROOT.joinpath(*module.split(".")[1:])
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return _Source.of(file)
    return None
