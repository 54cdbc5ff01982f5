"""Unigram and WordPiece through what reads shards: the loader's own encoder, streamed text, a model trained on them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.load import load_bpe
from corpusmill.pipeline.inspect.shards import verify_shards
from corpusmill.pipeline.tokenizer.train import train
from corpusmill.schemas.shards import INDEX
from corpusmill.schemas.tokenizer import TokenizerParams
from corpusmill.train.data.texts import token_set as module
from corpusmill.train.data.texts.encoder import Encoder, load_encoder
from corpusmill.train.data.texts.token_set import token_set
from corpusmill.train.generate.serve.answers import Tokens
from corpusmill.train.generate.text import Text
from tests.e2e.cli import corpusmill
from tests.pipeline.bpe.vocabularies import nasty
from tests.pipeline.shard.test_models import built
from tests.pipeline.tokenizer.test_train import TEXTS, array

MODELS = ("unigram", "wordpiece")
CONFIG = """\
name: small
output: {output}
seed: 3
data:
  shards: {shards}
  weights: {{web: 1}}
  sequence_length: 32
  global_batch: 2
  micro_batch: 2
model: {{dim: 16, layers: 1, heads: 2, ffn_dim: 32}}
schedule: {{steps: 2, warmup_steps: 1}}
checkpoint: {{every: 2}}
validation: {{every: 2, tokens: 256}}
log: {{every: 1, tensorboard: false}}
"""


@lru_cache(maxsize=4)
def encoder(model: str) -> Encoder:
    params = {"model": model, "vocab_size": 700}
    return load_encoder(train(array(TEXTS), TokenizerParams.model_validate(params)), model)


@pytest.mark.parametrize("model", MODELS)
def test_the_loader_gives_the_tokens_that_the_pipeline_writes(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, tars and indexes, with the characters at which blocks end: by two programs."""
    monkeypatch.setattr(module, "BLOCK_TOKENS", 256)
    both = built(tmp_path, model, form="both", shard_mb=256.0)
    folder = token_set(both.url, str(tmp_path / "cache"))
    names = [entry.path for entry in both.list() if "-text/" not in entry.path]
    names = [name for name in names if name.endswith((".tar", ".tar.idx", f"/{INDEX}", "tokenizer.json"))]
    assert len([name for name in names if name.endswith(".tar")]) > 4
    assert [name for name in names if (folder / name).read() != (both / name).read()] == []
    assert verify_shards(folder) == []


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=80, deadline=None)
@given(text=st.one_of(st.text(max_size=40), nasty()))
def test_text_is_streamed_in_whole_characters(model: str, text: str) -> None:
    tokenizer = encoder(model).tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    shown, pieces = Text(tokenizer), list[str]()
    for token in ids:
        pieces.append(shown.add(token))
    assert "".join(pieces) + shown.end() == text
    assert "\ufffd" in text or all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("model", MODELS)
def test_the_server_knows_the_bytes_of_each_token(model: str) -> None:
    tokenizer = encoder(model).tokenizer
    bpe = load_bpe(tokenizer.to_str().encode(), "<|endoftext|>", model)
    tokens = Tokens(tokenizer)
    data, bounds = bpe.pieces
    for token in range(1, bpe.vocab_size):
        assert bytes(tokens.bytes(token)) == data[bounds[token] : bounds[token + 1]].tobytes()


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_trained_evaluated_and_generates(model: str, tmp_path: Path) -> None:
    built(tmp_path, model)
    config = tmp_path / "train.yaml"
    config.write_text(CONFIG.format(output=tmp_path / "out", shards=tmp_path / "shards"))
    corpusmill("train", config)
    rows = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == [1, 2]
    text = corpusmill("evaluate", config, "--json").stdout
    assert "bits_per_byte" in text and "web" in text
    out = corpusmill("generate", config, "--prompt", "abc 日", "--seed", "1", "--max-tokens", "8").stdout
    assert out.startswith("abc 日")
    assert "web" in corpusmill("plan", config).stdout
