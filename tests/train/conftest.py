"""A small shard set, written by the schema alone, so that `train` is tested without `pipeline`."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.common.ids import checksum, doc_id
from corpusmill.common.storage import Folder
from corpusmill.schemas.shards import Block, BlockDocuments, Shard, ShardIndex, ShardSet, ShardSetEntry
from tests.train.precision.products import decoded_products  # noqa: F401 (a fixture for all)

EOS = 0
VOCAB = 96
SOURCES = {"wiki": 5, "books": 3, "code": 2}  # shards of train


def write_shards(
    folder: Folder,
    sources: dict[str, int] | None = None,
    *,
    block_tokens: int = 150,
    blocks: int = 3,
    validation_shards: int = 1,
    dtype: str = "uint16",
    specials: tuple[str, ...] = (),
) -> Folder:
    """A shard set with this many tars per source; texts of a Markov chain, so that a model has something to learn. `specials`: tokens of
    the tokenizer that no text has, with the ids from VOCAB on."""
    tokenizer, size = tokenizer_json(specials), VOCAB + len(specials)
    (folder / "tokenizer.json").write(tokenizer)
    entries = []
    for number, (source, shards) in enumerate((sources or SOURCES).items()):
        for split, count in (("train", shards), ("validation", validation_shards)):
            rng = np.random.default_rng([number, split == "train"])
            tars = [
                [
                    document_tokens(rng, block_tokens - (37 + shard) * (block == blocks - 1), number)
                    for block in range(blocks)
                ]
                for shard in range(count)
            ]  # the last block of a tar is shorter
            index = write_index(folder, source, split, tars, block_tokens, dtype, tokenizer, size)
            data = index.model_dump_json().encode()
            (folder / f"{source}/{split}/index.json").write(data)
            entries.append(
                ShardSetEntry(
                    source=source, split=split, index=f"{source}/{split}/index.json", index_xxh3=checksum(data),
                    ntokens=index.ntokens, ndocs=index.ndocs, text_bytes=index.text_bytes,
                )
            )  # fmt: skip
    whole = ShardSet(
        tokenizer="tokenizer.json", tokenizer_xxh3=checksum(tokenizer), vocab_size=size, eos_id=EOS, dtype=dtype,
        sets=entries,
    )  # fmt: skip
    (folder / "index.json").write(whole.model_dump_json().encode())
    return folder


def write_index(
    folder: Folder,
    source: str,
    split: Any,
    tars: list[list[tuple[list[int], list[int]]]],
    block_tokens: int,
    dtype: Any,
    tokenizer: bytes,
    vocab_size: int = VOCAB,
    bytes_per_token: float = 3,
) -> ShardIndex:
    """Tars of blocks, a block being (tokens, starts of its documents), under `<source>/<split>/`."""
    shards, docs = [], 0
    for shard, blocks in enumerate(tars):
        name = f"{source}-{split}-{shard:06d}.tar"
        buffer, table = io.BytesIO(), []
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for block, (tokens, starts) in enumerate(blocks):
                key = f"{source}-{split}{shard:06d}-{block:06d}"
                member = BlockDocuments(
                    doc_ids=[doc_id(source, f"{split}#{docs + i}").hex() for i in range(len(starts))],
                    token_starts=starts,
                    char_starts=[0] * len(starts),
                    char_ends=np.diff([*starts, len(tokens)]).tolist(),
                )
                docs += len(starts)
                payloads = {
                    "tokens.npy": npy(np.array(tokens, dtype=dtype)),
                    "docs.npy": npy(np.array(starts, dtype=np.uint32)),
                    "json": member.model_dump_json().encode(),
                }
                places = {}
                for extension, payload in payloads.items():
                    info = tarfile.TarInfo(f"{key}.{extension}")
                    info.size = len(payload)
                    places[extension] = buffer.tell() + 512
                    tar.addfile(info, io.BytesIO(payload))
                sizes = {extension: len(payload) for extension, payload in payloads.items()}
                sums = {extension: checksum(payload) for extension, payload in payloads.items()}
                table.append(
                    Block(
                        key=key, ntokens=len(tokens), ndocs=len(starts),
                        header=sizes["tokens.npy"] - len(tokens) * np.dtype(dtype).itemsize,
                        offset=places["tokens.npy"], size=sizes["tokens.npy"], xxh3=sums["tokens.npy"],
                        docs_offset=places["docs.npy"], docs_size=sizes["docs.npy"], docs_xxh3=sums["docs.npy"],
                        json_offset=places["json"], json_size=sizes["json"], json_xxh3=sums["json"],
                    )
                )  # fmt: skip
        data = buffer.getvalue()
        (folder / f"{source}/{split}/{name}").write(data)
        total = sum(block.ntokens for block in table)
        shards.append(
            Shard(
                url=name, nsamples=len(blocks), filesize=len(data), sha256=hashlib.sha256(data).hexdigest(), ntokens=total,
                ndocs=sum(block.ndocs for block in table), text_bytes=round(total * bytes_per_token), blocks=table,
            )
        )  # fmt: skip
    return ShardIndex(
        name=f"{source}-{split}", source=source, split=split, dtype=dtype, vocab_size=vocab_size, eos_id=EOS,
        tokenizer="../../tokenizer.json", tokenizer_xxh3=checksum(tokenizer), block_tokens=block_tokens,
        ntokens=sum(s.ntokens for s in shards), ndocs=docs, text_bytes=sum(s.text_bytes for s in shards), shardlist=shards,
    )  # fmt: skip


def document_tokens(rng: np.random.Generator, size: int, flavour: int) -> tuple[list[int], list[int]]:
    """`size` tokens of documents that each end with EOS (the last one cut), and where they start."""
    tokens: list[int] = []
    starts: list[int] = []
    while len(tokens) < size:
        starts.append(len(tokens))
        token = int(rng.integers(1, VOCAB))
        for _ in range(int(rng.integers(5, 60))):
            tokens.append(token)
            token = 1 + (token * 7 + flavour + int(rng.integers(0, 3))) % (VOCAB - 1)
        tokens.append(EOS)
    return tokens[:size], [start for start in starts if start < size]


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def tokenizer_json(specials: tuple[str, ...] = ()) -> bytes:
    """A tokenizer whose vocabulary is VOCAB letters, and special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {"<|endoftext|>": EOS, **{chr(0x100 + i): i for i in range(1, VOCAB)}}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<|endoftext|>", *specials])
    return tokenizer.to_str().encode()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """More threads only wait for each other at these sizes, and what a test sets is not to be left to the next."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Three sources of unequal size in a local folder; not to be written to."""
    return write_shards(Folder(tmp_path_factory.mktemp("data") / "shards"))


