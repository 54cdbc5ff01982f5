"""A table of words with their counts: open addressing, in memory that grows with the different words.

A slot has the number of its word and a part of its hash. A word of up to 16 bytes stands in its row; of a longer one the hash and
where it lies in `long_bytes`. Bytes are compared, never hashes alone.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.buffers import fetch, pointer, same
from corpusmill.pipeline.bpe.kernels.table import key, short_hash

_SHORT: Final = 16  # bytes, as of `key`
_ROW: Final = 4  # two numbers for the bytes, the size, the count
_TAG: Final = 0xFFFFFFFF00000000
_AHEAD: Final = 32  # words whose slots are fetched together


@compiled
def fill_slots(rows: Any, count: int, slots: Any) -> None:
    """Enter the first `count` words into empty slots."""
    for row in range(count):
        first, size = rows[_ROW * row], rows[_ROW * row + 2]
        value = first if size > np.uint64(_SHORT) else short_hash(first, rows[_ROW * row + 1], size)
        slot = np.int64(value) & (len(slots) - 1)
        while slots[slot]:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = (value & np.uint64(_TAG)) | np.uint64(row + 1)


@compiled
def add_words(
    data: Any, at: int, ends: Any, times: Any, done: int, slots: Any, rows: Any, long_bytes: Any, used: Any
) -> int:  # fmt: skip
    """Count words from word `done` on, which begins at `at`, until there are no more or one of the arrays may be full; how many are
    done then.

    Word i is `data[ends[i - 1]:ends[i]]` (uint8, int64), and occurs `times[i]` times (int64), or once if there are no `times`. slots:
    uint64[2^k]. rows: uint64[words, 4], flat. long_bytes: uint8. used: int64[2], words and long bytes that there are.
    """
    text, whole, mask = pointer(data), len(data), len(slots) - 1
    sizes, keys = np.empty(_AHEAD, np.int64), np.empty((_AHEAD, 3), np.uint64)
    while done < len(ends):
        ahead = min(_AHEAD, len(ends) - done)
        bytes_ahead = ends[done + ahead - 1] - at
        if (
            2 * (used[0] + ahead) > len(slots)
            or _ROW * (used[0] + ahead) > len(rows)
            or used[1] + bytes_ahead > len(long_bytes)
        ):
            break
        for i in range(ahead):
            sizes[i] = ends[done + i] - at
            keys[i, 0], keys[i, 1], keys[i, 2] = key(text, at, sizes[i], whole)
            fetch(pointer(slots), np.int64(keys[i, 2]) & mask)
            at = ends[done + i]
        for i in range(ahead):
            found = np.int64(slots[np.int64(keys[i, 2]) & mask] & np.uint64(0xFFFFFFFF))
            fetch(pointer(rows), _ROW * (found - 1) if found else 0)
        at -= bytes_ahead
        for i in range(ahead):
            size, first, second, value = np.uint64(sizes[i]), keys[i, 0], keys[i, 1], keys[i, 2]
            slot, row = np.int64(value) & mask, np.int64(-1)
            while slots[slot]:
                if (slots[slot] ^ value) & np.uint64(_TAG) == 0:
                    row = np.int64(slots[slot] & np.uint64(0xFFFFFFFF)) - 1
                    place = _ROW * row
                    if rows[place] == first and rows[place + 2] == size:
                        if sizes[i] <= _SHORT:
                            if rows[place + 1] == second:
                                break
                        elif same(text, at, pointer(long_bytes), np.int64(rows[place + 1]), sizes[i]):
                            break
                    row = np.int64(-1)
                slot = (slot + 1) & mask
            if row < 0:
                row = used[0]
                used[0] += 1
                slots[slot] = (value & np.uint64(_TAG)) | np.uint64(row + 1)
                if sizes[i] > _SHORT:
                    second = np.uint64(used[1])
                    for k in range(sizes[i]):
                        long_bytes[used[1] + k] = data[at + k]
                    used[1] += sizes[i]
                place = _ROW * row
                rows[place], rows[place + 1], rows[place + 2], rows[place + 3] = (
                    first,
                    second,
                    size,
                    np.uint64(0),
                )
            rows[_ROW * row + 3] += np.uint64(times[done + i]) if len(times) else np.uint64(1)
            at += sizes[i]
        done += ahead
    return done


@compiled
def copy_words(rows: Any, long_bytes: Any, bounds: Any, out: Any) -> None:
    """The bytes of all words, one after the other, into `out`; `bounds` are where they begin."""
    for row in range(len(bounds) - 1):
        size = bounds[row + 1] - bounds[row]
        for k in range(size):
            if size > _SHORT:
                out[bounds[row] + k] = long_bytes[np.int64(rows[_ROW * row + 1]) + k]
            else:
                out[bounds[row] + k] = (rows[_ROW * row + (k >> 3)] >> np.uint64(8 * (k & 7))) & np.uint64(
                    255
                )


def _aligned(size: int) -> npt.NDArray[np.uint64]:
    """An array of `size` in which no row lies in two lines of the processor's cache."""
    memory = np.empty(size + 8, np.uint64)
    start = -(memory.ctypes.data // 8) % 8
    return memory[start : start + size]


class WordTable:
    """Words and how often each was added."""

    def __init__(self) -> None:
        self._slots, self._rows = np.zeros(1 << 12, np.uint64), _aligned(_ROW << 11)
        self._long, self._used = np.empty(1 << 12, np.uint8), np.zeros(2, np.int64)

    def add(
        self,
        data: npt.NDArray[np.uint8],
        begin: int,
        ends: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Word 0 is `data[begin:ends[0]]`, word i `data[ends[i - 1]:ends[i]]`; each occurs `times[i]` times, or once."""
        counts, done = np.zeros(0, np.int64) if times is None else times, 0
        while done < len(ends):
            at = int(ends[done - 1]) if done else begin
            ahead = int(ends[min(done + _AHEAD, len(ends)) - 1]) - at
            self._grow(ahead)
            done = add_words(data, at, ends, counts, done, self._slots, self._rows, self._long, self._used)

    def _grow(self, bytes_ahead: int) -> None:
        """Make the arrays large enough for `_AHEAD` words of so many bytes."""
        words, long_bytes = self._used.tolist()
        if 2 * (words + _AHEAD) > len(self._slots):
            self._slots = np.zeros(2 * len(self._slots), np.uint64)
            fill_slots(self._rows, words, self._slots)
        if _ROW * (words + _AHEAD) > len(self._rows):
            rows, self._rows = self._rows, _aligned(2 * len(self._rows))
            self._rows[: len(rows)] = rows
        if long_bytes + bytes_ahead > len(self._long):
            self._long = np.concatenate([self._long, np.empty(long_bytes + bytes_ahead, np.uint8)])

    def words(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(bytes, bounds, counts) of the words in the order in which they came: uint8, int64[W + 1], int64[W]."""
        rows = self._rows.reshape(-1, _ROW)[: self._used[0]]
        bounds = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(rows[:, 2].astype(np.int64), out=bounds[1:])
        data = np.empty(bounds[-1], np.uint8)
        copy_words(self._rows, self._long, bounds, data)
        return data, bounds, rows[:, 3].astype(np.int64)
