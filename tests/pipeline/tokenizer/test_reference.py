"""`tokenizer.json` has the bytes that the library's trainers make, from words counted by kernels."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.tokenizer import train as module
from corpusmill.pipeline.tokenizer.train import learned, parted, train, words_of
from corpusmill.pipeline.tokenizer.words import added
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.pipeline.bpe.vocabularies import nasty
from tests.pipeline.corpus import words
from tests.pipeline.tokenizer.reference import by_library
from tests.pipeline.tokenizer.test_pretokenizers import DIGITS, NAMES
from tests.pipeline.tokenizer.test_train import array

CORPUS = Path(__file__).resolve().parents[3] / "examples" / "corpus"
some = st.one_of(
    st.text(alphabet=st.sampled_from("ab "), max_size=30),
    st.text(alphabet=st.sampled_from("aA1 \n'sé\u0301日😀!"), max_size=30),
    st.tuples(st.text(max_size=3), st.integers(1, 80)).map(lambda pair: pair[0] * pair[1]),
    nasty(),
)


def params_of(model: str, **params: Any) -> TokenizerParams:
    size = params.pop("more", 60) + 257 + 256 * (model == "wordpiece") + len(params.get("special_tokens", []))
    return TokenizerParams.model_validate({"model": model, "vocab_size": size, **params})


@pytest.mark.parametrize("model", ["bpe", "wordpiece"])
@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(some, max_size=8),
    name=st.sampled_from(NAMES),
    digits=st.sampled_from(DIGITS),
    nfc=st.booleans(),
    least=st.integers(1, 3),
    longest=st.one_of(st.none(), st.integers(2, 7)),
    more=st.sampled_from([0, 1, 7, 60, 900]),
    multiple=st.sampled_from([1, 1, 64]),
    # Texts with a's may be merged into the last one.
    special=st.sampled_from([[], ["<|user|>", "a'"]]),
    cut=st.integers(0, 8),
)
def test_any_texts_in_any_parts_give_the_librarys_bytes(
    model: str, texts: list[str], name: str, digits: str, nfc: bool, least: int, longest: int | None, more: int, multiple: int,
    special: list[str], cut: int,
) -> None:  # fmt: skip
    params = params_of(
        model, pre_tokenizer=name, digits=digits, nfc=nfc, min_frequency=least, more=more, vocab_multiple=multiple,
        special_tokens=special, max_token_bytes=longest if model == "bpe" else None,
    )  # fmt: skip
    wanted = by_library([array(texts)], params)
    assert train(array(texts), params) == wanted
    parts = [array(texts[cut:]), array(texts[:cut])]
    assert learned(added(words_of([part], params) for part in parts), params) == wanted


@pytest.mark.parametrize("model", ["bpe", "wordpiece"])
def test_real_text_gives_the_librarys_bytes(model: str) -> None:
    files = sorted((CORPUS / "sources").rglob("*.txt"))
    texts = [file.read_text("utf-8", errors="ignore") for file in files[::3]]
    assert sum(map(len, texts)) > 300_000
    for least in (1, 2):
        params = params_of(model, more=3000, min_frequency=least)
        assert train(array(texts), params) == by_library([array(texts)], params)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(alphabet=st.sampled_from("ab1 \n\t/é\u0301日"), max_size=60), max_size=4),
    st.integers(1, 12),
)
def test_long_texts_are_cut_as_the_library_was_given_them(texts: list[str], size: int) -> None:
    params = params_of("bpe", min_frequency=1)
    before = module.PIECE
    module.PIECE = size
    try:
        wanted = by_library([array(texts)], params)
        assert train(array(texts), params) == wanted
        assert "".join(parted(array(texts)).to_pylist()) == "".join(texts)
    finally:
        module.PIECE = before


@pytest.mark.parametrize("model", ["bpe", "wordpiece", "unigram"])
def test_any_number_of_threads_gives_the_same_words(model: str) -> None:
    texts = [words(400, seed) + " é\u0301 日本" for seed in range(40)]
    arrays = [pa.chunked_array([pa.array(texts[i : i + 3], pa.large_string())]) for i in range(0, 40, 3)]
    params = params_of(model)
    alone = words_of(arrays, params)
    mixed = random.Random(1).sample(arrays, len(arrays))
    assert learned(words_of(mixed, params, threads=3), params) == learned(alone, params)
