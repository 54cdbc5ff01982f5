"""Digits of other scripts as ASCII ones: Arabic-Indic, Persian, Devanagari, Bengali, and full-width forms with their signs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled

# First bytes of the characters that are folded; of no other ASCII or Latin text.
LEADS: Final = (b"\xd9", b"\xdb", b"\xe0", b"\xef")
_FULL_WIDTH: Final = b"#()*+,-./:"  # also as full-width forms, besides digits and @


def _full_width() -> npt.NDArray[np.uint8]:
    """uint8[64]: ASCII for the last byte of EF BC xx, 0 for what stays."""
    table = np.zeros(64, np.uint8)
    for byte in (*_FULL_WIDTH, *b"0123456789"):
        table[byte - 0x20] = byte
    return table


FULL_WIDTH = _full_width()


@compiled
def count_others(data: Any) -> int:
    """At least as many as there are characters that `fold_digits` folds; 0 only if there are none."""
    count = 0
    for i in range(len(data) - 1):
        c = data[i]
        if c < 0xD9:
            continue
        d = data[i + 1]
        count += (
            (c == 0xD9 and 0xA0 <= d <= 0xA9)
            or (c == 0xDB and 0xB0 <= d <= 0xB9)
            or (c == 0xE0 and (d == 0xA5 or d == 0xA7))
            or (c == 0xEF and d == 0xBC)
        )
    return count


@compiled
def fold_digits(data: Any, out: Any, ends: Any, growth: Any) -> Any:
    """(size, folded) of the text with other scripts' digits as ASCII ones, which is written to `out` (uint8[n]): one byte for each of
    those, all else as it is. `ends`, `growth`: int64[count_others(data)], per folded character the place behind it in `out`, and how
    many bytes it and those before it were longer."""
    n, i, size, changed, longer = len(data), 0, 0, 0, 0
    while i < n:
        c = data[i]
        if c < 0xD9:
            out[size] = c
            size += 1
            i += 1
            continue
        folded, width = np.uint8(0), 1
        if c == 0xD9 or c == 0xDB:
            low = 0xA0 if c == 0xD9 else 0xB0
            if i + 1 < n and low <= data[i + 1] < low + 10:
                folded, width = np.uint8(data[i + 1] - low + 48), 2
        elif c == 0xE0:
            if i + 2 < n and (data[i + 1] == 0xA5 or data[i + 1] == 0xA7) and 0xA6 <= data[i + 2] <= 0xAF:
                folded, width = np.uint8(data[i + 2] - 0xA6 + 48), 3
        elif c == 0xEF and i + 2 < n and data[i + 1] == 0xBC and 0x80 <= data[i + 2] < 0xC0:
            folded = FULL_WIDTH[data[i + 2] - 0x80]
            width = 3 if folded else 1
        out[size] = folded if folded else c
        size += 1
        i += width
        if width > 1:
            longer += width - 1
            ends[changed], growth[changed] = size, longer
            changed += 1
    return size, changed
