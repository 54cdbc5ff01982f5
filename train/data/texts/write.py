"""One tar of texts becomes one tar of token blocks, whose bytes depend on its documents, their order and the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from corpusmill.common.blocks import Encoded, write_blocks
from corpusmill.common.checkpoints import known
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import ID_BYTES, checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import Marker, PublishedFile, hash_json
from corpusmill.schemas.shards import Shard
from corpusmill.train.data.texts.documents import Documents, ahead
from corpusmill.train.data.texts.encoder import Encoder
from corpusmill.train.data.texts.inputs import Tar


class Done(Marker):
    """A tar's marker. `files`: the tar, its `.idx`, and the quarantine: a line for each sample that is no document."""

    shard: Shard
    sha256: str  # of the tar of texts
    samples: int

    @property
    def quarantined(self) -> int:
        return self.samples - self.shard.ndocs

    @property
    def quarantine(self) -> PublishedFile:
        return self.files[2]


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
    found = known(Done, marker, task.key, folder)
    if found is not None:
        return found, False
    path, read = f"{task.place}/{task.stem}.tar", Documents(task.tar, task.source)
    with (folder / path).create() as stream:
        documents = _encoded(read, encoder)
        made = write_blocks(documents, task.stem, task.block_tokens, encoder.dtype, stream)
    shard = Shard(**made.shard)
    if read.samples != shard.ndocs + len(read.bad):
        raise WorkError(
            f"{task.tar.file}: of {read.samples} samples, {shard.ndocs} are kept and {len(read.bad)} quarantined"
        )
    lines = "".join(json.dumps(line) + "\n" for line in read.bad).encode()
    files = [
        PublishedFile(path=path, rows=shard.ndocs, bytes=shard.filesize, xxh3=made.xxh3),
        publish(folder, f"{path}.idx", made.sidecar),
        publish(folder, f"scratch/{task.stem}.quarantine.jsonl", lines, rows=len(read.bad)),
    ]
    done = Done(key=task.key, shard=shard, files=files, sha256=read.sha256, samples=read.samples)
    marker.write(done.model_dump_json().encode())
    return done, True


def publish(folder: Folder, path: str, data: bytes, rows: int | None = None) -> PublishedFile:
    """Write `data` at `folder/path`, atomically."""
    (folder / path).write(data)
    return PublishedFile(path=path, rows=rows, bytes=len(data), xxh3=checksum(data))


def _encoded(read: Documents, encoder: Encoder) -> Iterator[Encoded]:
    """The documents of a tar, a batch at a time."""
    for ids, raw in ahead(read.batches()):
        texts = [encoder.plain(text) for text in raw]
        tokens, offsets = encoder.encode(texts)
        names = np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, ID_BYTES)
        chars = np.array([len(text) for text in texts], dtype=np.int64)
        size = sum(len(text.encode()) for text in texts)
        yield Encoded(tokens, offsets, names, chars, size, partial(_cuts, encoder, texts))


def _cuts(encoder: Encoder, texts: Sequence[str], row: int, places: Sequence[int]) -> list[tuple[int, int]]:
    return encoder.cuts(texts[row], places)
