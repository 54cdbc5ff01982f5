r"""Which characters are letters, numbers, white space: asked of the installed `tokenizers`.

Its regular expressions have the tables of their own engine, of a Unicode version of its own; the kernels must agree with it
on every code point. One question per class about all code points takes about 0.1 s, once a process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.bpe.kernels.utf8 import (
    CAPITAL,
    CJK,
    LETTER,
    MARK,
    NUMBER,
    NUMERIC,
    SMALL,
    SPACE,
    SYMBOL,
    Classes,
    pack,
)

CODE_POINTS: Final = 0x110000
CJK_RANGES: Final = "一-龥\u3040-ゟ゠-ヿ"
# Bit -> what stands in a bracket expression for it.
_EXPRESSIONS: Final = {
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


@lru_cache(maxsize=1)
def characters() -> str:
    """Every code point that text may hold, in order."""
    return "".join(map(chr, [*range(0xD800), *range(0xE000, CODE_POINTS)]))


@lru_cache(maxsize=16)
def classes(wanted: int) -> Classes:
    """The classes whose bits are in `wanted`."""
    bits = np.zeros(CODE_POINTS, np.uint16)
    for bit in range(9):
        if wanted & 1 << bit:
            bits[members(1 << bit)] |= np.uint16(1 << bit)
    return pack(bits)


@lru_cache(maxsize=16)
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
        kept = normalizers.Replace(Regex(f"[^{_EXPRESSIONS[bit]}]+"), "").normalize_str(characters())
    return np.frombuffer(kept.encode("utf-32-le"), np.uint32)
