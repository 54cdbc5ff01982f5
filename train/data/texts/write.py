"""One tar of texts becomes one tar of token blocks, whose bytes depend on its documents, their order and the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

import numpy as np
from pydantic import ValidationError

from corpusmill.common.blocks import add_block
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import ID_BYTES, checksum
from corpusmill.common.storage import Folder
from corpusmill.common.tar import TarWriter
from corpusmill.schemas.manifest import PublishedFile, Strict, hash_json
from corpusmill.schemas.shards import Block, Shard
from corpusmill.train.data.texts.blocks import Blocks
from corpusmill.train.data.texts.documents import Documents, ahead
from corpusmill.train.data.texts.encoder import Encoder
from corpusmill.train.data.texts.inputs import Tar


class Done(Strict):
    """A tar's marker, written behind its files: `key` is the hash of all that they depend on."""

    key: str
    shard: Shard
    files: list[PublishedFile]
    sha256: str  # of the tar of texts
    samples: int
    quarantine: PublishedFile  # a line for each sample that is no document

    @property
    def quarantined(self) -> int:
        return self.samples - self.shard.ndocs


@dataclass(frozen=True)
class Task:
    """A tar to write: its source and `<source>-<split>-<number>`. `place`: its folder in the set."""

    tar: Tar
    source: str
    stem: str
    place: str
    block_tokens: int
    tokenizer_xxh3: str

    @property
    def key(self) -> str:
        return hash_json(
            [self.stem, self.tar.path, self.tar.size, self.tar.tag, self.tokenizer_xxh3, self.block_tokens]
        )


def write(task: Task, encoder: Encoder, folder: Folder) -> tuple[Done, bool]:
    """Write the tar, its `.idx` and its part of the quarantine below `folder`, then its marker; (the marker, False) if a
    valid one was there. Raises `WorkError` naming the tar of texts if it is damaged.

    Memory: what the library needs for a batch of `documents.BATCH` characters or the longest document, twice the texts of a
    batch, a block, 60 bytes a document of the tar, and its quarantine.
    """
    marker = folder / f"scratch/{task.stem}.json"
    found = _known(marker, task.key, folder)
    if found is not None:
        return found, False
    path, read = f"{task.place}/{task.stem}.tar", Documents(task.tar, task.source)
    with (folder / path).create() as stream:
        shard, xxh3, sidecar = _convert(task, encoder, read, stream)
    if read.samples != shard.ndocs + len(read.bad):
        raise WorkError(
            f"{task.tar.file}: of {read.samples} samples, {shard.ndocs} are kept and {len(read.bad)} quarantined"
        )
    lines = "".join(json.dumps(line) + "\n" for line in read.bad).encode()
    files = [
        PublishedFile(path=path, rows=shard.ndocs, bytes=shard.filesize, xxh3=xxh3),
        publish(folder, f"{path}.idx", sidecar),
    ]
    quarantine = publish(folder, f"scratch/{task.stem}.quarantine.jsonl", lines, rows=len(read.bad))
    done = Done(
        key=task.key, shard=shard, files=files, sha256=read.sha256, samples=read.samples, quarantine=quarantine
    )  # fmt: skip
    marker.write(done.model_dump_json().encode())
    return done, True


def publish(folder: Folder, path: str, data: bytes, rows: int | None = None) -> PublishedFile:
    """Write `data` at `folder/path`, atomically."""
    (folder / path).write(data)
    return PublishedFile(path=path, rows=rows, bytes=len(data), xxh3=checksum(data))


def _known(marker: Folder, key: str, folder: Folder) -> Done | None:
    """What `marker` holds, if it is of this key and its files are there in their sizes."""
    try:
        found = Done.model_validate_json(marker.read())
        whole = all(
            (folder / file.path).entry().size == file.bytes for file in [*found.files, found.quarantine]
        )
    except (FileNotFoundError, ValidationError):
        return None
    return found if found.key == key and whole else None


def _convert(task: Task, encoder: Encoder, read: Documents, sink: IO[bytes]) -> tuple[Shard, str, bytes]:
    """(its entry in the index, its xxh3, its `.idx`)."""
    tar, blocks = TarWriter(sink), Blocks(task.block_tokens, encoder.dtype)
    table: list[Block] = []
    ntokens = ndocs = text_bytes = 0
    for ids, raw in ahead(read.batches()):
        texts = [encoder.plain(text) for text in raw]
        tokens, offsets = encoder.encode(texts)
        names = np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, ID_BYTES)
        chars = np.array([len(text) for text in texts], dtype=np.int64)
        for cut in blocks.feed(tokens, offsets, names, chars, partial(_cuts, encoder, texts)):
            table.append(Block(**add_block(tar, cut, f"{task.stem}-{len(table):06d}")))
        ntokens += len(tokens)
        ndocs += len(ids)
        text_bytes += sum(len(text.encode()) for text in texts)
    for cut in blocks.rest():
        table.append(Block(**add_block(tar, cut, f"{task.stem}-{len(table):06d}")))
    sidecar = tar.finish()
    shard = Shard(
        url=f"{task.stem}.tar", nsamples=len(table), filesize=tar.size, sha256=tar.sha256, ntokens=ntokens, ndocs=ndocs,
        text_bytes=text_bytes, blocks=table,
    )  # fmt: skip
    return shard, tar.xxh3, sidecar


def _cuts(encoder: Encoder, texts: Sequence[str], row: int, places: Sequence[int]) -> list[tuple[int, int]]:
    return encoder.cuts(texts[row], places)
