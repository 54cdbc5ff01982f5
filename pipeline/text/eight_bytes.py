"""Eight bytes at a time: tests of all bytes of a 64-bit word at once ("SIMD within a register", Fisher and Dietz 1998), for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled

HIGH = np.uint64(0x8080808080808080)  # the bit that a byte of ASCII has not
_ONES = np.uint64(0x0101010101010101)
_SEVEN = np.uint64(0x7F7F7F7F7F7F7F7F)
_TAB = np.uint64(0x0909090909090909)
_NEWLINE = np.uint64(0x0A0A0A0A0A0A0A0A)
_QUOTE = np.uint64(0x2222222222222222)
_BACKSLASH = np.uint64(0x5C5C5C5C5C5C5C5C)
_TO_SPACE = np.uint64(0x6060606060606060)  # from the space on, sums have the high bit


@compiled(inline="always")
def read_word(data: Any, i: Any) -> Any:
    """The 8 bytes from `data[i]`, little endian; all of them must be there."""
    value = np.uint64(0)
    for k in range(8):
        value |= np.uint64(data[np.uint64(i) + np.uint64(k)]) << np.uint64(8 * k)
    return value


@compiled(inline="always")
def first_of(flags: Any) -> Any:
    """The place of the first byte whose high bit is set, 0 to 7; `flags` has no other bits and is not 0."""
    below = (flags & (~flags + np.uint64(1))) - np.uint64(1)
    return np.int64((((below & _ONES) * _ONES) >> np.uint64(56)) - np.uint64(1))


@compiled(inline="always")
def first_bytes(word: Any, count: Any) -> Any:
    """The word's first `count` bytes, less than 8, the others 0."""
    return word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))


@compiled(inline="always")
def unclean(word: Any) -> Any:
    """Not 0 if any byte is beyond ASCII, DEL, or a control other than tab and newline."""
    low = word & _SEVEN
    control = ~(low + _TO_SPACE) & ((low ^ _TAB) + _SEVEN) & ((low ^ _NEWLINE) + _SEVEN)
    return (word | control | (low + _ONES)) & HIGH


@compiled(inline="always")
def ends_run(word: Any) -> Any:
    """The high bit of each byte that cannot stand for itself in a JSON string: a quote, a backslash, a control below the space."""
    low = word & _SEVEN
    plain = (low + _TO_SPACE) & ((low ^ _QUOTE) + _SEVEN) & ((low ^ _BACKSLASH) + _SEVEN)
    return ~plain & ~word & HIGH


@compiled(inline="always")
def equal_to(word: Any, byte: Any) -> Any:
    """The high bit of each byte that is `byte`."""
    rest = word ^ (_ONES * np.uint64(byte))
    return ~(((rest & _SEVEN) + _SEVEN) | rest) & HIGH


@compiled(inline="always")
def below(word: Any, byte: Any) -> Any:
    """The high bit of each byte that is less than `byte`, which is of ASCII."""
    return ~((word & _SEVEN) + _ONES * np.uint64(128 - byte)) & ~word & HIGH


@compiled(inline="always")
def continuations(word: Any) -> Any:
    """How many of 8 bytes of UTF-8 are not the first of a character."""
    each = (word >> np.uint64(7)) & ~(word >> np.uint64(6)) & _ONES
    return (each * _ONES) >> np.uint64(56)
