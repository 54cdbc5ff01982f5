"""One tar of texts becomes one tar of token blocks, whose bytes depend on its documents, their order and the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, TypeVar

import numpy as np
from pydantic import ValidationError

from schemas.blocks import add_block
from schemas.errors import WorkError
from schemas.ids import ID_BYTES, checksum, doc_id, named_id
from schemas.manifest import PublishedFile, Strict, hash_json
from schemas.shards import Block, Shard
from schemas.storage import Folder
from schemas.tar import TarWriter
from train.data.texts.blocks import Blocks
from train.data.texts.encoder import Encoder
from train.data.texts.inputs import Tar
from train.data.texts.samples import Sample, foreign, ours, samples
from train.data.texts.tar import TarReader

BATCH = 1 << 20  # characters of text that are encoded at once

Item = TypeVar("Item")


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


@dataclass
class _Read:
    """The documents of a tar, in batches; what was found on the way."""

    task: Task
    samples: int = 0
    text_bytes: int = 0
    sha256: str = ""
    bad: list[dict[str, str]] = field(default_factory=list)  # lines of the quarantine
    seen: set[int] = field(default_factory=set)  # 8 bytes of the ids of its documents

    def batches(self) -> Iterator[tuple[list[bytes], list[str]]]:
        """(ids, texts) of documents, about `BATCH` characters at a time. At the end the tar is known to be whole."""
        tar = self.task.tar
        ids: list[bytes] = []
        texts: list[str] = []
        length = 0
        with tar.file.open() as stream:
            reader = TarReader(stream, tar.size, str(tar.file))
            for sample in samples(reader.members(foreign if tar.listed is None else ours)):
                self.samples += 1
                identity = self._identity(sample)
                if identity is None:
                    continue
                ids.append(identity)
                texts.append(sample.text)
                length += len(sample.text)
                if length >= BATCH:
                    yield ids, texts
                    ids, texts, length = [], [], 0
        self.sha256 = reader.sha256.hexdigest()
        self._whole(reader.position)
        if ids:
            yield ids, texts

    def _identity(self, sample: Sample) -> bytes | None:
        """The document's id; None for a sample that is put into the quarantine."""
        path, wrong = self.task.tar.path, sample.wrong
        identity = named_id(sample.key)
        if self.task.tar.listed is None:
            identity = doc_id(self.task.source, f"{path}#{sample.key}")
        elif identity is None:
            raise WorkError(f"{self.task.tar.file}: '{sample.key}' is no doc_id, as keys of text shards are")
        short = int.from_bytes(identity[:8], "little")
        if not wrong and short in self.seen:
            wrong = "its key was there before"
        if wrong:
            place = {"source": self.task.source, "tar": path, "key": sample.key}
            self.bad.append({**place, "doc_id": identity.hex(), "reason": wrong})
            return None
        self.seen.add(short)
        return identity

    def _whole(self, read: int) -> None:
        """Raises `WorkError` if the tar is not the one that was to be read."""
        tar, said = self.task.tar, self.task.tar.listed
        problem = ""
        if read != tar.size:
            problem = f"{read} bytes, {tar.size} were expected"
        elif said is None:
            now = tar.file.entry()
            problem = "" if (now.size, now.tag) == (tar.size, tar.tag) else "changed while it was read"
        elif self.sha256 != said.sha256:
            problem = "changed since its index was written (sha256 differs); `corpusmill verify` tells where"
        elif self.samples != said.nsamples:
            problem = f"{self.samples} documents, its index says {said.nsamples}"
        if problem:
            raise WorkError(f"{tar.file}: {problem}")


def write(task: Task, encoder: Encoder, folder: Folder) -> tuple[Done, bool]:
    """Write the tar, its `.idx` and its part of the quarantine below `folder`, then its marker; (the marker, False) if a
    valid one was there. Raises `WorkError` naming the tar of texts if it is damaged.

    Memory: what the library needs for a batch of `BATCH` characters or the longest document, twice the texts of a
    batch, a block, 60 bytes a document of the tar, and its quarantine.
    """
    marker = folder / f"scratch/{task.stem}.json"
    found = _known(marker, task.key, folder)
    if found is not None:
        return found, False
    path, read = f"{task.place}/{task.stem}.tar", _Read(task)
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


def _convert(task: Task, encoder: Encoder, read: _Read, sink: IO[bytes]) -> tuple[Shard, str, bytes]:
    """(its entry in the index, its xxh3, its `.idx`)."""
    tar, blocks = TarWriter(sink), Blocks(task.block_tokens, encoder.dtype)
    table: list[Block] = []
    ntokens = ndocs = text_bytes = 0
    for ids, raw in _ahead(read.batches()):
        texts = [encoder.plain(text) for text in raw]
        tokens, offsets = encoder.encode(texts)
        names = np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, ID_BYTES)
        chars = np.array([len(text) for text in texts], dtype=np.int64)
        cuts_of = lambda row, places, texts=texts: encoder.cuts(texts[row], places)  # noqa: E731
        for cut in blocks.feed(tokens, offsets, names, chars, cuts_of):
            table.append(add_block(tar, cut, f"{task.stem}-{len(table):06d}"))
        ntokens += len(tokens)
        ndocs += len(ids)
        text_bytes += sum(len(text.encode()) for text in texts)
    for cut in blocks.rest():
        table.append(add_block(tar, cut, f"{task.stem}-{len(table):06d}"))
    sidecar = tar.finish()
    shard = Shard(
        url=f"{task.stem}.tar", nsamples=len(table), filesize=tar.size, sha256=tar.sha256, ntokens=ntokens, ndocs=ndocs,
        text_bytes=text_bytes, blocks=table,
    )  # fmt: skip
    return shard, tar.xxh3, sidecar


def _ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, the next one made by a thread while the last is worked on."""
    with ThreadPoolExecutor(1, thread_name_prefix="texts") as thread:
        under_way = thread.submit(next, items, None)
        while (item := under_way.result()) is not None:
            under_way = thread.submit(next, items, None)
            yield item
