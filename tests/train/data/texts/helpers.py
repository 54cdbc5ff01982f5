"""Tars of text as others write them and as we do, a small tokenizer, and the documents of a token set."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corpusmill.common.ids import checksum, doc_id
from corpusmill.common.storage import Folder
from corpusmill.schemas.shards import BlockDocuments, ShardSet, TextIndex, TextSetEntry, TextShard
from corpusmill.train.data.shards import open_shards

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "his",
    "they",
    "at",
    "be",
    "this",
    "from",
    "naïve",
    "日本",
    "don't",
]


@lru_cache(maxsize=8)
def tokenizer_json(
    size: int = 320, eos: str = "<|endoftext|>", nfc: bool = False, special: bool = True
) -> bytes:
    """A byte-level BPE tokenizer that knows a few words."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [eos] if special else []
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=names, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 40, trainer)
    return tokenizer.to_str().encode()


def tokenizer_file(folder: Path, **how: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(tokenizer_json(**how))
    return str(folder / "tokenizer.json")


def library(data: bytes) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(data.decode())
    tokenizer.encode_special_tokens = True
    return tokenizer


def tar_of(members: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write_tar(file: Path, texts: Mapping[str, str] | list[str]) -> Path:
    """A foreign tar of `.txt` members, keys `doc0`, `doc1`, ... for a list."""
    named = texts if isinstance(texts, Mapping) else {f"doc{i}": text for i, text in enumerate(texts)}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(tar_of((f"{key}.txt", text.encode()) for key, text in named.items()))
    return file


def write_ours(folder: Path, sets: Mapping[tuple[str, str], list[list[str]]], tokenizer: bytes) -> Path:
    """A text shard set: (source, split) -> tars of texts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    entries = []
    for (source, split), tars in sets.items():
        name, place = f"{source}-{split}-text", folder / source / f"{split}-text"
        place.mkdir(parents=True)
        shards = []
        for number, texts in enumerate(tars):
            members = []
            for row, text in enumerate(texts):
                key = doc_id(source, f"{split}/{number}#{row}").hex()
                members += [(f"{key}.txt", text.encode()), (f"{key}.json", b'{"text": "not this one"}')]
            data, size = tar_of(members), sum(len(text.encode()) for text in texts)
            (place / f"{name}-{number:06d}.tar").write_bytes(data)
            shards.append(
                TextShard(
                    url=f"{name}-{number:06d}.tar", nsamples=len(texts), filesize=len(data), ndocs=len(texts),
                    sha256=hashlib.sha256(data).hexdigest(), text_bytes=size,
                )
            )  # fmt: skip
        totals = {field: sum(getattr(shard, field) for shard in shards) for field in ("ndocs", "text_bytes")}
        index = TextIndex(name=name, source=source, split=split, shardlist=shards, **totals)  # type: ignore[arg-type]
        (place / "index.json").write_text(index.model_dump_json())
        xxh3 = checksum((place / "index.json").read_bytes())
        path = f"{source}/{split}-text/index.json"
        entries.append(TextSetEntry(source=source, split=split, index=path, index_xxh3=xxh3, **totals))  # type: ignore[arg-type]
    known = library(tokenizer)
    top = ShardSet(
        tokenizer="tokenizer.json", tokenizer_xxh3=checksum(tokenizer), vocab_size=known.get_vocab_size(),
        eos_id=known.token_to_id("<|endoftext|>"), dtype="uint16", sets=[], texts=entries,
    )  # fmt: skip
    (folder / "index.json").write_text(top.model_dump_json())
    return folder


class Document(NamedTuple):
    """A document of a token set: its tokens without the last, which ends it, and its characters in each block."""

    doc_id: str
    tokens: list[int]
    chars: list[tuple[int, int]]


def documents(folder: Folder, split: str = "train") -> dict[str, list[Document]]:
    """source -> its documents in their order, read by the indexes; every checksum is compared."""
    opened = open_shards(folder.url)
    found: dict[str, list[Document]] = {}
    for name, source in getattr(opened, split).items():
        mine = found[name] = []
        for shard in source.index.shardlist:
            tar = (source.folder / shard.url).read()
            assert (len(tar), hashlib.sha256(tar).hexdigest()) == (shard.filesize, shard.sha256)
            open_end = False
            for block in shard.blocks:
                tokens, starts, about = (
                    tar[offset : offset + size]
                    for offset, size in (
                        (block.offset, block.size), (block.docs_offset, block.docs_size),
                        (block.json_offset, block.json_size),
                    )
                )  # fmt: skip
                assert [checksum(part) for part in (tokens, starts, about)] == [
                    block.xxh3, block.docs_xxh3, block.json_xxh3
                ]  # fmt: skip
                array = np.load(io.BytesIO(tokens))
                assert array.dtype == source.dtype and len(array) == block.ntokens
                answer = BlockDocuments.model_validate_json(about)
                assert np.load(io.BytesIO(starts)).tolist() == answer.token_starts
                edges = [*answer.token_starts, len(array)]
                for row, identity in enumerate(answer.doc_ids):
                    piece = array[edges[row] : edges[row + 1]].tolist()
                    chars = (answer.char_starts[row], answer.char_ends[row])
                    if open_end:
                        assert row == 0 and mine[-1].doc_id == identity
                        mine[-1].tokens.extend(piece)
                        mine[-1].chars.append(chars)
                    else:
                        mine.append(Document(identity, piece, [chars]))
                    open_end = piece[-1] != source.index.eos_id
            assert not open_end
        for document in mine:
            assert document.tokens.pop() == source.index.eos_id
    return found


def contents(folder: Folder) -> dict[str, bytes]:
    """Every file of a token set."""
    return {entry.path: (folder / entry.path).read() for entry in folder.list()}


def quarantine(folder: Folder) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "quarantine.jsonl").read().splitlines()]


def texts(count: int, seed: int = 0, most: int = 60) -> list[str]:
    """Texts of a few words each."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, int(rng.integers(1, most)))) + "\r\n" for _ in range(count)]
