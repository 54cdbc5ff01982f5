"""Unigram and WordPiece over bytes: the same bytes in every process, the library's ids, every text back."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import alphabet
from corpusmill.pipeline.bpe.encode import coming_back, encode, how
from corpusmill.pipeline.bpe.load import Bpe, decode, load_bpe
from corpusmill.pipeline.tokenizer.train import CONTINUES, WORD_BYTES, train
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.conftest import IMPORT_PATH
from tests.pipeline.bpe.vocabularies import nasty, of_library
from tests.pipeline.corpus import words
from tests.pipeline.tokenizer.test_tokenizer import build, corpus
from tests.pipeline.tokenizer.test_train import array

MODELS = ("unigram", "wordpiece")
TEXTS = [words(80, seed) for seed in range(60)]


@lru_cache(maxsize=8)
def made(model: str, **params: Any) -> bytes:
    return train(array(TEXTS), TokenizerParams.model_validate({"model": model, "vocab_size": 700, **params}))


def loaded(model: str) -> Bpe:
    return load_bpe(made(model), "<|endoftext|>", model)


def tokens(data: bytes) -> dict[str, int]:
    """Name -> id."""
    vocab = json.loads(data)["model"]["vocab"]
    return vocab if isinstance(vocab, dict) else {name: i for i, (name, _) in enumerate(vocab)}


def test_ids_are_special_tokens_then_bytes_then_what_was_learned() -> None:
    letters = sorted(alphabet())
    data = train(
        array(TEXTS), TokenizerParams(model="unigram", vocab_size=300, special_tokens=["<|user|>", "<|end|>"])
    )
    names = list(tokens(data))
    assert len(names) == 300 and names[:3] == ["<|endoftext|>", "<|user|>", "<|end|>"]
    assert names[3:259] == letters and all(len(name) > 1 for name in names[259:])
    scores = [score for _, score in json.loads(data)["model"]["vocab"]]
    assert scores[259:] == sorted(scores[259:], reverse=True) and max(scores[:3]) < min(scores[3:])
    data = train(
        array(TEXTS), TokenizerParams(model="wordpiece", vocab_size=600, special_tokens=["<|user|>"])
    )
    ids = tokens(data)
    names = sorted(ids, key=lambda name: ids[name])
    assert len(names) == 600 and names[:2] == ["<|endoftext|>", "<|user|>"]
    assert names[2:258] == [CONTINUES + letter for letter in letters] and names[258:514] == letters
    assert any(name.startswith(CONTINUES) for name in names[514:]) and "[UNK]" not in names
    assert [token["content"] for token in json.loads(data)["added_tokens"]] == names[:2]


@pytest.mark.parametrize("model", MODELS)
def test_texts_in_any_order_give_the_same_bytes(model: str) -> None:
    for seed in range(3):
        mixed = random.Random(seed).sample(TEXTS, len(TEXTS))
        parts = [array(mixed[: 10 * seed]), array(mixed[10 * seed : 50]), array(mixed[50:])]
        assert train(
            iter(parts), TokenizerParams.model_validate({"model": model, "vocab_size": 700})
        ) == made(model)


@pytest.mark.parametrize("model", MODELS)
def test_threads_and_processes_change_no_byte(model: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.json"
    file.write_text(json.dumps(TEXTS))
    program = (
        "import json, hashlib, pyarrow as pa\n"
        "from corpusmill.pipeline.tokenizer.train import train\nfrom corpusmill.schemas.tokenizer import TokenizerParams\n"
        f"texts = pa.chunked_array([json.load(open({str(file)!r}))], pa.large_string())\n"
        f"print(hashlib.sha256(train(texts, TokenizerParams(model={model!r}, vocab_size=700))).hexdigest())"
    )
    digests = set()
    for seed, threads in (("0", "false"), ("7", "true")):
        env = {
            **os.environ, "PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": threads, "PYTHONPATH": IMPORT_PATH
        }  # fmt: skip
        command = [sys.executable, "-c", program]
        digests.add(
            subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()
        )
    assert digests == {hashlib.sha256(made(model)).hexdigest()}


@pytest.mark.parametrize("model", MODELS)
def test_partitions_change_no_byte_of_the_stage(model: str, tmp_path: Path) -> None:
    docs = corpus()
    first = build(tmp_path / "1", docs, 1, model=model, vocab_size=600)
    assert build(tmp_path / "3", docs, 3, shuffle=3, model=model, vocab_size=600) == first
    stats = json.loads(first["stats.json"])
    assert stats["vocab_size"] == 600 and stats["round_trip"]["changed"] == 0
    assert stats["sources"]["web"]["bytes_per_token"] > 1.5


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=150, deadline=None)
@given(texts=st.lists(st.one_of(st.text(max_size=60), nasty()), max_size=4))
def test_every_text_comes_back_from_the_librarys_ids(model: str, texts: list[str]) -> None:
    bpe = loaded(model)
    ids, offsets = encode(bpe, array(texts))
    parts = [ids[a:b].tolist() for a, b in pairwise(offsets.tolist())]
    assert parts == of_library(bpe, texts)
    assert coming_back(bpe, array(texts), ids, offsets).all()
    for part, text in zip(parts, texts, strict=True):
        assert decode(bpe.tokenizer, part) == text and bpe.eos_id not in part
        assert int(bpe.byte_lengths[part].sum()) == len(text.encode())
        assert int(bpe.lead_bytes[part].sum()) == len(text)


@pytest.mark.parametrize("model", MODELS)
def test_words_of_any_length_come_back(model: str) -> None:
    bpe = loaded(model)
    texts = ["x" * 50_000, "日" * 3000, "a" * (WORD_BYTES - 1) + "é" + "b" * 500, "-" * 1001, "\x00" * 300]
    ids, offsets = encode(bpe, array(texts))
    assert coming_back(bpe, array(texts), ids, offsets).all()
    assert how(bpe).startswith("encoding by the library") and type(bpe.tokenizer.model).__name__ in how(bpe)


@pytest.mark.parametrize("model", MODELS)
def test_tokens_are_longer_than_bytes(model: str) -> None:
    text = words(40, 1)
    ids, _ = encode(loaded(model), array([text]))
    assert len(ids) < len(text.encode()) / 1.5


def test_wordpiece_takes_the_longest_piece_first() -> None:
    bpe = load_bpe(
        train(array(["abcd abcd abc abc xbcd xbcd bcd bcd"] * 9), TokenizerParams(model="wordpiece", vocab_size=530)),
        "<|endoftext|>", "t",
    )  # fmt: skip
    names = [bpe.tokenizer.id_to_token(i) for i in encode(bpe, array(["abcd"]))[0].tolist()]
    vocabulary = set(bpe.tokenizer.get_vocab())
    assert names[0] == max(("abcd"[:n] for n in range(1, 5) if "abcd"[:n] in vocabulary), key=len)
    assert all(name.startswith(CONTINUES) for name in names[1:])
    # A text that holds the mark itself is bytes, as any other.
    text = f"{CONTINUES}a ##b"
    assert decode(bpe.tokenizer, encode(bpe, array([text]))[0].tolist()) == text


@pytest.mark.parametrize("model", MODELS)
def test_no_text_becomes_a_special_token(model: str) -> None:
    names = ["<|user|>", "</s>", "[END]"]
    data = train(
        array(["<|user|></s>[END] " * 50] * 5),
        TokenizerParams.model_validate({"model": model, "vocab_size": 600, "special_tokens": names}),
    )
    bpe = load_bpe(data, "<|endoftext|>", "here")
    ids, _ = encode(bpe, array(["<|endoftext|>" + "".join(names), "x".join(names)]))
    assert ids.min() > len(names)
    with pytest.raises(UserError, match=r"^tokenizer\.special_tokens: .*forge it"):
        train(array(TEXTS), TokenizerParams.model_validate({"model": model, "special_tokens": ["the"]}))


def test_the_mark_of_wordpiece_is_in_no_special_token() -> None:
    params = TokenizerParams(model="wordpiece", special_tokens=[f"<|{CONTINUES}|>"])
    with pytest.raises(UserError, match=r"^tokenizer\.special_tokens: .*marks tokens within words"):
        train(array(TEXTS), params)
    assert CONTINUES not in alphabet()


@pytest.mark.parametrize("model", MODELS)
def test_the_vocabulary_is_filled_up(model: str) -> None:
    params = {"model": model, "vocab_size": 1000, "vocab_multiple": 64}
    data = train(array(["ab ab"]), TokenizerParams.model_validate(params))
    bpe = load_bpe(data, "<|endoftext|>", "here")
    added = [token["content"] for token in json.loads(data)["added_tokens"]]
    assert bpe.vocab_size % 64 == 0 and added == [
        "<|endoftext|>",
        *(f"<|reserved_{i}|>" for i in range(len(added) - 1)),
    ]


@pytest.mark.parametrize("limit", [2, 3, 6])
def test_no_piece_of_unigram_is_longer_than_asked(limit: int) -> None:
    texts = array(["abcdefgh 日本語日本語 " * 3] * 5)
    data = train(texts, TokenizerParams(model="unigram", vocab_size=400, max_token_bytes=limit))
    assert max(map(len, set(tokens(data)) - {"<|endoftext|>"})) <= limit
    free = train(texts, TokenizerParams(model="unigram", vocab_size=400))
    assert max(map(len, set(tokens(free)) - {"<|endoftext|>"})) > 6


@pytest.mark.parametrize("model", MODELS)
def test_nfc_composes_first(model: str) -> None:
    params = {"model": model, "vocab_size": 560, "nfc": True}
    data = train(array(["cafe\u0301 " * 50] * 3), TokenizerParams.model_validate(params))
    bpe = load_bpe(data, "<|endoftext|>", "here")
    assert bpe.nfc and decode(bpe.tokenizer, encode(bpe, ["cafe\u0301"])[0].tolist()) == "café"


def test_a_tokenizer_that_is_not_over_bytes_is_refused() -> None:
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(UserError, match="only byte-level BPE .* WordPiece over bytes") as caught:
        load_bpe(tokenizer.to_str().encode(), "[UNK]", "bert.json")
    assert "\n" not in str(caught.value)


def test_an_empty_sample_leaves_the_bytes() -> None:
    data = train(array([""]), TokenizerParams(model="unigram", vocab_size=300))
    assert len(tokens(data)) == 257
    bpe = load_bpe(data, "<|endoftext|>", "here")
    assert decode(bpe.tokenizer, encode(bpe, ["日本"])[0].tolist()) == "日本"
