"""Texts in place of tokens: the same commands, tokenised once."""

from __future__ import annotations

import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data import StreamingTokens
from corpusmill.train.data.inspect import describe_batch, describe_plan
from corpusmill.train.data.shards import open_shards
from corpusmill.train.data.texts.token_set import token_set
from corpusmill.train.evaluate.splits import evaluate
from corpusmill.train.trainer import train
from tests.train.data.texts.helpers import WORDS, tokenizer_file, tokenizer_json, write_ours


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A shard set of texts, two sources with a validation split each."""
    rng = random.Random(0)
    tars = {
        (source, split): [[" ".join(rng.choices(WORDS, k=60)) for _ in range(12)] for _ in range(2)]
        for source in ("web", "qa")
        for split in ("train", "validation")
    }
    return write_ours(tmp_path / "texts", tars, tokenizer_json())


def test_a_run_on_texts_is_the_run_on_their_tokens(
    texts: Path, config: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"data.weights": {"web": 1, "qa": 1}, "schedule.steps": 6, "schedule.warmup_steps": 1}
    tokens = token_set(str(texts), str(tmp_path / "other"))
    runs = {}
    for name, shards in (("texts", str(texts)), ("tokens", tokens.url)):
        made = TrainConfig.model_validate(
            config(**settings, **{"data.shards": shards, "output": str(tmp_path / f"run-{name}")})
        )
        runs[name] = (
            train(made)["weights_xxh3"],
            describe_batch(made, 4),
            evaluate(made, Folder(made.output_url))["sources"],
        )
        messages = capsys.readouterr().err
        assert ("8 tars to tokenise" in messages) == (name == "texts") and "reused" not in messages.split(
            "texts: 8 of 8"
        )[0]
        describe_plan(made)
    assert runs["texts"] == runs["tokens"]
    assert len(list((tmp_path / "run-texts/tokens").glob("*/index.json"))) == 1  # tokenised once


@pytest.mark.parametrize("packing", ["windows", "best_fit"])
def test_a_batch_names_the_characters_of_its_rows(
    texts: Path, config: Callable[..., Any], tmp_path: Path, packing: str
) -> None:
    tokens = token_set(str(texts), str(tmp_path / "tokens"))
    made = TrainConfig.model_validate(
        config(**{"data.weights": {"web": 1, "qa": 1}, "data.shards": tokens.url, "data.packing": packing})
    )
    texts_of = {}
    for file in texts.glob("*/train-text/*.tar"):
        with tarfile.open(file) as tar:
            for name in tar.getnames():
                if name.endswith(".txt"):
                    data = tar.extractfile(name)
                    assert data is not None
                    texts_of[name.removesuffix(".txt")] = data.read().decode()
    whole = parts = 0
    for step in range(1, 6):
        for row in describe_batch(made, step, text=True)["sequences"]:
            spans = [(texts_of[one["doc_id"]], *one["chars"]) for one in row["documents"]]
            found = "".join(text[begin:end] for text, begin, end in spans)
            text = row["text"].replace("<|endoftext|>", "")
            if "\ufffd" not in text:  # no character is cut
                assert found == text
                whole += 1
            parts += sum(end - begin < len(text) for text, begin, end in spans)
    assert whole > 20 and parts > 20


def test_a_stream_of_texts_needs_a_place_for_their_tokens(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.token_cache: .* holds texts; name a folder"):
        StreamingTokens(str(texts), sequence_length=16, global_batch=4)
    messages: list[str] = []
    options = {
        "sequence_length": 16,
        "global_batch": 4,
        "token_cache": str(tmp_path / "cache"),
        "log": messages.append,
    }
    with StreamingTokens(str(texts), **options) as stream:
        first = next(stream)
    assert "8 tars to tokenise" in messages[0]
    with StreamingTokens(str(texts), **options) as stream:
        assert torch.equal(next(stream)["tokens"], first["tokens"])
    assert "tokens reused from" in messages[-1]


def test_foreign_tars_are_read_with_a_tokenizer(tmp_path: Path) -> None:
    import io
    import tarfile

    (tmp_path / "tars/forum").mkdir(parents=True)
    with tarfile.open(tmp_path / "tars/forum/0.tar", "w") as tar:
        for i in range(30):
            data = json.dumps({"text": " ".join(random.Random(i).choices(WORDS, k=50))}).encode()
            info = tarfile.TarInfo(f"{i:03d}.json")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    options = {
        "sequence_length": 16,
        "global_batch": 4,
        "token_cache": str(tmp_path / "cache"),
        "log": lambda line: None,
    }
    with pytest.raises(UserError, match=r"data\.tokenizer: .* name the tokenizer\.json"):
        StreamingTokens(str(tmp_path / "tars"), **options)
    with StreamingTokens(
        str(tmp_path / "tars"), tokenizer=tokenizer_file(tmp_path / "t"), **options
    ) as stream:
        assert next(stream)["tokens"].shape == (4, 16) and stream.sources == ["forum"]
    with pytest.raises(UserError, match="give the folder of a shard set"):
        open_shards(str(tmp_path / "tars"))
