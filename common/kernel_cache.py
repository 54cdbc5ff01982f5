"""Numba kernels compiled once for a machine: one folder, keyed by what the kernels are made of.

Numba's own cache knows a function by the path and content of its file, whatever became of the functions that it calls in
other files. Here the key is the content of a kernel's module and of all modules of this package that it imports, so that a
change anywhere below compiles it again, and equal sources share what is compiled: between processes, checkouts and
environments.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, overload

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.core.sigutils import normalize_signature
from numba.core.types import IntegerLiteral

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

PACKAGE = __name__.split(".")[0]
ROOT = Path(__file__).parent.parent  # of the folders that stand for PACKAGE's subpackages
_IMPORT = re.compile(
    rf"^\s*(?:from|import) +({PACKAGE}(?:\.\w+)+)(?: +import +(\([^)]*\)|[^\n]*))?", re.MULTILINE
)

_locked: set[Path] = set()  # by this process, for a kernel that calls itself


@overload
def compiled(function: Kernel) -> Kernel: ...
@overload
def compiled(*, inline: Any) -> Callable[[Kernel], Kernel]: ...
def compiled(function: Any = None, *, inline: str = "never") -> Any:
    """`numba.njit` without the GIL, kept in `cache_folder()`. `inline="always"` pastes the function into its callers.

    A process that needs a kernel while another one compiles it waits for that. Where the folder cannot be written, each
    compiles for itself.
    """
    if function is None:
        return lambda given: _compiled(given, inline)
    return _compiled(function, inline)


def cache_folder() -> Path:
    """`$CORPUSMILL_KERNEL_CACHE`, or `corpusmill/kernels` in the user's cache folder; below it, one for each Numba."""
    given = os.environ.get("CORPUSMILL_KERNEL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given or Path(base, "corpusmill", "kernels")) / f"numba-{numba.__version__}"


def _compiled(function: Callable[..., Any], inline: Any) -> Any:
    dispatcher: Any = numba.njit(nogil=True, inline=inline)(function)
    compile_ = dispatcher.compile
    with suppress(RuntimeError):  # no locator: the folder cannot be written
        dispatcher._cache = _Cache(function)  # type: ignore[no-untyped-call]
        file = Path(dispatcher._cache.cache_path, f"{function.__qualname__}.lock")
        compile_ = partial(_alone, file, compile_)
    dispatcher.compile = partial(_once_for_integers, compile_)
    return dispatcher


def _once_for_integers(compile_: Callable[[Any], Any], signature: Any) -> Any:
    """Numba would compile a kernel again for each integer constant that another kernel passes to it."""
    types, _ = normalize_signature(signature)  # type: ignore[no-untyped-call]
    return compile_(tuple(kind.literal_type if isinstance(kind, IntegerLiteral) else kind for kind in types))


def _alone(file: Path, compile_: Callable[[Any], Any], signature: Any) -> Any:
    """What another process has compiled, or is compiling, is loaded here. Kernels that this one calls have locks of their
    own: calls make no circle, so neither do the waits."""
    with global_compiler_lock, ExitStack() as stack:  # before the file's, as Numba takes it for each kernel
        if file not in _locked:
            with suppress(OSError):  # a file system without locks
                lock = stack.enter_context(file.open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                _locked.add(file)
                stack.callback(_locked.discard, file)
        return compile_(signature)


class _ByContent(_CacheLocator):
    """A folder for each state of a module and of what it imports."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._digest = digest(function.__module__, Path(file))
        self._path = cache_folder() / f"{function.__module__.removeprefix(PACKAGE + '.')}-{self._digest[:16]}"

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _ByContent | None:
        found = cls(py_func, py_file)
        try:
            found.ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:
            return None
        return found


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_ByContent]  # noqa: RUF012 (as Numba has it)


class _Cache(FunctionCache):
    _impl_class = _Impl


@cache
def digest(module: str, file: Path) -> str:
    """SHA-256 (hex) of a module's source and of the sources of this package that it imports, however far."""
    found, todo = {module: file.read_bytes()}, [file.read_bytes()]
    while todo:
        for name in _imports(todo.pop().decode("utf-8")):
            if name not in found and (source := _source(name)) is not None:
                found[name] = source
                todo.append(source)
    whole = hashlib.sha256()
    for name in sorted(found):
        whole.update(name.encode() + b"\0" + hashlib.sha256(found[name]).digest())
    return whole.hexdigest()


def _imports(source: str) -> set[str]:
    """Modules of this package that a source names in imports, and what may be modules among the names taken from them."""
    found = set()
    for module, names in _IMPORT.findall(source):
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return found


@cache
def _source(module: str) -> bytes | None:
    """The bytes of a module of this package; of a package, its `__init__.py`; None if there is none."""
    place = ROOT.joinpath(*module.split(".")[1:])
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return file.read_bytes()
    return None
