"""Pre-tokens already encoded.

A bounded open-addressing table. Bytes are compared, never hashes alone, so what is in the table changes the speed and
nothing else. When it is full it is emptied: what is frequent is back at once.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from pipeline.bpe.kernels.bytes import hash_bytes, load, mix, pointer, same

SLOTS: Final = 1 << 20  # 32 bytes each
LONG_BYTES: Final = 16 << 20  # of pre-tokens that do not fit into a slot
LONG_IDS: Final = 4 << 20  # of pre-tokens with more than two tokens
LONGEST: Final = 256  # bytes of a pre-token that is kept at all
_SHORT: Final = 16  # bytes that fit into a slot
_PROBES: Final = 32  # slots looked at; text made to collide costs time that is bounded
# Of the counters.
ENTRIES: Final = 0
BYTES_USED: Final = 1
IDS_USED: Final = 2
EMPTIED: Final = 3
MISSES: Final = 4


class Table(NamedTuple):
    """A slot: the pre-token (its 16 bytes, zero behind them; or its hash and where it lies in `long_bytes`); its length
    (low half) and the number of its tokens; two tokens, or where they lie in `long_ids`. Length 0: free."""

    slots: npt.NDArray[np.uint64]  # [slots, 4]
    long_bytes: npt.NDArray[np.uint8]
    long_ids: npt.NDArray[np.uint32]
    counters: npt.NDArray[np.int64]  # [5]


def new_table(slots: int = SLOTS, long_bytes: int = LONG_BYTES, long_ids: int = LONG_IDS) -> Table:
    """An empty table; memory is taken as it fills, at most 32 bytes a slot, `long_bytes` and 4 * `long_ids`."""
    room = np.zeros(4 * slots + 8, np.uint64)
    aligned = -(room.ctypes.data // 8) % 8  # two slots to a line of the processor's cache, none across two
    return Table(
        room[aligned : aligned + 4 * slots].reshape(slots, 4),
        np.zeros(long_bytes, np.uint8),
        np.zeros(long_ids, np.uint32),
        np.zeros(5, np.int64),
    )


class TablePointers(NamedTuple):
    """The same inside the kernels, flat, with its sizes."""

    slots: Any
    slots_size: int
    long_bytes: Any
    long_bytes_size: int
    long_ids: Any
    long_ids_size: int
    counters: Any


@nb.njit(cache=True, nogil=True)
def table_pointers(table: Any) -> Any:
    """A table's arrays as pointers; they must outlive them."""
    return TablePointers(
        pointer(table.slots), len(table.slots), pointer(table.long_bytes), len(table.long_bytes),
        pointer(table.long_ids), len(table.long_ids), pointer(table.counters),
    )  # fmt: skip


@nb.njit(cache=True, nogil=True)
def key(data: Any, at: Any, size: Any, stop: Any) -> Any:
    """(first word, second word, hash) of a pre-token: of a long one the first word is its hash, the second means nothing."""
    if size > _SHORT:
        value = hash_bytes(data, at, size, stop)
        return value, np.uint64(0), value
    if size > 8:
        first, second = load(data, at, 8, stop), load(data, at + 8, size - 8, stop)
    else:
        first, second = load(data, at, size, stop), np.uint64(0)
    return first, second, mix(first ^ (second * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(size))


@nb.njit(cache=True, nogil=True)
def find(data: Any, at: Any, size: Any, first: Any, second: Any, value: Any, table: Any) -> Any:
    """The slot of a pre-token; -1 - the slot that is free for it; or -1 - slots if no such slot is near."""
    slots = table.slots
    mask = table.slots_size - 1
    slot = np.int64(value & np.uint64(mask))
    for _ in range(_PROBES):
        length = np.int64(slots[4 * slot + 2] & np.uint64(0xFFFFFFFF))
        if length == size and slots[4 * slot] == first:
            if size > _SHORT:
                if same(data, at, table.long_bytes, np.int64(slots[4 * slot + 1]), size):
                    return slot
            elif slots[4 * slot + 1] == second:
                return slot
        elif length == 0:
            return -1 - slot
        slot = (slot + 1) & mask
    return -1 - table.slots_size


@nb.njit(cache=True, nogil=True)
def keep(
    data: Any,
    at: Any,
    size: Any,
    first: Any,
    second: Any,
    value: Any,
    slot: Any,
    ids: Any,
    count: Any,
    table: Any,
) -> None:
    """Enter a pre-token of `count` tokens at the free `slot`; first empties a table that has no room."""
    counters, slots = table.counters, table.slots
    if size > LONGEST or slot >= table.slots_size:
        return
    full = 2 * counters[ENTRIES] >= table.slots_size
    full |= size > _SHORT and counters[BYTES_USED] + size > table.long_bytes_size
    full |= count > 2 and counters[IDS_USED] + count > table.long_ids_size
    if full:
        for i in range(4 * table.slots_size):
            slots[i] = 0
        counters[ENTRIES] = counters[BYTES_USED] = counters[IDS_USED] = 0
        counters[EMPTIED] += 1
        slot = np.int64(value & np.uint64(table.slots_size - 1))
        if size > table.long_bytes_size or count > table.long_ids_size:
            return
    if size > _SHORT:
        second = np.uint64(counters[BYTES_USED])
        for i in range(size):
            table.long_bytes[counters[BYTES_USED] + i] = data[at + i]
        counters[BYTES_USED] += size
    if count > 2:
        tokens = np.uint64(counters[IDS_USED])
        for i in range(count):
            table.long_ids[counters[IDS_USED] + i] = ids[i]
        counters[IDS_USED] += count
    else:
        tokens = np.uint64(ids[0]) | (np.uint64(ids[1]) << np.uint64(32) if count > 1 else np.uint64(0))
    slots[4 * slot], slots[4 * slot + 1], slots[4 * slot + 3] = first, second, tokens
    slots[4 * slot + 2] = np.uint64(size) | (np.uint64(count) << np.uint64(32))
    counters[ENTRIES] += 1
