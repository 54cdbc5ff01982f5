"""Numba as the compiler of kernels, imported only where one has to be compiled; a folder for its own cache.

Numba's own cache identifies a function by the path and the content of its file, whatever became of the functions that it calls
in other files. Here the key is what a kernel is made of (`kernel_content`).
"""

from __future__ import annotations

import fcntl
import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import BaseNativeLowering, NativeLowering
from numba.core.types import Array, Boolean, IntegerLiteral, NoneType, Number

from corpusmill.common.kernel_code import Code, described
from corpusmill.common.kernel_content import made_of, name_of_kernel
from corpusmill.common.kernel_keys import cache_folder

numba.config.DISABLE_ERROR_MESSAGE_HIGHLIGHTING = 1  # type: ignore[attr-defined]  # messages of attempts that fail and are dropped

_Tuple: Any = numba.types.BaseTuple  # Numba does not say what tuples consist of
_locked: set[Path] = set()  # by this process, for a kernel that calls itself


def dispatcher(function: Callable[..., Any], inline: str) -> Any:
    """`numba.njit` without the GIL, kept in the kernels' folder; where that cannot be written, each process compiles for itself.

    A process that needs a kernel while another one compiles it waits for that.
    """
    njit: Any = numba.njit
    made = njit(nogil=True, inline=inline, pipeline_class=_Compiler)(function)
    compile_ = made.compile
    with suppress(RuntimeError):  # no locator: the folder cannot be written
        made._cache = _Cache(function)  # type: ignore[no-untyped-call]
        file = Path(made._cache.cache_path, f"{function.__qualname__}.lock")
        compile_ = partial(_alone, file, compile_)
    made.compile = partial(_once_for_integers, compile_)
    return made


def compiled_for(dispatcher: Any, arguments: tuple[Any, ...]) -> tuple[Callable[..., Any], Code | None]:
    """A kernel for arguments of these types, and its code, if it can be loaded without Numba."""
    signature = tuple(dispatcher.typeof_pyval(one) for one in arguments)
    with _without_collections():
        entry = dispatcher.compile(signature)
    codes = getattr(getattr(dispatcher._cache, "_impl", None), "codes", {})
    return entry, codes.get(signature)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Numba makes millions of objects that live as long as the compilation: looking through them for garbage is a tenth of it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Lower(Lower):
    """Machine code that counts no references to the arrays that a kernel is given: its caller holds them until it returns.

    Numba counts one for each name of an array, in every turn of a loop, as a locked addition; in loops within loops that can take
    longer than the work. An array without a counter (null) is not counted, nor are its slices; those made in the kernel are.
    """

    def extract_function_arguments(self) -> list[Any]:
        given: list[Any] = super().extract_function_arguments()  # type: ignore[no-untyped-call]
        if _only_numbers(self.fndesc.restype):  # one that returns an array may return what it was given
            given = [
                self._uncounted(kind, value) for kind, value in zip(self.fndesc.argtypes, given, strict=True)
            ]
        self.fnargs = given
        return given

    def _uncounted(self, kind: Any, value: Any) -> Any:
        if isinstance(kind, Array):
            array = self.context.make_array(kind)(self.context, self.builder, value)
            array.meminfo = array.meminfo.type(None)
            return array._getvalue()
        if isinstance(kind, _Tuple):
            for place, one in enumerate(kind):
                part = self.builder.extract_value(value, place)
                value = self.builder.insert_value(value, self._uncounted(one, part), place)
        return value


def _only_numbers(kind: Any) -> bool:
    if isinstance(kind, _Tuple):
        return all(_only_numbers(one) for one in kind)
    return isinstance(kind, (Number, Boolean, NoneType))


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Lowering(BaseNativeLowering):
    _name = "corpusmill_lowering"  # type: ignore[assignment]

    @property
    def lowering_class(self) -> type[Lower]:
        return _Lower


class _Compiler(CompilerBase):
    """Numba's own, but for the lowering."""

    def define_pipelines(self) -> list[PassManager]:
        built = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        built.passes = [
            (_Lowering if one is NativeLowering else one, description) for one, description in built.passes
        ]
        built.finalize()
        return [built]


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
    """A folder for each state of a kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def get_cache_path(self) -> str:
        return str(cache_folder() / name_of_kernel(self._function))

    def get_source_stamp(self) -> str:
        return made_of(self._function)

    def get_disambiguator(self) -> str:
        return ""

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _ByContent | None:
        found = cls(py_func)
        try:
            found.ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:
            return None
        return found


class _Impl(CompileResultCacheImpl):
    """Keeps the code of what it saves and loads."""

    _locator_classes: list[Any] = [_ByContent]  # noqa: RUF012 (as Numba has it)

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self.codes: dict[tuple[Any, ...], Code] = {}

    def reduce(self, data: Any) -> Any:
        payload = super().reduce(data)  # type: ignore[no-untyped-call]
        self._keep(data, payload)
        return payload

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        data = super().rebuild(target_context, payload)  # type: ignore[no-untyped-call]
        self._keep(data, payload)
        return data

    def _keep(self, result: Any, payload: Any) -> None:
        (_, kind, library), description = payload[0], result.fndesc
        constants = result.environment.consts
        dtypes = tuple(described(one) if isinstance(one, np.dtype) else None for one in constants)
        # Other objects of Python, and what must run first, only Numba can load.
        if kind == "object" and not result.reload_init and None not in dtypes:
            code = Code(description.llvm_cpython_wrapper_name, description.env_name, dtypes, library[0])
            self.codes[tuple(result.signature.args)] = code


class _Cache(FunctionCache):
    _impl_class = _Impl
