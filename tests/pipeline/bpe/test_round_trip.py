"""Texts come back from their tokens, and what does not is seen."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.encode import coming_back, encode
from corpusmill.pipeline.bpe.load import Bpe
from tests.pipeline.bpe.vocabularies import FORMS, trained


@pytest.fixture(scope="module")
def bpe() -> Bpe:
    return trained(next(iter(FORMS)))


def array(texts: list[str]) -> pa.ChunkedArray:
    """In two chunks, the first of which begins inside its buffers."""
    left, right = ["left out", *texts[: len(texts) // 2]], texts[len(texts) // 2 :]
    return pa.chunked_array([pa.array(left, pa.large_string()).slice(1), pa.array(right, pa.large_string())])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["", "<EMAIL>", "日本語" * 6])), max_size=5))
def test_every_text_comes_back_and_a_wrong_token_is_seen(bpe: Bpe, texts: list[str]) -> None:
    ids, offsets = encode(bpe, array(texts))
    assert coming_back(bpe, array(texts), ids, offsets).tolist() == [True] * len(texts)
    if len(ids):
        place = len(ids) // 2
        ids[place] = 1 + (ids[place] % 256)
        owner = int(np.searchsorted(offsets, place, side="right")) - 1
        table = bpe.pieces
        raw = b"".join(
            table.data[table.bounds[i] : table.bounds[i + 1]].tobytes()
            for i in ids[offsets[owner] : offsets[owner + 1]]
        )
        wrong = np.flatnonzero(~coming_back(bpe, array(texts), ids, offsets)).tolist()
        assert wrong == [owner] * (raw != texts[owner].encode())


def test_a_text_that_goes_on_or_ends_early_is_seen(bpe: Bpe) -> None:
    texts = array(["abc def", "ab", ""])
    ids, offsets = encode(bpe, texts)
    assert coming_back(bpe, texts, ids, np.minimum(offsets, offsets[1] - 1)).tolist() == [False, False, True]
