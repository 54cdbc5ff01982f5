"""Training: parameters, ties, pieces of long texts."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.bpe.encode import encode
from corpusmill.pipeline.bpe.load import load_bpe
from corpusmill.pipeline.tokenizer import train as module
from corpusmill.pipeline.tokenizer.train import cut, train
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.pipeline.corpus import words
from tests.pipeline.tokenizer.reference import pieces
from tests.pipeline.tokenizer.test_pretokenizers import DIGITS, NAMES, library

TEXTS = [words(80, seed) for seed in range(60)]


def array(texts: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def trained(texts: list[str], **params: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(train(array(texts), TokenizerParams(**params)))
    return content


def test_ids_are_special_tokens_then_bytes_then_merges() -> None:
    made = trained(TEXTS, vocab_size=300, special_tokens=["<|user|>", "<|end|>"])
    ids = {token["content"]: token["id"] for token in made["added_tokens"]}
    assert ids == {"<|endoftext|>": 0, "<|user|>": 1, "<|end|>": 2}
    assert all(token["special"] and not token["normalized"] for token in made["added_tokens"])
    vocabulary = sorted(made["model"]["vocab"], key=made["model"]["vocab"].get)
    assert len(vocabulary) == 300 and [len(name) for name in vocabulary[3:259]] == [1] * 256
    assert ["".join(pair) for pair in made["model"]["merges"]] == vocabulary[259:]


def test_the_vocabulary_is_rounded_up() -> None:
    made = trained(TEXTS, vocab_size=300, vocab_multiple=64)
    assert len(made["model"]["vocab"]) == 320 and len(made["added_tokens"]) == 1
    # A text without enough merges: reserved tokens fill up to the next multiple.
    made = trained(["ab ab"], vocab_size=1000, vocab_multiple=64)
    reserved = [token["content"] for token in made["added_tokens"][1:]]
    assert reserved == [f"<|reserved_{i}|>" for i in range(len(reserved))] and reserved
    bpe = load_bpe(json.dumps(made).encode(), "<|endoftext|>", "here")
    assert bpe.vocab_size % 64 == 0 and bpe.vocab_size == 320
    assert max(token["id"] for token in made["added_tokens"]) == 319


@pytest.mark.parametrize("limit", [2, 3, 6])
def test_no_token_is_longer_than_asked(limit: int) -> None:
    texts = ["abcdefgh 日本語日本語 " * 3] * 5
    made = trained(texts, vocab_size=400, max_token_bytes=limit)
    assert max(map(len, set(made["model"]["vocab"]) - {"<|endoftext|>"})) in (limit - 1, limit)
    assert max(map(len, set(trained(texts, vocab_size=400)["model"]["vocab"]) - {"<|endoftext|>"})) > 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("digits", DIGITS)
def test_merges_stay_inside_the_pieces_of_the_pattern(name: str, digits: str) -> None:
    params = {"vocab_size": 600, "pre_tokenizer": name, "digits": digits, "min_frequency": 1}
    texts = ["12345 helloWorld x12345\n" * 4] * 3
    data = train(array(texts), TokenizerParams.model_validate(params))
    bpe = load_bpe(data, "<|endoftext|>", "here")
    vocabulary = bpe.tokenizer.get_vocab(with_added_tokens=True)
    longest = max(sum(c.isdigit() for c in token) for token in vocabulary)
    unlimited = name == "gpt2" and digits == "as_pattern"
    assert longest == (5 if unlimited else 1 if digits == "single" else 3)
    ids, _ = encode(bpe, array(texts))
    assert bpe.tokenizer.decode(ids.tolist(), skip_special_tokens=False) == "".join(texts)


@pytest.mark.parametrize("name", ["the", "###", "a", " the", "日本", "\n\n", "12", "Ġ!", "Ġthe"])
def test_a_special_token_that_text_could_become_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"^tokenizer\.special_tokens: .*forge it; take a name") as caught:
        trained(TEXTS, vocab_size=300, special_tokens=["<|user|>", name])
    assert "'<|end|>'" in str(caught.value)
    with pytest.raises(UserError, match=r"^tokenizer\.eos_token: "):
        trained(TEXTS, vocab_size=300, eos_token=name)


def test_no_text_becomes_a_special_token() -> None:
    names = ["<|user|>", "</s>", "<eos>", "[END]"]
    made = train(
        array(["<|user|></s><eos>[END] " * 50] * 5), TokenizerParams(vocab_size=500, special_tokens=names)
    )
    bpe = load_bpe(made, "<|endoftext|>", "here")
    ids, _ = encode(bpe, array(["<|endoftext|>" + "".join(names), "x".join(names)]))
    assert ids.min() >= 1 + len(names)


def test_nfc_composes_before_training() -> None:
    made = trained(["cafe\u0301 " * 50] * 3, vocab_size=280, nfc=True)
    assert made["normalizer"] == {"type": "NFC"}
    assert any("Ã©" in token for token in made["model"]["vocab"])
    assert trained(["cafe\u0301 " * 50] * 3, vocab_size=280)["normalizer"] is None


def test_ties_are_broken_the_same_way_in_any_order() -> None:
    # Every pair occurs as often as every other: nothing but ties.
    letters = [chr(0x4E00 + i) for i in range(200)]
    texts = [a + b for a, b in pairwise(letters)] * 2 + [words(30, s) for s in range(20)] * 2
    first = train(array(texts), TokenizerParams(vocab_size=500))
    for seed in range(4):
        mixed = random.Random(seed).sample(texts, len(texts))
        cuts = [array(mixed[:seed]), array(mixed[seed : 70 + seed]), array(mixed[70 + seed :])]
        assert train(iter(cuts), TokenizerParams(vocab_size=500)) == first


def _seam(text: str, at: int) -> bool:
    before, here, after = text[at - 1], text[at], text[at + 1 : at + 2]
    space = here == " " and not before.isspace() and bool(after.strip())
    line = before == "\n" and bool(text[at - 2 : at - 1].strip()) and bool(here.strip()) and here != "/"
    return space or line


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab1 \n\r\t./'é\u0301日\u00a0"), max_size=120), st.integers(1, 12))
def test_pieces_are_the_text_and_part_no_word_at_a_seam(text: str, size: int) -> None:
    before = module.PIECE
    module.PIECE = size
    try:
        parts = list(cut(text))
    finally:
        module.PIECE = before
    assert "".join(parts) == text
    seams = all(_seam(text, sum(map(len, parts[: k + 1]))) for k in range(len(parts) - 1))
    if seams:
        for name in NAMES:
            cutter = library(name, "as_pattern").pre_tokenizer
            whole = [piece for piece, _ in cutter.pre_tokenize_str(text)]
            assert [piece for part in parts for piece, _ in cutter.pre_tokenize_str(part)] == whole


def test_long_texts_reach_the_library_in_pieces() -> None:
    text = "some words\n" * 40_000
    given_pieces = [piece for batch in pieces([array([text, "short"])]) for piece in batch]
    assert "".join(given_pieces) == text + "short" and given_pieces[-1] == "short"
    assert max(map(len, given_pieces)) <= 2 * module.PIECE < len(text)
    assert all(piece.endswith(("words\n", "some")) for piece in given_pieces[:-1])
