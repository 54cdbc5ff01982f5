"""Each kind's tokens tile the text, and are what its vocabulary says."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.texts import View, views
from corpusmill.pipeline.tokenizer.compare.kinds import LEARNED, MAKE, UNKNOWN, Trained
from corpusmill.schemas.tokenizer import Kind
from tests.pipeline.corpus import words
from tests.pipeline.tokenizer.test_train import array

TEXTS = array([words(60, seed) for seed in range(20)])


@lru_cache(maxsize=8)
def made(kind: Kind) -> Trained:
    return MAKE[kind](TEXTS, 600)


def view(texts: list[str]) -> View:
    """One view, whose bytes are the texts'."""
    (found,) = views(pa.chunked_array([pa.array(texts, pa.large_string())]))
    return found.alone()


@pytest.mark.parametrize("kind", MAKE)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_tokens_tile_the_texts(kind: Kind, texts: list[str]) -> None:
    tokenizer, seen = made(kind), view(texts)
    ids = tokenizer.encode(seen)
    lengths = tokenizer.lengths(seen, ids)
    assert len(ids) == len(lengths) and int(lengths.sum()) == len(seen.data) and (lengths > 0).all()
    begins = {0, *np.cumsum(lengths).tolist()}
    assert set(seen.bounds.tolist()) <= begins  # no token is of two texts
    assert len(ids) == 0 or (ids.min() > 0 and ids.max() < tokenizer.vocab_size)
    known = tokenizer.unknown is None or not (ids == tokenizer.unknown).any()
    assert tokenizer.reversible(seen, ids) == known
    tokenizer.forget()
    assert tokenizer.encode(seen).tolist() == ids.tolist()


def test_vocabularies_are_by_frequency() -> None:
    texts = array(["a a a b", "a b cc"])
    characters = MAKE["character"](texts, 4)  # the end, the unknown one, the space and "a"
    assert characters.vocab_size == 4
    seen = view(["a b", "日"])
    ids = characters.encode(seen)
    assert ids.tolist() == [3, 2, UNKNOWN, UNKNOWN] and characters.lengths(seen, ids).tolist() == [1, 1, 1, 3]
    assert not characters.reversible(seen, ids)
    whole = MAKE["word"](texts, 520)
    assert whole.vocab_size == 2 + len({"a", " a", " b", " cc"})
    seen = view(["a b dd"])
    ids = whole.encode(seen)
    assert whole.lengths(seen, ids).tolist() == [1, 2, 3]
    assert (ids == UNKNOWN).tolist() == [False, False, True]


def test_bytes_are_bytes() -> None:
    tokenizer, seen = MAKE["byte"](TEXTS, 600), view(["aé"])
    assert tokenizer.vocab_size == 257
    assert (tokenizer.encode(seen) - 1).tolist() == list("aé".encode()) and tokenizer.unknown is None


def test_sizes_are_kept() -> None:
    for kind in MAKE:
        assert made(kind).vocab_size <= 600 and (kind not in LEARNED or made(kind).vocab_size == 600)
