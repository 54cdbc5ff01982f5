"""Text whose digits are of other scripts, read as if they were ASCII, and finds put back to where they stand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.redact.kernels.other_digits import LEADS, fold_digits


class Folded(NamedTuple):
    """A buffer with other scripts' digits as ASCII ones."""

    buffer: bytes
    places: npt.NDArray[np.int64]  # of each byte in the buffer as it came in, with the end behind them

    def place(self, at: int) -> int:
        """Where the byte at `at` of the folded buffer stood."""
        return int(self.places[at])


def fold(buffer: bytes) -> Folded | None:
    """`buffer` folded; None where that changes nothing, which costs nothing for ASCII and little for Latin text. Each character is
    folded by itself, so that what is found in a document does not depend on the others of a batch."""
    if buffer.isascii() or not any(lead in buffer for lead in LEADS):
        return None
    data = np.frombuffer(buffer, np.uint8)
    out, places = np.empty(len(data), np.uint8), np.empty(len(data) + 1, np.int64)
    size, changed = fold_digits(data, out, places)
    return Folded(out[:size].tobytes(), places[: size + 1]) if changed else None


def ascii_digits(value: bytes) -> bytes:
    """A datum with ASCII digits: the same in any script is one datum."""
    folded = fold(value)
    return value if folded is None else folded.buffer
