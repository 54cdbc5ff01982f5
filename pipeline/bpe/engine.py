"""A tokenizer made ready for the kernels: its merges as tables, its classes of characters, its table of pre-tokens."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.hugging_face import alphabet, alphabet_bytes
from corpusmill.pipeline.bpe.classes import classes
from corpusmill.pipeline.bpe.kernels.merge import EMPTY, MAX_ID, NO_RANK, Merges, fill_pairs
from corpusmill.pipeline.bpe.kernels.scan import encode_batch
from corpusmill.pipeline.bpe.kernels.table import Table, new_table
from corpusmill.pipeline.bpe.kernels.tokens import (
    NOT_MADE,
    Tokens,
    fill_lowest,
    fill_shorter,
    last_merges,
    new_trie,
)
from corpusmill.pipeline.bpe.recognise import Reading, UnknownToUs

_NEVER: Final = {0xC0, 0xC1, *range(0xF5, 0x100)}  # bytes that no UTF-8 text has


class Engine:
    """Encoder of one tokenizer in one process. Calls from several threads are serialised: the table is shared."""

    def __init__(self, content: dict[str, Any], reading: Reading, table: Table | None = None) -> None:
        """Raises `UnknownToUs` if the vocabulary is not one that the kernels can hold."""
        self.reading = reading
        self._model = _model(content)
        self._vocabulary: tuple[Merges, Tokens] | None = None
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
            if self._vocabulary is None:
                self._vocabulary = vocabulary(*self._model)
            if self._table is None:
                self._table = new_table()
            count = encode_batch(data, bounds, steps, known, *self._vocabulary, self._table, out, ends)
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
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32], list[bytes], bool]:
    """(token of each byte, (left, right) by rank, what each pair makes, the bytes of every token, `ignore_merges`)."""
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
    names = [b""] * (max(vocabulary.values()) + 1)
    for token, index in vocabulary.items():
        names[index] = alphabet_bytes(token) or b""
    return byte_ids, pairs, made, names, bool(model.get("ignore_merges"))


def vocabulary(
    byte_ids: npt.NDArray[np.int32],
    pairs: npt.NDArray[np.int32],
    made: npt.NDArray[np.int32],
    names: list[bytes],
    whole: bool,
) -> tuple[Merges, Tokens]:
    """What `_model` reads, as the kernels read it."""
    merges = make_merges(byte_ids, pairs, made)
    return merges, make_tokens(merges, pairs, names, whole)


def make_merges(
    byte_ids: npt.NDArray[np.int32], pairs: npt.NDArray[np.int32], made: npt.NDArray[np.int32]
) -> Merges:
    """The merges of a vocabulary as `_model` reads them."""
    return Merges(byte_ids, _pair_table(pairs), made)


def _pair_table(pairs: npt.NDArray[np.int32], first: int = 0) -> npt.NDArray[np.uint64]:
    """(left, right) -> row + `first`; a quarter to a half of its places is taken."""
    table = np.full(1 << (2 * len(pairs)).bit_length(), EMPTY, np.uint64)
    fill_pairs(pairs, first, table)
    return table


def make_tokens(merges: Merges, pairs: npt.NDArray[np.int32], names: list[bytes], whole: bool) -> Tokens:
    """The tokens of a vocabulary as `_model` reads it."""
    data = np.frombuffer(b"".join(names), np.uint8)
    starts = np.cumsum([0, *map(len, names)], dtype=np.int64)
    ranks = np.empty(len(names), np.int64)
    last_merges(data, starts, merges, ranks)
    made, single = int((ranks > NOT_MADE).sum()), int((ranks == -1).sum())
    ids = np.argsort(np.where(ranks == NOT_MADE, NO_RANK, ranks), kind="stable").astype(np.int32)
    numbers = np.empty(len(names), np.int64)
    numbers[ids] = np.arange(len(names))
    halves = np.repeat(np.arange(made, dtype=np.int32)[:, None], 2, axis=1)
    halves[single:] = numbers[pairs[ranks[ids[single:made]]]]
    order = sorted((token for token, name in enumerate(names) if name), key=names.__getitem__)
    units = new_trie(data, starts, np.array(order, np.int64), numbers)
    shorter = np.empty((made, 2), np.int32)
    fill_shorter(data, starts, ids, units, shorter)
    # A place of `lowest` distinguishes pairs of which one is made this many tokens after the other.
    shift = max(0, made.bit_length() - 16)
    lowest = np.empty(1 << (4 * made).bit_length(), np.uint16)
    fill_lowest(halves, single, shift, lowest)
    # Every half is made before its token: then ranks rise with each merge, whatever the text.
    ordered = bool((halves[single:] < np.arange(single, made)[:, None]).all())
    return Tokens(
        ids,
        halves,
        shorter,
        _pair_table(halves[single:], single),
        lowest,
        shift,
        units,
        made,
        single,
        ordered,
        whole,
    )
