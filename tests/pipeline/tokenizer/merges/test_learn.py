"""Merges are those of the library's trainer, whatever the words."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.hugging_face import alphabet
from corpusmill.pipeline.tokenizer.merges.blocks import BLOCK
from corpusmill.pipeline.tokenizer.merges.learn import Learned, learn
from corpusmill.pipeline.tokenizer.words import Words

PREFIX = "⋯"


def words_of(counts: dict[bytes, int]) -> Words:
    bounds = np.cumsum([0, *map(len, counts)], dtype=np.int64)
    return Words(np.frombuffer(b"".join(counts), np.uint8), bounds, np.array(list(counts.values()), np.int64))


def of_library(
    counts: dict[bytes, int], special: list[str], size: int, least: int, longest: int | None, prefix: str = ""
) -> Learned:  # fmt: skip
    """What `tokenizers` learns from the words, each by itself in a text."""
    from tokenizers import Tokenizer, models, trainers

    letters = {byte: letter for letter, byte in alphabet().items()}
    options: dict[str, Any] = {} if longest is None else {"max_token_length": longest + 1}
    within = [prefix + letter for letter in sorted(alphabet())] if prefix else []
    if prefix:
        options["continuing_subword_prefix"] = prefix
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=least, special_tokens=[*special, *within], show_progress=False,
        initial_alphabet=sorted(alphabet()), **options,
    )  # fmt: skip
    tokenizer = Tokenizer(models.BPE())
    texts = ["".join(letters[byte] for byte in word) for word, count in counts.items() for _ in range(count)]
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return Learned(sorted(model["vocab"], key=model["vocab"].get), [tuple(pair) for pair in model["merges"]])


few = st.text(alphabet=st.sampled_from("ab"), min_size=1, max_size=14).map(str.encode)
runs = st.tuples(st.binary(min_size=1, max_size=3), st.integers(1, 90)).map(lambda pair: pair[0] * pair[1])
some = st.one_of(
    few,
    st.text(alphabet=st.sampled_from("abcé日😀 \n"), min_size=1, max_size=12).map(str.encode),
    st.binary(min_size=1, max_size=5),
    runs,
)
counted = st.dictionaries(some, st.integers(1, 5), max_size=12)


@settings(max_examples=400, deadline=None)
@given(
    counts=st.one_of(counted, st.dictionaries(few, st.integers(1, 3), max_size=40)),
    more=st.integers(-300, 200),
    least=st.integers(1, 3),
    longest=st.one_of(st.none(), st.integers(2, 9)),
    special=st.sampled_from([[], ["<|endoftext|>"], ["<|é|>", "ab", "a", "aab", "ba"]]),
    prefix=st.sampled_from(["", PREFIX]),
)
def test_merges_are_the_librarys(
    counts: dict[bytes, int], more: int, least: int, longest: int | None, special: list[str], prefix: str
) -> None:
    size = max(0, 256 + len(special) + (256 if prefix else 0) + more)
    wanted = of_library(counts, special, size, least, longest, prefix)
    assert learn(words_of(counts), special, size, least, longest, prefix) == wanted


@pytest.mark.parametrize("prefix", ["", PREFIX])
@pytest.mark.parametrize("longest", [None, 5])
def test_merges_of_many_words_of_few_letters_are_the_librarys(prefix: str, longest: int | None) -> None:
    rng = random.Random(len(prefix))
    counts: Counter[bytes] = Counter()
    for length in (3, 8, 30, 2 * BLOCK, 10 * BLOCK):
        for _ in range(40):
            word = "".join(rng.choices("ab", k=rng.randint(1, length)))
            counts[word.encode()] += rng.randint(1, 4)
    size = 256 * (2 if prefix else 1) + 1500
    found = learn(words_of(counts), [], size, 1, longest, prefix)
    assert found == of_library(counts, [], size, 1, longest, prefix)


def test_the_order_of_words_changes_nothing() -> None:
    rng = random.Random(1)
    counts = {bytes(rng.choices(b"abcd", k=rng.randint(1, 90))): rng.randint(1, 3) for _ in range(300)}
    mixed = dict(rng.sample(list(counts.items()), len(counts)))
    assert learn(words_of(mixed), [], 700, 1, None) == learn(words_of(counts), [], 700, 1, None)


def test_counts_may_be_larger_than_32_bits() -> None:
    counts = words_of({b"abc": 1, b"bcd": 1})
    learned = learn(counts._replace(counts=np.array([3 << 40, 1 << 40], np.int64)), [], 260, 2, None)
    assert learned.merges[:3] == [("b", "c"), ("a", "bc"), ("bc", "d")]


def test_a_word_may_be_long() -> None:
    rng = random.Random(2)
    word = bytes(rng.choices(b"ACGT", k=200_000))
    learned = learn(words_of({word: 1}), [], 2000, 2, None)
    assert len(learned.vocabulary) == 2000
