"""The table of pieces: what is kept, and that its limits hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

from corpusmill.pipeline.bpe.engine import Engine
from corpusmill.pipeline.bpe.kernels.table import (
    BYTES_USED,
    EMPTIED,
    ENTRIES,
    IDS_USED,
    LONGEST,
    MISSES,
    Table,
    new_table,
)
from corpusmill.pipeline.bpe.recognise import read
from tests.pipeline.bpe.vocabularies import of_library, trained


def encoded(table: Table, texts: list[str]) -> list[int]:
    """The ids by an engine with this table, from a buffer that ends with the last text."""
    content = json.loads(trained("no cuts").tokenizer.to_str())
    data = [text.encode() for text in texts]
    bounds = np.cumsum([0, *map(len, data)], dtype=np.int64)
    buffer = np.frombuffer(b"".join(data), np.uint8)
    ids: list[int] = Engine(content, read(content), table).encode(buffer, bounds)[0].tolist()
    return ids


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 16, 17, 24, LONGEST])
def test_a_piece_is_merged_once(size: int) -> None:
    table, texts = new_table(64), ["x" * (size - 1) + "7"] * 3
    wanted = [token for row in of_library(trained("no cuts"), texts) for token in row]
    assert encoded(table, texts) == wanted == encoded(table, texts)
    assert table.counters[MISSES] == table.counters[ENTRIES] == 1
    assert table.counters[BYTES_USED] == (size if size > 16 else 0)


def test_longer_pieces_are_not_kept() -> None:
    table = new_table(64)
    encoded(table, ["y" * (LONGEST + 1)] * 2)
    assert table.counters[MISSES] == 2 and table.counters[ENTRIES] == 0


def test_no_more_than_half_of_the_slots_is_used_and_the_table_is_emptied() -> None:
    table = new_table(64)
    texts = [f"{i:03}" for i in range(32)]
    encoded(table, texts)
    assert (table.counters[ENTRIES], table.counters[EMPTIED]) == (32, 0)
    encoded(table, ["one more"])
    assert (table.counters[ENTRIES], table.counters[EMPTIED]) == (1, 1)
    assert np.count_nonzero(table.slots) == 1 and table.counters[IDS_USED] <= len("one more")
    encoded(table, texts[:3])
    assert table.counters[MISSES] == 36


@pytest.mark.parametrize("size", range(1, 41))
def test_texts_that_end_with_their_buffer(size: int) -> None:
    texts = ["ab" * 20 + "日本", "the don" + "a1!é"[size % 4] * size]
    wanted = [token for row in of_library(trained("no cuts"), texts) for token in row]
    table = new_table(8)
    assert encoded(table, texts) == wanted == encoded(table, texts)
