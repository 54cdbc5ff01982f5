"""What may stand between two groups of digits of one number."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels import BLANK, BLANK_OPEN, CLOSE, HYPHEN, OPEN, OTHER, POINT, SLASH


@compiled
def separator(data: Any, start: int, end: int) -> int:
    """The class of the 1 to 3 separators between two groups; no-break spaces and dashes count as ' ' and '-'."""
    a: Any = 0
    b: Any = 0
    count, i = 0, start
    while i < end:
        c: Any = np.int64(data[i])
        step = 1
        if c == 0xC2:
            c, step = 32, 2
        elif c == 0xE2:
            c, step = 32 if data[i + 2] == 0xAF else 45, 3
        if count == 0:
            a = c
        else:
            b = c
        count += 1
        i += step
    if count == 1:
        if a == 32:
            return BLANK
        if a == 45:
            return HYPHEN
        if a == 46:
            return POINT
        if a == 47:
            return SLASH
        return CLOSE if a == 41 else BLANK_OPEN if a == 40 else OTHER  # +44(0)20
    if count == 2:
        if a == 41 and (b == 32 or b == 45):
            return CLOSE
        if b == 40:
            return BLANK_OPEN if a == 32 else OPEN if a == 45 or a == 46 else OTHER
    return OTHER


@compiled
def skip_separators(data: Any, i: int) -> int:
    """The first byte past at most three separators that begin at `i`."""
    n = len(data)
    for _ in range(3):
        if i >= n:
            break
        c = data[i]
        if c == 32 or 45 <= c <= 47 or c == 40 or c == 41 or c == 9:
            i += 1
        elif c == 0xC2 and i + 1 < n and data[i + 1] == 0xA0:
            i += 2
        elif (
            c == 0xE2
            and i + 2 < n
            and data[i + 1] == 0x80
            and (0x90 <= data[i + 2] <= 0x95 or data[i + 2] == 0xAF)
        ):
            i += 3
        else:
            break
    return i
