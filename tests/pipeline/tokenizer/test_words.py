"""Words are what the library's pre-tokenizer cuts off, counted the same in any order."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.tokenizer.train import untrained
from corpusmill.pipeline.tokenizer.word_table import WordTable
from corpusmill.pipeline.tokenizer.words import Words, added, count_words, shortened_words
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


def test_counts_are_added_up_over_tables() -> None:
    texts = [f"one two{i % 7} one" for i in range(200)]
    whole = counted([array(texts)], TokenizerParams())
    parts = counted([array(texts[i : i + 9]) for i in range(0, 200, 9)], TokenizerParams())
    assert as_dict(parts) == as_dict(whole) and as_dict(whole)[b" one"] == 200
    single = [counted([array(texts[i : i + 9])], TokenizerParams()) for i in range(0, 200, 9)]
    assert as_dict(added(single).in_order()) == as_dict(whole)


words_with_counts = st.dictionaries(
    st.one_of(
        st.binary(min_size=1, max_size=40), st.sampled_from([b"a" * n for n in (8, 9, 15, 16, 17, 200)])
    ),
    st.integers(1, 1 << 40),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(words_with_counts, max_size=5))
def test_any_parts_add_up(parts: list[dict[bytes, int]]) -> None:
    wanted: Counter[bytes] = Counter()
    for part in parts:
        wanted.update(part)
    found = as_dict(added(of_dict(part) for part in parts).in_order())
    assert found == wanted and list(found) == sorted(found)


@pytest.mark.parametrize("longest", [1, 3, 8])
@settings(max_examples=60, deadline=None)
@given(part=words_with_counts)
def test_words_are_cut_after_so_many_bytes(longest: int, part: dict[bytes, int]) -> None:
    wanted: Counter[bytes] = Counter()
    for word, count in part.items():
        for start in range(0, len(word), longest):
            wanted[word[start : start + longest]] += count
    assert as_dict(shortened_words(of_dict(part), longest)) == wanted


def test_a_table_grows_with_its_words() -> None:
    rng = random.Random(1)
    words = [b"%x" % rng.getrandbits(rng.choice([12, 40, 200])) for _ in range(60_000)]
    bounds = np.cumsum([0, *map(len, words)], dtype=np.int64)
    table = WordTable()
    table.add(np.frombuffer(b"".join(words), np.uint8), 0, bounds[1:])
    assert as_dict(Words(*table.words())) == Counter(words)


def of_dict(part: dict[bytes, int]) -> Words:
    bounds = np.cumsum([0, *map(len, part)], dtype=np.int64)
    return Words(np.frombuffer(b"".join(part), np.uint8), bounds, np.array(list(part.values()), np.int64))
