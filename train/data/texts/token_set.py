"""Text shards as a token shard set, made once and kept: `token_set`.

A cache folder has a folder for each input and tokenizer, named by the hash of what identifies them. It contains what
`corpusmill shard` writes (`docs/shards.md`), `quarantine.jsonl` with the samples that are no documents, `manifest.json`
for `corpusmill verify`, and `scratch/` with a marker for each finished tar. `index.json` is written last: a folder that has
it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from corpusmill.common.blocks import Encoded, write_blocks
from corpusmill.common.checkpoints import known
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import ID_BYTES, checksum, write_pieces
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import MANIFEST, Counts, Marker, PublishedFile, StageManifest, hash_json
from corpusmill.schemas.shards import INDEX, Shard, ShardIndex, ShardSet, set_entry
from corpusmill.train.data.texts.documents import Documents, ahead
from corpusmill.train.data.texts.encoder import Encoder
from corpusmill.train.data.texts.inputs import Inputs, Tar, TextSet, survey


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
    """Write the tar, its `.idx` and its part of the quarantine below `folder`, then its marker. Returns the marker, and
    whether it is new (False: a valid one was there). Raises `WorkError` naming the tar of texts if it is damaged.

    Memory: of the library for a batch of `documents.BATCH` characters or the longest document, twice the texts of a batch, a
    block, 60 bytes a document of the tar, and its quarantine.
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

        def cuts(row: int, places: Sequence[int], texts: list[str] = texts) -> list[tuple[int, int]]:
            return encoder.cuts(texts[row], places)

        yield Encoded(tokens, offsets, names, chars, size, cuts)


VERSION = "1"  # raised with every change that may change a byte of the output
BLOCK_TOKENS = 2**19  # as `shard` has it: 1 MiB as uint16
TOKENIZER, QUARANTINE = "tokenizer.json", "quarantine.jsonl"

Log = Callable[[str], None]


def token_set(url: str, cache: str, *, tokenizer: str | None = None, log: Log | None = None) -> Folder:
    """The token shard set of the texts at `url`, in a folder below `cache`; tokenised unless it is there already.

    `url`: a shard set with text shards, or a folder of WebDataset tars (`*.tar`, `<source>/*.tar`, `<source>/train/*.tar`,
    `<source>/validation/*.tar`) whose samples have a `.txt`, or a `.json` with the key `text`. `cache`: a folder. Both as
    `corpusmill.common.storage.Folder` takes them. `tokenizer`: a tokenizer.json; default: that of the shard set. `log` gets a
    line if the set is there, otherwise one for each tar.

    The folder's bytes depend on the texts, their order and the tokenizer alone. A killed call continues at the tar. On one
    machine, processes wait for the first that calls it (a lock that ends with its process); several machines do the same
    work and write the same bytes.

    Raises `UserError` if there is nothing to tokenise, or no suitable tokenizer; `WorkError` naming the tar for one that is
    truncated, damaged, or different from its index. Samples without a text are counted and listed in `quarantine.jsonl`,
    with key and reason.
    """
    log = log or (lambda line: None)
    inputs = survey(url, tokenizer)
    key = inputs.key(VERSION, BLOCK_TOKENS)
    folder = Folder(cache) / key
    if is_complete(folder):
        log(f"texts: {url}: tokens reused from {folder}")
        return folder
    with alone(folder, log):
        if is_complete(folder):
            log(f"texts: {url}: tokens reused from {folder}, made by another process")
        else:
            _make(inputs, key, folder, url, log)
    return folder


def is_complete(folder: Folder) -> bool:
    """Whether every file is there, with the right size."""
    try:
        ShardSet.model_validate_json((folder / INDEX).read())
        files = StageManifest.model_validate_json((folder / MANIFEST).read()).files
    except (FileNotFoundError, ValidationError):
        return False
    sizes = {entry.path: entry.size for entry in folder.list()}
    return all(sizes.get(file.path) == file.bytes for file in files)


