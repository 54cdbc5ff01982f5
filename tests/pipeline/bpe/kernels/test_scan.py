"""The loop over a batch writes into what it is given, and not one value further; nor does it read bytes around its texts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.classes import classes
from corpusmill.pipeline.bpe.engine import _model, vocabulary
from corpusmill.pipeline.bpe.kernels.scan import encode_batch
from corpusmill.pipeline.bpe.kernels.table import ENTRIES, MISSES, Table
from tests.pipeline.bpe.vocabularies import nasty, of_library, trained

GUARD = 64  # values beyond each array
MARK = 0xEE


def guarded(size: int, kind: Any) -> tuple[Any, Any]:
    """(an array of zeros, what lies behind it)."""
    whole = np.full(size + GUARD, MARK, kind)
    whole[:size] = 0
    return whole[:size], whole[size:]


def encoded(form: str, texts: list[str], sizes: tuple[int, int, int], taken: int = 0) -> tuple[Any, Table]:
    """Ids of the texts, twice the same from a table of these sizes, whose slots all lead to a piece of `taken` bytes at
    first, whatever the hash."""
    bpe = trained(form)
    assert bpe.engine is not None
    steps = np.array(bpe.engine.reading.steps, np.int64).reshape(-1, 2)
    known = classes(bpe.engine.reading.classes)
    merges, tokens = vocabulary(*_model(json.loads(bpe.tokenizer.to_str())))
    raw = [text.encode() for text in texts]
    around = np.frombuffer(b"ab" * 9 + b"".join(raw) + b"ab" * 9, np.uint8)
    bounds = np.cumsum([18, *map(len, raw)], dtype=np.int64)
    (slots, a), (entries, g) = guarded(sizes[0], np.uint32), guarded(2 * sizes[0], np.uint64)
    long_bytes, b = guarded(sizes[1], np.uint8)
    (long_ids, c), (counters, d) = guarded(sizes[2], np.uint32), guarded(5, np.int64)
    if taken:
        slots[:], entries[2] = np.arange(sizes[0]) << 26 | 1, taken
    table = Table(slots, entries.reshape(-1, 4), long_bytes, long_ids, counters)
    ids: list[list[int]] = []
    for _ in range(2):
        (out, e), (ends, f) = guarded(sum(map(len, raw)) + 2, np.uint32), guarded(len(raw), np.int64)
        count = encode_batch(around, bounds, steps, known, merges, tokens, table, out, ends)
        assert count == (ends[-1] if len(ends) else 0)
        assert all((behind == MARK).all() for behind in (a, b, c, d, e, f, g))
        ids.append([row.tolist() for row in np.split(out[:count], ends[:-1])] if len(ends) else [])
    assert ids[0] == ids[1]
    return ids[0], table


@pytest.mark.parametrize("sizes", [(2, 1, 1), (8, 40, 8), (64, 256, 64), (1024, 1 << 12, 1 << 10)])
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(nasty(), max_size=6))
@example(texts=["", "7" * 300, "", "é", "x" * 17])
@example(texts=[])
def test_nothing_is_written_behind_an_array(sizes: tuple[int, int, int], texts: list[str]) -> None:
    assert encoded("gpt2", texts, sizes)[0] == of_library(trained("gpt2"), texts)


def test_where_no_slot_is_near_a_piece_is_not_kept() -> None:
    texts = [f"word{i} 日本語{i}" for i in range(70)]
    ids, table = encoded("gpt2", texts, (64, 256, 64), taken=999)
    assert ids == of_library(trained("gpt2"), texts)
    assert table.counters[ENTRIES] == 0 and table.counters[MISSES] >= 2 * 70
    assert (table.slots & 0xFFFFF == 1).all() and not table.entries[:, 3].any()
