"""Buffers as plain pointers, eight bytes at a time from any place of them, and UTF-8 characters by class.

An array handed from one compiled function to the next costs counting its references, more than the function itself when
that is called for every word. Inside the kernels a buffer is therefore a pointer, read by index, without bounds: who calls
keeps the array alive and the index within it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from corpusmill.common.kernel_cache import compiled

_c_pointer: Any = types.CPointer  # these two have no type hints
_declared_function: Any = cgutils.get_or_insert_function


def _pointer_code(typing: Any, array: Any) -> Any:
    """Where an array's values begin, to be indexed."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return _c_pointer(array.dtype)(array), code


pointer: Any = intrinsic(_pointer_code)


def _fetch_code(typing: Any, data: Any, at: Any) -> Any:
    """Ask the processor to have the value at index `at` near soon."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, text = ir.IntType(32), ir.IntType(8).as_pointer()
        function = _declared_function(
            builder.module, ir.FunctionType(ir.VoidType(), [text, number, number, number]), "llvm.prefetch.p0"
        )
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), text)
        builder.call(
            function, [place, number(0), number(3), number(1)]
        )  # to be read, kept in all caches, data
        return context.get_dummy_value()

    return types.void(data, types.int64), code


fetch: Any = intrinsic(_fetch_code)


def _unaligned_code(typing: Any, data: Any, at: Any) -> Any:
    """uint64 of the eight bytes at `at`; the caller has seen that they are there."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        value = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
        value.align = 1
        return value

    return types.uint64(data, types.int64), code


_unaligned: Any = intrinsic(_unaligned_code)


def _zeros_code(typing: Any, word: Any) -> Any:
    """The number of zero bits below the lowest one of a uint64; 64 if it is 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.uint64), code


trailing_zeros: Any = intrinsic(_zeros_code)


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


# Bits of a character's classes; `classes.py` asks the library which characters have them.
LETTER: Final = 1  # \p{L}
NUMBER: Final = 2  # \p{N}
SPACE: Final = 4  # \s
CAPITAL: Final = 8  # [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
SMALL: Final = 16  # [\p{Ll}\p{Lm}\p{Lo}\p{M}]
MARK: Final = 32  # \p{M}
SYMBOL: Final = 64  # [\p{P}\p{S}]
NUMERIC: Final = 128  # Rust's char::is_numeric, as the `Digits` pre-tokenizer takes it
CJK: Final = 256  # DeepSeek's range of ideographs and kana
_EACH: Final = 0x0101010101010101  # a byte, in each of eight


class Classes(NamedTuple):
    """Bits per code point in blocks of 64, which is what the last byte of a UTF-8 character addresses."""

    ascii: npt.NDArray[np.uint16]  # [128]
    places: npt.NDArray[np.int32]  # [32768]: code point >> 6 -> where its block begins
    blocks: npt.NDArray[np.uint16]


class ClassPointers(NamedTuple):
    """The same inside the kernels."""

    ascii: Any
    places: Any
    blocks: Any


def pack(bits: npt.NDArray[np.uint16]) -> Classes:
    """Classes from the bits of all 0x110000 code points; equal blocks are kept once."""
    rows, inverse = np.unique(bits.reshape(-1, 64), axis=0, return_inverse=True)
    index = np.zeros(1 << 15, np.int32)
    index[: len(inverse)] = inverse.reshape(-1) * 64
    return Classes(bits[:128].copy(), index, np.ascontiguousarray(rows).reshape(-1))


@compiled
def class_pointers(classes: Any) -> Any:
    """The arrays of classes as pointers, as the functions below take them; they must outlive them."""
    return ClassPointers(pointer(classes.ascii), pointer(classes.places), pointer(classes.blocks))


@compiled
def width(lead: Any) -> int:
    """Bytes of the character that begins with `lead`."""
    if lead < 0xC0:
        return 1
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


@compiled
def look(data: Any, at: int, stop: int, classes: Any) -> Any:
    """(bits of the character at `at`, where the next one begins). Bytes that are no UTF-8 belong to no class or to some
    class, but nothing beyond `stop` is read."""
    lead = data[at]
    if lead < 0x80:
        return classes.ascii[lead], at + 1
    size = width(lead)
    if at + size > stop:
        return np.uint16(0), stop
    if size == 3:
        high = ((lead & 15) << 6) | (data[at + 1] & 63)
    elif size == 2:
        high = np.int64(lead & 31)
    elif size == 1:
        return np.uint16(0), at + 1
    else:
        high = ((lead & 7) << 12) | ((data[at + 1] & 63) << 6) | (data[at + 2] & 63)
    return classes.blocks[classes.places[high] + (data[at + size - 1] & 63)], at + size


@compiled
def run_latin(data: Any, at: int, stop: int, both: bool) -> int:
    """Where the run of ASCII's small letters, or of `both` cases, ends that goes on at `at`, or at most seven bytes before
    `stop`. Eight bytes are looked at together, so a word costs no branch a letter."""
    while at + 8 <= stop:
        word = load(data, at, 8, stop)
        low = (word | np.uint64(_EACH * 0x20) if both else word) & np.uint64(_EACH * 0x7F)
        # The top bit of each byte: it is at least "a", not beyond "z", and ASCII.
        letters = (low + np.uint64(_EACH * (0x80 - 0x61))) & ~(low + np.uint64(_EACH * (0x80 - 0x7B))) & ~word
        count = trailing_zeros(~letters & np.uint64(_EACH * 0x80)) >> 3
        at += count
        if count < 8:
            break
    return at


@compiled
def run(data: Any, at: int, stop: int, classes: Any, wanted: int) -> int:
    """Where the run of characters with any of the bits `wanted` ends that goes on at `at`."""
    while at < stop:
        bits, after = look(data, at, stop, classes)
        if not bits & wanted:
            break
        at = after
    return at


@compiled
def run_without(data: Any, at: int, stop: int, classes: Any, unwanted: int) -> int:
    """Where the run of characters with none of the bits `unwanted` ends that goes on at `at`."""
    while at < stop:
        bits, after = look(data, at, stop, classes)
        if bits & unwanted:
            break
        at = after
    return at
