"""Pre-tokens already encoded.

A bounded table: entries lie in the order in which they came, and an open-addressing index leads to them, so that few pages
are touched while there are few. Bytes are compared, never hashes alone, so what is in the table changes the speed and nothing
else. When it is full it is emptied: what is frequent is back at once.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.buffers import fetch, hash_bytes, load, mix, pointer, same

SLOTS: Final = 1 << 20  # 4 bytes each, and 32 for each of half as many entries
LONG_BYTES: Final = 16 << 20  # of pre-tokens that do not fit into an entry
LONG_IDS: Final = 4 << 20  # of pre-tokens with more than two tokens
LONGEST: Final = 256  # bytes of a pre-token that is kept at all
_SHORT: Final = 16  # bytes that fit into an entry
_PROBES: Final = 32  # slots looked at; text made to collide costs time that is bounded
_ENTRY_BITS: Final = 20  # of a slot: the number of its entry + 1; above them, the top bits of its hash
# Of the counters.
ENTRIES: Final = 0
BYTES_USED: Final = 1
IDS_USED: Final = 2
EMPTIED: Final = 3
MISSES: Final = 4


class Table(NamedTuple):
    """A slot: where its entry is, and a part of the hash; 0: free. An entry: the pre-token (its 16 bytes, zero behind them; or
    its hash and where it lies in `long_bytes`); its length (low half) and the number of its tokens; two tokens, or where they
    lie in `long_ids`."""

    slots: npt.NDArray[np.uint32]  # [slots]
    entries: npt.NDArray[np.uint64]  # [slots / 2, 4]
    long_bytes: npt.NDArray[np.uint8]
    long_ids: npt.NDArray[np.uint32]
    counters: npt.NDArray[np.int64]  # [5]


def new_table(slots: int = SLOTS, long_bytes: int = LONG_BYTES, long_ids: int = LONG_IDS) -> Table:
    """An empty table of `slots` (a power of two, at least 2); memory is taken as it fills, at most 20 bytes a slot,
    `long_bytes` and 4 * `long_ids`."""
    memory = np.empty(2 * slots + 8, np.uint64)
    aligned = (
        -(memory.ctypes.data // 8) % 8
    )  # two entries to a line of the processor's cache, none across two
    return Table(
        np.zeros(slots, np.uint32),
        memory[aligned : aligned + 2 * slots].reshape(slots // 2, 4),
        np.empty(long_bytes, np.uint8),
        np.empty(long_ids, np.uint32),
        np.zeros(5, np.int64),
    )


class TablePointers(NamedTuple):
    """The same inside the kernels, flat, with its sizes."""

    slots: Any
    slots_size: int
    entries: Any
    long_bytes: Any
    long_bytes_size: int
    long_ids: Any
    long_ids_size: int
    counters: Any


@compiled
def table_pointers(table: Any) -> Any:
    """A table's arrays as pointers; they must outlive them."""
    return TablePointers(
        pointer(table.slots), len(table.slots), pointer(table.entries), pointer(table.long_bytes),
        len(table.long_bytes), pointer(table.long_ids), len(table.long_ids), pointer(table.counters),
    )  # fmt: skip


@compiled
def short_hash(first: Any, second: Any, size: Any) -> Any:
    """The hash of a pre-token that fits into an entry."""
    return mix(first ^ (second * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(size))


@compiled
def key(data: Any, at: Any, size: Any, stop: Any) -> Any:
    """(first word, second word, hash) of a pre-token: of a long one the first word is its hash, the second means nothing."""
    if size > _SHORT:
        value = hash_bytes(data, at, size, stop)
        return value, np.uint64(0), value
    if size > 8:
        first, second = load(data, at, 8, stop), load(data, at + 8, size - 8, stop)
    else:
        first, second = load(data, at, size, stop), np.uint64(0)
    return first, second, short_hash(first, second, size)


@compiled
def fetch_slot(value: Any, table: Any) -> None:
    """Have the slot of a hash near soon."""
    fetch(table.slots, np.int64(value) & (table.slots_size - 1))


@compiled
def fetch_entry(value: Any, table: Any) -> None:
    """Have the entry near soon that the slot of a hash leads to."""
    found = np.int64(table.slots[np.int64(value) & (table.slots_size - 1)])
    fetch(table.entries, 4 * ((found & ((1 << _ENTRY_BITS) - 1)) - 1))


@compiled
def find(data: Any, at: Any, size: Any, first: Any, second: Any, value: Any, table: Any) -> Any:
    """The number of a pre-token's entry; -1 - the slot that is free for it; or -1 - slots if no such slot is near."""
    entries, mask = table.entries, table.slots_size - 1
    slot = np.int64(value) & mask
    part = np.int64(value >> np.uint64(32 + _ENTRY_BITS))
    for _ in range(_PROBES):
        found = np.int64(table.slots[slot])
        if found == 0:
            return -1 - slot
        if found >> _ENTRY_BITS == part:
            entry = (found & ((1 << _ENTRY_BITS) - 1)) - 1
            if (
                entries[4 * entry] == first
                and np.int64(entries[4 * entry + 2] & np.uint64(0xFFFFFFFF)) == size
            ):
                if size > _SHORT:
                    if same(data, at, table.long_bytes, np.int64(entries[4 * entry + 1]), size):
                        return entry
                elif entries[4 * entry + 1] == second:
                    return entry
        slot = (slot + 1) & mask
    return -1 - table.slots_size


@compiled
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
    """Enter a pre-token of `count` tokens at the free `slot`; first empties a table that is full."""
    counters, slots, entries = table.counters, table.slots, table.entries
    if size > LONGEST or slot >= table.slots_size:
        return
    full = 2 * counters[ENTRIES] >= table.slots_size
    full |= size > _SHORT and counters[BYTES_USED] + size > table.long_bytes_size
    full |= count > 2 and counters[IDS_USED] + count > table.long_ids_size
    if full:
        for i in range(table.slots_size):
            slots[i] = 0
        counters[ENTRIES] = counters[BYTES_USED] = counters[IDS_USED] = 0
        counters[EMPTIED] += 1
        slot = np.int64(value) & (table.slots_size - 1)
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
    entry = 4 * counters[ENTRIES]
    entries[entry], entries[entry + 1], entries[entry + 3] = first, second, tokens
    entries[entry + 2] = np.uint64(size) | (np.uint64(count) << np.uint64(32))
    counters[ENTRIES] += 1
    part = value >> np.uint64(32 + _ENTRY_BITS)
    slots[slot] = np.uint32(part << np.uint64(_ENTRY_BITS) | np.uint64(counters[ENTRIES]))
