"""What each code point is to the classifiers: kept in a cleaned text, white space, the end of a sentence."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text.unicode_classes import CLOSER, OTHER, SPACE, TERMINAL, class_table

Array = npt.NDArray[Any]

KEPT: Final = 1  # letters, digits and marks: what is left of a cleaned text, with apostrophes inside words
BLANK: Final = 2  # str.isspace()
END: Final = 4  # ends a sentence if white space follows
CLOSE: Final = 8  # may stand between the two
END_ALONE: Final = 16  # ends a sentence whatever follows: the marks of scripts without spaces


@lru_cache(maxsize=1)
def tables() -> tuple[Array, Array]:
    """(bits uint8, lower-case code point int32) of every code point, from this Python's `unicodedata`."""
    known = class_table()
    bits = np.zeros(len(known), np.uint8)
    bits[known & (OTHER | SPACE) == 0] |= KEPT
    bits[known & SPACE != 0] |= BLANK
    bits[known & TERMINAL != 0] |= END
    bits[known & CLOSER != 0] |= CLOSE
    lower = np.arange(len(known), dtype=np.int32)
    for point in range(0x20000):  # no letter with case lies beyond
        lower[point] = ord(chr(point).lower()[0])
    alone = np.flatnonzero(bits & END)
    bits[alone[(alone >= 128) & (alone != 0x2026)]] |= END_ALONE
    bits.flags.writeable = lower.flags.writeable = False
    return bits, lower
