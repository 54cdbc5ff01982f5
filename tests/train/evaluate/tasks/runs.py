"""A finished run with a tokenizer of bytes, so that any text can be scored: trained for a few steps on this project's own pages."""

from __future__ import annotations

import json
from pathlib import Path

from corpusmill.common.config import load
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.shards import ShardSet, ShardSetEntry
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.trainer import train
from tests.conftest import ROOT
from tests.train.conftest import EOS, write_index

VOCAB = 512
LENGTH = 256


def tokenizer_json(texts: list[str]) -> bytes:
    """A byte-level BPE tokenizer; its first token is the end of text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str().encode()


def make_run(folder: Path, steps: int = 40) -> None:
    """`folder/config.yaml`, `folder/shards` and the run, `folder/run`."""
    from tokenizers import Tokenizer

    pages = sorted((ROOT / "docs").glob("*.md"))[:12]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    data = tokenizer_json(texts)
    encoded = [[*one.ids, EOS] for one in Tokenizer.from_str(data.decode()).encode_batch(texts)]
    shards = Folder(folder / "shards")
    (shards / "tokenizer.json").write(data)
    entries = []
    for split, part in (("train", encoded[:-1]), ("validation", encoded[-1:])):
        tars = [[(tokens[:4000], [0])] for tokens in part]
        index = write_index(shards, "docs", split, tars, 4000, "uint16", data, vocab_size=VOCAB)
        raw = index.model_dump_json().encode()
        (shards / f"docs/{split}/index.json").write(raw)
        entries.append(
            ShardSetEntry(
                source="docs", split=split, index=f"docs/{split}/index.json", index_xxh3=checksum(raw),
                ntokens=index.ntokens, ndocs=index.ndocs, text_bytes=index.text_bytes,
            )
        )  # fmt: skip
    whole = ShardSet(
        tokenizer="tokenizer.json", tokenizer_xxh3=checksum(data), vocab_size=VOCAB, eos_id=EOS, dtype="uint16",
        sets=entries,
    )  # fmt: skip
    (shards / "index.json").write(whole.model_dump_json().encode())
    config = {
        "name": "reader", "output": str(folder / "run"), "seed": 5,
        "data": {"shards": shards.url, "weights": {"docs": 1}, "sequence_length": LENGTH, "global_batch": 4, "micro_batch": 4},
        "model": {"dim": 48, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 96, "vocab_multiple": 64},
        "optimizer": {"lr": 1e-2}, "schedule": {"steps": steps, "warmup_steps": 4}, "precision": "fp32",
        "checkpoint": {"every": steps}, "log": {"every": 10, "tensorboard": False}, "device": "cpu", "threads": 1,
    }  # fmt: skip
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    train(load(TrainConfig, folder / "config.yaml"))
