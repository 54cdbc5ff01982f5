"""Buffers as plain pointers, and eight bytes at a time from any place of them.

An array handed from one compiled function to the next costs counting its references, more than the function itself when
that is called for every word. Inside the kernels a buffer is therefore a pointer, read by index, without bounds: who calls
keeps the array alive and the index within it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled


class _Intrinsic:
    """An instruction that Numba has no word for, to be called in kernels; made when the first of them is compiled. `code` gives its
    signature for the types of its arguments, and what writes it."""

    def __init__(self, code: Any) -> None:
        self._code = code

    @cached_property
    def _made(self) -> Any:
        from numba.extending import intrinsic

        return intrinsic(self._code)

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        made, context = self._made, cpu_target.typing_context
        context.refresh()  # so that it knows of it
        return context.resolve_value_type(made)


def _pointer_code(typing: Any, array: Any) -> Any:
    """Where an array's values begin, to be indexed."""
    from numba import types

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    c_pointer: Any = types.CPointer  # has no type hints
    return c_pointer(array.dtype)(array), code


pointer: Any = _Intrinsic(_pointer_code)


def _fetch_code(typing: Any, data: Any, at: Any) -> Any:
    """Ask the processor to have the value at index `at` near soon."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, text = ir.IntType(32), ir.IntType(8).as_pointer()
        declared: Any = cgutils.get_or_insert_function  # has no type hints
        function = declared(
            builder.module, ir.FunctionType(ir.VoidType(), [text, number, number, number]), "llvm.prefetch.p0"
        )
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), text)
        builder.call(
            function, [place, number(0), number(3), number(1)]
        )  # to be read, kept in all caches, data
        return context.get_dummy_value()

    return types.void(data, types.int64), code


fetch: Any = _Intrinsic(_fetch_code)


def _unaligned_code(typing: Any, data: Any, at: Any) -> Any:
    """uint64 of the eight bytes at `at`; the caller has seen that they are there."""
    from llvmlite import ir
    from numba import types

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        value = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
        value.align = 1
        return value

    return types.uint64(data, types.int64), code


_unaligned: Any = _Intrinsic(_unaligned_code)


def _zeros_code(typing: Any, word: Any) -> Any:
    """The number of zero bits below the lowest one of a uint64; 64 if it is 0."""
    from llvmlite import ir
    from numba import types

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.uint64), code


trailing_zeros: Any = _Intrinsic(_zeros_code)


@compiled
def load(data: Any, at: Any, size: Any, stop: Any) -> Any:
    """The first `size` bytes (1 to 8) from `at`, little-endian, zero behind them. Reads nothing from `stop` on."""
    if at + 8 <= stop:
        return _unaligned(data, at) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * size))
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@compiled
def mix(word: Any) -> Any:
    """A 64-bit finalizer (Stafford's thirteenth variant of MurmurHash3's)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def hash_bytes(data: Any, at: Any, size: Any, stop: Any) -> Any:
    """A hash of `size` bytes; not keyed: only speed depends on it."""
    value = np.uint64(size)
    for start in range(at, at + size - 7, 8):
        value = mix(value ^ load(data, start, 8, stop)) + np.uint64(0x9E3779B97F4A7C15)
    if size & 7:
        value = mix(value ^ load(data, at + (size & ~7), size & 7, stop))
    return value


@compiled
def same(a: Any, at: Any, b: Any, other: Any, size: Any) -> bool:
    """Whether `size` bytes of `a` from `at` are those of `b` from `other`."""
    for i in range(0, size, 8):
        length = min(8, size - i)
        if load(a, at + i, length, at + size) != load(b, other + i, length, other + size):
            return False
    return True
