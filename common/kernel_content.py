"""What a kernel is made of, as a hash: its bytecode, and whatever it takes from outside: other kernels, constants, functions.

Numba compiles constants of a module and the kernels that a kernel calls into it, so each of them is part of the key; a comment, a line
more, or another function of the module is not. What cannot be described counts as the source of its module (`kernel_keys.digest`).
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from dis import EXTENDED_ARG, opmap
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from corpusmill.common.kernel_keys import PACKAGE, digest

_LOAD_GLOBAL = opmap["LOAD_GLOBAL"]
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), np.generic)
_known: dict[Any, str] = {}  # function -> its hash; they live as long as the process


def made_of(function: Callable[..., Any]) -> str:
    """SHA-256 (hex) of what the machine code of a function depends on, besides Python, Numba and the processor."""
    return _function(function, ())


def name_of_kernel(function: Callable[..., Any]) -> str:
    """The name of a kernel's folder: one for each state of it."""
    name = f"{function.__module__.removeprefix(PACKAGE + '.')}.{function.__qualname__}"
    return f"{name}-{made_of(function)[:16]}"


def _function(function: Any, callers: tuple[Any, ...]) -> str:
    found = _known.get(function)
    if found is not None:
        return found
    if function in callers:  # it calls itself, which is the only circle that Numba compiles
        return str(function.__qualname__)
    whole = hashlib.sha256()
    used, names = set[str](), set[str]()
    for part in _code(function.__code__, used, names, function.__doc__):
        whole.update(part.encode() + b"\0")
    outside = {name: function.__globals__[name] for name in sorted(used) if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        outside[name] = cell.cell_contents
    outside |= {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
    for name, value in outside.items():
        whole.update(f"{name} {_value(value, names, (*callers, function))}\0".encode())
    key = _known[function] = whole.hexdigest()
    return key


def _code(code: CodeType, used: set[str], names: set[str], doc: str | None = None) -> Iterator[str]:
    """A code object in words. The globals that it looks up are added to `used`, these and names of attributes to `names`."""
    names.update(code.co_names)
    used.update(_globals(code))
    yield repr(
        (code.co_argcount, code.co_flags, code.co_varnames, code.co_names, code.co_freevars, code.co_cellvars)
    )
    yield code.co_code.hex()
    yield code.co_exceptiontable.hex()
    for number, one in enumerate(code.co_consts):
        if isinstance(one, CodeType):
            yield from _code(one, used, names)
        elif number or one != doc:
            yield _value(one, names, ())


def _globals(code: CodeType) -> Iterator[str]:
    high = 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        number = high | low
        high = number << 8 if operation == EXTENDED_ARG else 0
        if operation == _LOAD_GLOBAL:
            yield code.co_names[number >> 1]  # the lowest bit: it is called


def _value(value: Any, names: set[str], callers: tuple[Any, ...]) -> str:
    """What a name stands for, in words that are the same in every process."""
    kind = type(value)
    if isinstance(value, _PLAIN):
        return f"{kind.__name__} {value!r}"
    if isinstance(value, tuple | list):
        return f"{kind.__qualname__} [{', '.join(_value(one, names, callers) for one in value)}]"
    if isinstance(value, frozenset):
        return f"frozenset {sorted(_value(one, names, callers) for one in value)}"
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"array {value.dtype!r} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, np.dtype):
        return repr(value)
    if hasattr(value, "py_func") and hasattr(value, "targetoptions"):  # a kernel
        return f"kernel {value.targetoptions} {_function(value.py_func, callers)}"
    if isinstance(value, ModuleType):
        if value.__name__.split(".")[0] != PACKAGE:
            return value.__name__
        used = sorted(names & set(vars(value)))
        return f"{value.__name__} {[_value(getattr(value, name), names, callers) for name in used]}"
    name = (
        f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"
    )
    if not name.startswith(f"{PACKAGE}.") and (
        isinstance(value, type | FunctionType | BuiltinFunctionType | np.ufunc)
        or kind.__module__.startswith("numpy")
    ):
        return name
    if isinstance(value, FunctionType):
        return f"function {_function(value, callers)}"
    of = value if isinstance(value, type) else kind
    if hasattr(of, "_fields"):
        return f"{name} {of._fields}"
    try:
        return f"{name} {digest(of.__module__, Path(inspect.getfile(of)))}"
    except (TypeError, OSError):  # it has no source
        return f"{name} {of.__module__}.{of.__qualname__}"
