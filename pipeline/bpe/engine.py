"""A tokenizer made ready for the kernels: its merges as tables, its classes of characters, its table of pre-tokens."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.bpe.classes import classes
from pipeline.bpe.kernels.merge import MAX_ID, NO_RANK, Merges, fill_pairs, fill_whole
from pipeline.bpe.kernels.scan import encode_batch
from pipeline.bpe.kernels.table import Table, new_table
from pipeline.bpe.names import alphabet
from pipeline.bpe.recognise import Reading, UnknownToUs

_NEVER: Final = {0xC0, 0xC1, *range(0xF5, 0x100)}  # bytes that no UTF-8 text has


class Engine:
    """One process's machine for one tokenizer. Calls from several threads take turns: the table is shared."""

    def __init__(self, content: dict[str, Any], reading: Reading, table: Table | None = None) -> None:
        """Raises `UnknownToUs` if the vocabulary is not one that the kernels can hold."""
        self.reading = reading
        self._model = _model(content)
        self._merges: Merges | None = None
        self._table = table
        self._lock = Lock()

    def encode(
        self, data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """(ids of all texts, their number up to the end of each text) for the texts `data[bounds[i]:bounds[i + 1]]`."""
        out = np.empty(int(bounds[-1] - bounds[0]) + 2, np.uint32)
        ends = np.empty(len(bounds) - 1, np.int64)
        steps = np.array(self.reading.steps, np.int64).reshape(-1, 2)
        known = classes(self.reading.classes)
        with self._lock:
            if self._merges is None:
                self._merges = make_merges(*self._model)
            if self._table is None:
                self._table = new_table()
            count = encode_batch(data, bounds, steps, known, self._merges, self._table, out, ends)
        return out[:count].copy(), ends

    def forget(self) -> None:
        """Begin with an empty table again."""
        with self._lock:
            self._table = None

    @property
    def counters(self) -> npt.NDArray[np.int64]:
        """The table's counters (`kernels/table.py`)."""
        return np.zeros(5, np.int64) if self._table is None else self._table.counters


def _model(
    content: dict[str, Any],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32], list[bytes] | None]:
    """(token of each byte, (left, right) by rank, what each pair makes, with `ignore_merges` the bytes of every token)."""
    model = content["model"]
    vocabulary: dict[str, int] = model["vocab"]
    if max(vocabulary.values()) > MAX_ID or len(model["merges"]) >= NO_RANK:
        raise UnknownToUs(f"it has more than {MAX_ID} tokens, or {NO_RANK} merges")
    byte_ids = np.zeros(256, np.int32)
    for char, byte in alphabet().items():
        if char not in vocabulary and byte not in _NEVER:
            raise UnknownToUs(f"it has no token for the byte 0x{byte:02x}")
        byte_ids[byte] = vocabulary.get(char, 0)
    pairs = np.empty((len(model["merges"]), 2), np.int32)
    made = np.empty(len(pairs), np.int32)
    for rank, pair in enumerate(model["merges"]):
        left, right = pair.split(" ") if isinstance(pair, str) else pair
        pairs[rank] = vocabulary[left], vocabulary[right]
        made[rank] = vocabulary[left + right]
    names = None
    if model.get("ignore_merges"):
        names = [b""] * (max(vocabulary.values()) + 1)
        stands_for = alphabet()
        for token, index in vocabulary.items():
            if all(char in stands_for for char in token):
                names[index] = bytes(stands_for[char] for char in token)
    return byte_ids, pairs, made, names


def make_merges(
    byte_ids: npt.NDArray[np.int32],
    pairs: npt.NDArray[np.int32],
    made: npt.NDArray[np.int32],
    names: list[bytes] | None,
) -> Merges:
    table = np.full(1 << (2 * len(pairs) + 1).bit_length(), 0xFFFFFFFFFFFFFFFF, np.uint64)
    fill_pairs(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), table)
    whole, data, starts = np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(1, np.int64)
    if names is not None:
        data = np.frombuffer(b"".join(names) or b"\0", np.uint8).copy()
        starts = np.cumsum([0, *map(len, names)], dtype=np.int64)
        whole = np.zeros(1 << (2 * len(names) + 1).bit_length(), np.int32)
        fill_whole(data, starts, whole)
    return Merges(byte_ids, table, made, whole, data, starts)