@pytest.fixture
def config(shards: Folder, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A run of a few seconds as a plain dict; `config(**{"model.dropout": 0.1})` sets dotted keys."""

    def make(**settings: Any) -> dict[str, Any]:
        base: dict[str, Any] = {
            "name": "tiny", "output": str(tmp_path / "run"), "seed": 7,
            "data": {
                "shards": shards.url, "weights": {"wiki": 2, "books": 1, "code": 1}, "sequence_length": 24,
                "global_batch": 8, "micro_batch": 4, "prefetch": 2, "window_blocks": 2,
            },
            "model": {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 64, "vocab_multiple": 8},
            "optimizer": {"lr": 3e-3},
            "schedule": {"steps": 20, "warmup_steps": 4},
            "precision": "fp32",
            "checkpoint": {"every": 5, "keep_last": 2},
            "validation": {"every": 10, "tokens": 96},
            "log": {"every": 1, "tensorboard": False},
            "device": "cpu", "threads": 1,
        }  # fmt: skip
        for key, value in settings.items():
            place = base
            *parents, last = key.split(".")
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        return base

    return make


@pytest.fixture
def write_config(config: Callable[..., dict[str, Any]], tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """The same as a file (JSON is YAML)."""

    def make(**settings: Any) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(json.dumps(config(**settings)), encoding="utf-8")
        return path

    yield make
