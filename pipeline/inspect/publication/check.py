"""`corpusmill verify` of a publication: every checksum again, and what it says of itself against what is there."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pyarrow.parquet as pq
import zstandard

from corpusmill.common.errors import WorkError
from corpusmill.common.format import quantity
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.owner import OWNER
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.damage import is_there, read_regular
from corpusmill.pipeline.inspect.publication.destination import BEGUN, UNFINISHED, pieces, read_publication
from corpusmill.pipeline.shard.read import read_set
from corpusmill.schemas.publication import PUBLICATION, Publication, PublishedShards

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass
class Checked:
    """What was read, and what is wrong: `problems` is empty if all is well."""

    files: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)


class _Found(NamedTuple):
    """A file as it is; `rows` of documents or of a ledger."""

    bytes: int
    sha256: str
    rows: int | None


def check(folder: Folder, scheduler: Scheduler | None = None) -> Checked | None:
    """Check a publication; None if the folder holds none.

    Each file against `SHA256SUMS`, that against `publication.json`; files that no list names; rows of documents and ledger, and the
    index of the shards, against what `publication.json` counts.
    """
    result = Checked()
    try:
        publication = read_publication(folder)
    except WorkError as error:
        result.problems.append(str(error))
        return result
    if publication is None and is_there(folder / BEGUN):
        result.problems.append(
            f"{folder}: a publication that is not finished: {PUBLICATION} is written last; give its command again"
        )
        return result
    if publication is None:
        return None
    sums = _sums(folder, publication, result)
    present = {entry.path for entry in folder.list()} - {PUBLICATION, publication.checksums.path, OWNER}
    left = {path for path in present if path.startswith(f"{UNFINISHED}/")}
    if left:
        result.problems.append(
            f"{folder / UNFINISHED}: left behind by a publication that was killed; give its command again"
        )
    if sums is None:
        return result
    result.problems += [f"{folder / path}: in no list" for path in sorted(present - left - sums.keys())]
    result.problems += [f"{folder / path}: missing" for path in sorted(sums.keys() - present)]
    paths = sorted(sums.keys() & present)
    look = partial(_look, folder)
    found = scheduler.map(look, paths, "verify: publication") if scheduler else list(map(look, paths))
    rows: dict[str, int | None] = {}
    for path, one in zip(paths, found, strict=True):
        result.files += 1
        result.bytes += one.bytes
        rows[path] = one.rows
        if one.sha256 != sums[path]:
            result.problems.append(
                f"{folder / path}: checksum differs from the one in {publication.checksums.path}"
            )
    if not result.problems:
        _counts(folder, publication, rows, result)
    return result


def _sums(folder: Folder, publication: Publication, result: Checked) -> dict[str, str] | None:
    """Path -> SHA-256, of the file of checksums; None if it is not the one that was published."""
    file = folder / publication.checksums.path
    try:
        data = read_regular(file)
    except WorkError as error:
        result.problems.append(str(error))
        return None
    if hashlib.sha256(data).hexdigest() != publication.checksums.sha256:
        result.problems.append(
            f"{file}: checksum differs from the one in {PUBLICATION}; its files were not checked"
        )
        return None
    return parse_sums(data)


def parse_sums(data: bytes) -> dict[str, str]:
    """Path -> SHA-256, of the lines of `SHA256SUMS`."""
    return {found[2]: found[1] for line in data.decode().splitlines() if (found := _LINE.fullmatch(line))}


def _look(folder: Folder, path: str) -> _Found:
    size, digest = 0, hashlib.sha256()
    for piece in pieces(folder / path):
        size += len(piece)
        digest.update(piece)
    return _Found(size, digest.hexdigest(), _rows(folder / path))


def _rows(file: Folder) -> int | None:
    """Rows of a table, as far as they can be read; None for any other file."""
    try:
        if file.name.endswith(".parquet"):
            with file.open() as stream:
                return int(pq.ParquetFile(stream, pre_buffer=False).metadata.num_rows)
        if file.name.endswith(".jsonl.zst"):
            with file.open() as stream, zstandard.ZstdDecompressor().stream_reader(stream) as lines:
                return sum(piece.count(b"\n") for piece in iter(lambda: lines.read(1 << 20), b""))
    except (OSError, ValueError, zstandard.ZstdError):
        return None  # its checksum tells what is wrong
    return None


def _counts(folder: Folder, publication: Publication, rows: dict[str, int | None], result: Checked) -> None:
    file = folder / PUBLICATION
    sets = publication.documents.sets if publication.documents else []
    tables = [(f"documents of {one.source}, {one.split}", one.documents, one.files) for one in sets]
    if publication.ledger:
        tables.append(("rows of the ledger", publication.ledger.rows, publication.ledger.files))
    for what, counted, files in tables:
        there = sum(rows.get(path) or 0 for path in files)
        if there != counted:
            result.problems.append(f"{file}: says {counted} {what}, the files have {there}")
    if publication.shards:
        _shards(folder, publication.shards, result)
    if (result.files, result.bytes) != (publication.files, publication.bytes):
        result.problems.append(
            f"{file}: says {quantity(publication.files, 'file')} of {publication.bytes:,} bytes, there are {result.files:,} of {result.bytes:,}"
        )


def _shards(folder: Folder, shards: PublishedShards, result: Checked) -> None:
    """The counts of the shards' index against those of the publication; that its bytes are right is known."""
    try:
        top = read_set(folder / "shards")
    except (FileNotFoundError, WorkError) as error:
        result.problems.append(str(error))
        return
    stated = [(one.source, one.split, one.documents, one.tokens) for one in shards.sets]
    if stated != [(one.source, one.split, one.ndocs, one.ntokens) for one in top.sets]:
        result.problems.append(
            f"{folder / PUBLICATION}: its counts of shards are not those of {shards.index}"
        )
