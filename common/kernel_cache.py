"""Kernels compiled by Numba once for a machine: one folder, keyed by what the kernels are made of.

`compiled` marks a function. At its first call with arguments of some types its machine code is loaded from the folder
(`kernel_code`); only where it is not there is Numba imported and the function compiled (`kernel_compiler`). The key is what the
kernel is made of (`kernel_content`): a change anywhere below a kernel compiles it again, and no other change.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from corpusmill.common import kernel_code
from corpusmill.common.costs import METER
from corpusmill.common.kernel_content import name_of_kernel
from corpusmill.common.kernel_keys import cache_folder, keep, shipped_folder

Function = TypeVar("Function", bound=Callable[..., Any])

_WORD = 1 << 63  # Python's integers from here on are uint64 to Numba
# Settings of Numba that change what it compiles.
_SETTINGS = ("OPT", "ENABLE_AVX", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK")
_NUMBERS = frozenset({bool, float, type(None), np.bool_, *(np.dtype(code).type for code in "bBhHiIlLqQfd")})

_lock = threading.RLock()  # a kernel is loaded or compiled once


@overload
def compiled(function: Function) -> Function: ...
@overload
def compiled(*, inline: Any) -> Callable[[Function], Function]: ...
def compiled(function: Any = None, *, inline: str = "never") -> Any:
    """A function as a kernel: compiled without the GIL, kept in `cache_folder()`. `inline="always"` pastes it into the kernels that
    call it.

    A process that needs a kernel while another one compiles it waits for that. Where the folder cannot be written, each
    compiles for itself.
    """
    if function is None:
        return lambda given: Kernel(given, inline)
    return Kernel(function, inline)


class Kernel:
    """A compiled function. Its arguments are arrays, numbers, and tuples of them; kernels call each other inside Numba."""

    def __init__(self, function: Callable[..., Any], inline: str) -> None:
        self.py_func = function  # this name and the next are those by which Numba knows what to paste
        self.targetoptions = {"inline": inline}
        self._defaults: tuple[Any, ...] = getattr(function, "__defaults__", None) or ()
        self._entries: dict[tuple[Any, ...], Callable[..., Any]] = {}
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        lacking = self.py_func.__code__.co_argcount - len(arguments)
        if lacking > 0 and self._defaults:
            arguments += self._defaults[-lacking:]
        kinds = tuple(map(_kind, arguments))
        entry = self._entries.get(kinds)
        if entry is None:
            with _lock:
                entry = self._entries.get(kinds) or self._entry(kinds, arguments)
                self._entries[kinds] = entry
        return entry(*arguments)

    def __reduce__(self) -> str:  # by its name in its module
        return self.py_func.__qualname__

    def __repr__(self) -> str:
        return f"<kernel {self.__module__}.{self.py_func.__qualname__}>"

    @property
    def compiles(self) -> bool:
        """Whether Numba has been needed for it in this process."""
        return "dispatcher" in vars(self)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's form of it."""
        from corpusmill.common.kernel_compiler import dispatcher

        return dispatcher(self.py_func, self.targetoptions["inline"])

    @property
    def _numba_type_(self) -> Any:
        """How Numba finds it where another kernel calls it."""
        from numba.core.types import Dispatcher

        return Dispatcher(self.dispatcher)

    def _entry(self, kinds: tuple[Any, ...], arguments: tuple[Any, ...]) -> Callable[..., Any]:
        file = self._file(kinds, cache_folder(), kernel_code.processor())
        with METER.phase("loading kernels"):
            code = None if file is None else _read(file)
            if code is None and kernel_code.runs_portable():
                shipped = self._file(kinds, shipped_folder(), kernel_code.PORTABLE)
                code = None if shipped is None else _read(shipped)
            if code is not None:
                return kernel_code.loaded(code, self.py_func)
        with METER.phase("compiling kernels"):
            from corpusmill.common.kernel_compiler import compiled_for

            entry, code = compiled_for(self.dispatcher, arguments)
        if file is not None and code is not None:
            keep(file, code.to_bytes())
        return entry

    def _file(self, kinds: tuple[Any, ...], base: Path, processor: kernel_code.Processor) -> Path | None:
        if kernel_code.natives() is None:
            return None
        settings = [os.environ.get(f"NUMBA_{name}") for name in _SETTINGS]
        what = f"{sys.implementation.cache_tag} {processor} {settings} {_text(kinds)}"
        name = f"{self.py_func.__qualname__}-{hashlib.sha256(what.encode()).hexdigest()[:16]}.code"
        return base / name_of_kernel(self.py_func) / name


def _kind(value: Any) -> Any:
    """The type of an argument as far as Numba compiles a kernel of its own for it, hashable. Raises `TypeError`."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        flags = value.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return value.dtype, value.ndim, order, flags.writeable, flags.aligned
    if kind is int:
        return int if -_WORD <= value < _WORD else np.uint64
    if isinstance(value, tuple):
        return kind, *map(_kind, value)
    if kind in _NUMBERS:
        return kind
    raise TypeError(
        f"a kernel takes arrays, numbers and tuples of them, not {kind.__module__}.{kind.__qualname__}"
    )


def _text(kind: Any) -> str:
    """A kind in words that are the same in every process."""
    if isinstance(kind, tuple):
        return f"({', '.join(map(_text, kind))})"
    if isinstance(kind, type):
        return f"{kind.__module__}.{kind.__qualname__}{getattr(kind, '_fields', '')}"
    if isinstance(kind, np.dtype):
        return kind.str if kind.names is None else repr(kind)
    return repr(kind)


def _read(file: Path) -> kernel_code.Code | None:
    try:
        return kernel_code.from_bytes(file.read_bytes())
    except OSError:
        return None
