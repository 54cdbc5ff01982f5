r"""Classes of characters: which are letters, numbers, white space, and where runs of them end in UTF-8 text.

Which characters are of a class is asked of the installed `tokenizers`: its regular expressions have the tables of their own
engine, of a Unicode version of its own, and the kernels must agree with it on every code point. Asked is about the planes in
which characters are assigned: unassigned ones and those of private use are of no class, and are three quarters of all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.common.stored_tables import stored
from corpusmill.pipeline.bpe.kernels.buffers import load, pointer, trailing_zeros

# Bits of a character's classes.
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
CODE_POINTS: Final = 0x110000
# Planes with assigned characters, (first, last + 1); surrogates are no text.
ASSIGNED: Final = ((0, 0xD800), (0xE000, 0x40000), (0xE0000, 0xE1000))
CJK_RANGES: Final = "一-龥\u3040-ゟ゠-ヿ"
# Bit -> what stands in a bracket expression for it.
EXPRESSIONS: Final = {
    LETTER: r"\p{L}",
    NUMBER: r"\p{N}",
    SPACE: r"\s",
    CAPITAL: r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
    SMALL: r"\p{Ll}\p{Lm}\p{Lo}\p{M}",
    MARK: r"\p{M}",
    SYMBOL: r"\p{P}\p{S}",
    CJK: CJK_RANGES,
}
_PIECE: Final = 4096  # characters asked about at once: the library's own offsets cost their square


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
    index, kept = np.zeros(1 << 15, np.int32), dict[bytes, int]()
    for number, block in enumerate(bits.reshape(-1, 64)):
        index[number] = kept.setdefault(block.tobytes(), len(kept) * 64)
    return Classes(bits[:128].copy(), index, np.frombuffer(b"".join(kept), np.uint16).copy())


@lru_cache(maxsize=1)
def characters() -> str:
    """Every code point of `ASSIGNED`, in order."""
    return "".join("".join(map(chr, range(first, last))) for first, last in ASSIGNED)


def flat(made: Classes) -> npt.NDArray[np.uint16]:
    """The same in one array, which `stored` keeps."""
    return np.concatenate([made.ascii, made.places.view(np.uint16), made.blocks])


def of_flat(table: npt.NDArray[np.uint16]) -> Classes:
    """The classes of such an array."""
    ascii, places, blocks = np.split(table, [128, 128 + (2 << 15)])
    return Classes(ascii.copy(), places.copy().view(np.int32), blocks.copy())


@lru_cache(maxsize=16)
def classes(wanted: int) -> Classes:
    """The classes whose bits are in `wanted`."""
    return of_flat(_flat_classes(wanted))


@stored(packages=("tokenizers",))
def _flat_classes(wanted: int) -> npt.NDArray[np.uint16]:
    bits = np.zeros(CODE_POINTS, np.uint16)
    for bit in range(9):
        if wanted & 1 << bit:
            bits[members(1 << bit)] |= np.uint16(1 << bit)
    return flat(pack(bits))


@stored(packages=("tokenizers",))
def members(bit: int) -> npt.NDArray[np.uint32]:
    """The code points of one class, in order."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    if bit == NUMERIC:
        text, digits = characters(), pre_tokenizers.Digits(individual_digits=True)
        pieces = (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))
        split = (digits.pre_tokenize_str(f"a{piece}a") for piece in pieces)  # the first piece is no digit
        kept = "".join(part for parts in split for part, _ in parts[1:-1] if len(part) == 1)
        # Between two digits a single character that is none would pass: digits alone are cut one by one.
        kept = "".join(c for c in kept if len(digits.pre_tokenize_str(f"a{c}a")) == 3)
    else:
        kept = normalizers.Replace(Regex(f"[^{EXPRESSIONS[bit]}]+"), "").normalize_str(characters())
    return np.frombuffer(kept.encode("utf-32-le"), np.uint32)


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
def look(data: Any, at: int, stop: int, classes: Any) -> tuple[Any, int]:
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
