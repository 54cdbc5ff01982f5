"""Text whose digits are of other scripts, read as if they were ASCII, and finds put back to where they stand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.redact.kernels.other_digits import LEADS, count_others, fold_digits


class Folded(NamedTuple):
    """A buffer with other scripts' digits as ASCII ones."""

    buffer: bytes
    ends: npt.NDArray[np.int64]  # places behind what was folded
    growth: npt.NDArray[np.int64]  # bytes that it and all before it were longer

    def place(self, at: int) -> int:
        """Where the byte at `at` stood in the buffer as it came in."""
        before = int(np.searchsorted(self.ends, at, side="right"))
        return at + (int(self.growth[before - 1]) if before else 0)


def fold(buffer: bytes) -> Folded | None:
    """`buffer` folded; None where that changes nothing, which costs nothing for ASCII and little for Latin text. Each character is
    folded by itself, so that what is found in a document does not depend on the others of a batch."""
    if buffer.isascii() or not any(lead in buffer for lead in LEADS):
        return None
    data = np.frombuffer(buffer, np.uint8)
    count = int(count_others(data))
    if count == 0:
        return None
    out = np.empty(len(data), np.uint8)
    ends, growth = np.empty(count, np.int64), np.empty(count, np.int64)
    size, changed = fold_digits(data, out, ends, growth)
    return Folded(out[:size].tobytes(), ends[:changed], growth[:changed]) if changed else None


def ascii_digits(value: bytes) -> bytes:
    """A datum with ASCII digits: the same in any script is one datum."""
    folded = fold(value)
    return value if folded is None else folded.buffer
