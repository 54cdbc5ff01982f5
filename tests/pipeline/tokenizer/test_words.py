"""Words are what the library's pre-tokenizer cuts off, counted the same in any order."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.tokenizer import words as module
from corpusmill.pipeline.tokenizer.train import untrained
from corpusmill.pipeline.tokenizer.words import Words, count_words
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.pipeline.bpe.vocabularies import nasty
from tests.pipeline.tokenizer.test_train import array


def counted(texts: list[pa.ChunkedArray], params: TokenizerParams) -> Words:
    tokenizer = untrained(params)
    return count_words(texts, json.loads(tokenizer.to_str()), tokenizer)


def as_dict(words: Words) -> dict[bytes, int]:
    data, edges = words.data.tobytes(), words.bounds.tolist()
    return {data[a:b]: n for a, b, n in zip(edges[:-1], edges[1:], words.counts.tolist(), strict=True)}


@pytest.mark.parametrize("name", ["gpt2", "llama3", "gpt4o"])
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.one_of(nasty(), st.text(max_size=20)), max_size=5))
def test_words_are_the_librarys(name: str, texts: list[str]) -> None:
    params = TokenizerParams.model_validate({"pre_tokenizer": name, "nfc": name == "gpt2"})
    tokenizer = untrained(params)
    wanted: Counter[bytes] = Counter()
    for text in texts:
        plain = tokenizer.normalizer.normalize_str(text) if params.nfc else text
        pieces = tokenizer.pre_tokenizer.pre_tokenize_str(plain)
        wanted.update(plain[a:b].encode() for _, (a, b) in pieces)
    found = as_dict(counted([array(texts)], params))
    assert found == wanted and list(found) == sorted(found)


def test_counts_are_added_up_over_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"one two{i % 7} one" for i in range(200)]
    whole = counted([array(texts)], TokenizerParams())
    monkeypatch.setattr(module, "MERGED", 3)
    parts = counted([array(texts[i : i + 9]) for i in range(0, 200, 9)], TokenizerParams())
    assert as_dict(parts) == as_dict(whole) and as_dict(whole)[b" one"] == 200
