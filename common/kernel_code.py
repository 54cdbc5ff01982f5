"""Machine code of compiled kernels, kept in files and loaded without Numba, which itself takes long to start.

A kernel's object code, as Numba compiled it, needs of Numba three extension modules (arrays' reference counts, exceptions,
the function object), which are loaded here by themselves. Where a Numba is laid out otherwise, nothing is loaded and Numba
does it.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import platform
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

_ARRAY = b"\x80\x04\x95\x15\0\0\0\0\0\0\0\x8c\x05numpy\x94\x8c\x07ndarray\x94\x93\x94."  # the class of arrays, as Numba writes it
_EXTENSIONS = ("_dynfunc", "_helperlib", "core.runtime._nrt_python")


class Code(NamedTuple):
    """A compiled kernel."""

    entry: str  # the symbol of the function that takes Python objects
    environment: str  # the symbol of the pointer that it expects to be set
    dtypes: tuple[Any, ...]  # of arrays that it returns: strings, or lists of fields
    machine: bytes  # an object file

    def to_bytes(self) -> bytes:
        """A file: a line of JSON with the checksum, then the object file."""
        head = {**self._asdict(), "machine": xxhash.xxh3_128_hexdigest(self.machine)}
        return json.dumps(head).encode() + b"\n" + self.machine


def from_bytes(data: bytes) -> Code | None:
    """What a file holds; None if it is not whole."""
    line, _, machine = data.partition(b"\n")
    try:
        head = json.loads(line)
        if head["machine"] != xxhash.xxh3_128_hexdigest(machine):
            return None
        return Code(head["entry"], head["environment"], tuple(head["dtypes"]), machine)
    except (ValueError, KeyError, TypeError):
        return None


def described(dtype: np.dtype[Any]) -> Any:
    """What `dtype_of` makes it from again, in JSON; None if it has a layout that this does not tell."""
    form: Any = dtype.str if dtype.names is None else [list(field) for field in dtype.descr]
    return form if dtype_of(form) == dtype else None


def dtype_of(form: Any) -> np.dtype[Any]:
    """The dtype of a string, or of a list of fields."""
    return np.dtype(form if isinstance(form, str) else [tuple(field) for field in form])


class _Natives(NamedTuple):
    """LLVM's loader, and Numba's extension module that makes function objects."""

    llvm: Any
    functions: Any


@cache
def natives() -> _Natives | None:
    """The process's loader, made at the first call; None where this Numba is not known."""
    try:
        import llvmlite.binding as llvm

        functions, helpers, runtime = (_extension(f"numba.{name}") for name in _EXTENSIONS)
        symbols = {"_Py_NoneStruct": id(None)}
        symbols |= {
            f"PyExc_{name}": id(kind)
            for name, kind in vars(builtins).items()
            if isinstance(kind, type) and issubclass(kind, BaseException)
        }
        for module in (helpers, functions):
            symbols |= {f"numba_{name}": address for name, address in module.c_helpers.items()}
        symbols |= {
            name if name.startswith("_") else f"NRT_{name}": address
            for name, address in runtime.c_helpers.items()
        }
        runtime.memsys_use_cpython_allocator()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except (ImportError, AttributeError, OSError):
        return None
    symbols["numba_unpickle"] = ctypes.cast(_OBJECT_OF, ctypes.c_void_p).value or 0
    for name, address in symbols.items():
        llvm.add_symbol(name, address)
    return _Natives(llvm, functions)


def _object_of(data: int, size: int, digest: int) -> Any:
    """The object of Python that machine code holds as a pickle: the class of the arrays that it returns, which Numba would have to be
    imported for. Everything else, as what an exception is made of, is left to Numba."""
    content = ctypes.string_at(data, size)
    if content == _ARRAY:
        return np.ndarray
    from numba.core.serialize import _numba_unpickle

    return _numba_unpickle(data, content, ctypes.string_at(digest, 20))  # type: ignore[no-untyped-call]


_OBJECT_OF = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(_object_of)


def _extension(name: str) -> Any:
    """An extension module of Numba, without the packages around it. Numba, imported later, takes the same one."""
    if name in sys.modules:
        return sys.modules[name]
    package = find_spec("numba")
    if package is None or not package.submodule_search_locations:
        raise ImportError("no Numba")
    place = Path(package.submodule_search_locations[0], *name.split(".")[1:])
    file = next((f for s in EXTENSION_SUFFIXES if (f := Path(f"{place}{s}")).is_file()), None)
    spec = file and spec_from_file_location(name, file)
    if not spec or spec.loader is None:
        raise ImportError(f"no {name}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return sys.modules.setdefault(name, module)


class Processor(NamedTuple):
    """What object code is compiled for, in LLVM's words."""

    name: str
    features: str  # as `+avx2,-sse4a`


# What a wheel holds the kernels' code for: Intel's processors from Haswell (2013), AMD's from Excavator (2015).
PORTABLE = Processor(
    "x86-64-v3",
    "+avx,+avx2,+bmi,+bmi2,+cmov,+crc32,+cx16,+cx8,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,+popcnt,+sahf,+sse,+sse2,+sse3,+sse4.1,"
    "+sse4.2,+ssse3,+xsave",
)


@cache
def processor() -> Processor:
    """This machine's, or the one that Numba's settings name."""
    found = natives()
    if found is None:
        return Processor("", "")
    features: Any = found.llvm.get_host_cpu_features()
    return Processor(
        os.environ.get("NUMBA_CPU_NAME") or found.llvm.get_host_cpu_name(),
        os.environ.get("NUMBA_CPU_FEATURES") or features.flatten(),
    )


@cache
def runs_portable() -> bool:
    """Whether code for `PORTABLE` runs here: on Linux, whose object files it is in, and with each of its features."""
    if natives() is None or sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    own = set(processor().features.split(","))
    return own.issuperset(PORTABLE.features.split(","))


def loaded(code: Code, function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled kernel of a Python function, to be called with arguments of the types that it was compiled for."""
    found = natives()
    assert found is not None, "there is no code without it"
    llvm = found.llvm
    # One for each: two kernels may hold copies of a third one's symbols.
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.machine))
    engine.finalize_object()
    environment = found.functions.Environment(function.__globals__)
    environment.consts.extend(dtype_of(one) for one in code.dtypes)
    place = engine.get_global_value_address(code.environment)
    ctypes.c_void_p.from_address(place).value = id(environment)
    address = engine.get_function_address(code.entry)
    made: Callable[..., Any] = found.functions.make_function(
        sys.modules[function.__module__], function.__name__, function.__doc__ or "", address, environment, (engine,)
    )  # fmt: skip
    return made