@contextlib.contextmanager
def alone(folder: Folder, log: Log) -> Iterator[None]:
    """One process of this machine at a time; the lock ends with its holder, however that ends."""
    import fcntl

    name = f"{folder.name}.lock"
    if folder.local:
        place = Path(folder.parent.url) / name
    else:
        place = Path(tempfile.gettempdir()) / f"corpusmill-{os.getuid()}-{checksum(folder.url.encode())}.lock"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UserError(f"data.token_cache: {place}: cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"texts: another process makes {folder}; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:  # a network disk without locks: doing the same work twice is harmless
            log(f"texts: {place}: cannot be locked ({error.strerror}); continuing without")
        yield
    finally:
        os.close(descriptor)


def _make(inputs: Inputs, key: str, folder: Folder, url: str, log: Log) -> None:
    folder.sweep()
    encoder = inputs.encoder
    count, number = sum(len(one.tars) for one in inputs.sets), 0
    log(f"texts: {url}: {count} tars to tokenise into {folder}")
    files = [publish(folder, TOKENIZER, inputs.data)]
    done: dict[TextSet, list[Done]] = {}
    for one in inputs.sets:
        mine = done[one] = []
        for place, tar in enumerate(one.tars):
            stem = f"{one.name}-{place:06d}"
            task = Task(tar, one.source, stem, _place(one), BLOCK_TOKENS, inputs.tokenizer_xxh3)
            marker, new = write(task, encoder, folder)
            mine.append(marker)
            number += 1
            shard, lost = marker.shard, marker.quarantined
            log(
                f"texts: {number} of {count}: {stem}: {shard.ndocs:,} documents, {shard.ntokens:,} tokens"
                + (f", {lost:,} samples quarantined" if lost else "")
                + ("" if new else ", done before")
            )
    _publish(inputs, key, folder, files, done)
    lost = sum(marker.quarantined for mine in done.values() for marker in mine)
    if lost:
        log(f"texts: {lost:,} samples are not documents: {folder / QUARANTINE} lists them")


def _publish(
    inputs: Inputs, key: str, folder: Folder, files: list[PublishedFile], done: dict[TextSet, list[Done]]
) -> None:
    """The indexes, the quarantine and the manifest; the set's own index last."""
    markers = [marker for mine in done.values() for marker in mine]
    files.append(_quarantine(folder, markers))
    if not any(marker.shard.ndocs for marker in markers):
        raise WorkError(f"{folder / QUARANTINE}: none of {len(markers)} tars has a text; it says why")
    entries = []
    for one, mine in done.items():
        index = _index(one, mine, inputs)
        path = f"{_place(one)}/{INDEX}"
        file = publish(folder, path, index.to_json(), rows=index.ndocs)
        files += [*(file for marker in mine for file in marker.files[:2]), file]
        entries.append(set_entry(index, path, file.xxh3))
    about = {"tokenizer": TOKENIZER, "tokenizer_xxh3": inputs.tokenizer_xxh3, **inputs.vocabulary}
    top = ShardSet.model_validate(about | {"sets": entries}).to_json()
    files.append(PublishedFile(path=INDEX, bytes=len(top), xxh3=checksum(top)))
    manifest = StageManifest(
        stage="shard", version=f"texts-{VERSION}", key=key, params={"block_tokens": BLOCK_TOKENS},
        inputs={
            f"{one.name}/{tar.path}": marker.sha256
            for one, mine in done.items()
            for tar, marker in zip(one.tars, mine, strict=True)
        },
        partitions=[], counts=Counts(), files=files,
        counters={
            "samples": sum(marker.samples for marker in markers),
            "documents": sum(marker.shard.ndocs for marker in markers),
            "quarantined": sum(marker.quarantined for marker in markers),
            "tokens": sum(marker.shard.ntokens for marker in markers),
        },
    )  # fmt: skip
    publish(folder, MANIFEST, manifest.to_json())
    publish(folder, INDEX, top)


def _quarantine(folder: Folder, markers: list[Done]) -> PublishedFile:
    """The quarantines of the tars, in one file."""
    parts = ((folder / marker.quarantine.path).read() for marker in markers)
    size, xxh3 = write_pieces(folder / QUARANTINE, parts)
    rows = sum(marker.quarantined for marker in markers)
    return PublishedFile(path=QUARANTINE, rows=rows, bytes=size, xxh3=xxh3)


def _place(one: TextSet) -> str:
    return f"{one.source}/{one.split}"


def _index(one: TextSet, mine: list[Done], inputs: Inputs) -> ShardIndex:
    shards = [marker.shard for marker in mine]
    fields = {
        "name": one.name, "source": one.source, "split": one.split, "tokenizer": f"../../{TOKENIZER}",
        "tokenizer_xxh3": inputs.tokenizer_xxh3, "block_tokens": BLOCK_TOKENS, "shardlist": shards,
    }  # fmt: skip
    return ShardIndex.model_validate(fields | inputs.vocabulary | ShardIndex.totals(shards))
