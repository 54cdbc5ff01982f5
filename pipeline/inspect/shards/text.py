"""One tar of documents as text against its entry in the index: read once, a member at a time.

The index lists no members: the walk trusts the headers, and compares what it finds with `.idx` and the checksums.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import xxhash
from pydantic import ValidationError

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.common.tar import energon_index, member_header
from corpusmill.pipeline.inspect.damage import read_regular, reported, require_file
from corpusmill.pipeline.inspect.shards.contents import IDS, DocumentHashes, below
from corpusmill.pipeline.inspect.shards.tar import PIECE, UNIT, TarReport, Walk, read_header
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.shards import TextDocument, TextShard

LARGEST = 1 << 31  # bytes of a member; a header with more is wrong


@dataclass(frozen=True)
class TextTask:
    """A tar to check, as `corpusmill.pipeline.inspect.shards.tar.TarTask`."""

    folder: Folder
    source: str
    shard: TextShard
    limit: int
    published: PublishedFile | None


def check_text(task: TextTask) -> TarReport:
    """Every byte of the tar and of its `.idx`. One damage makes one line, which begins with the file."""
    file = task.folder / task.shard.url
    walk = _Walk(task)
    problems: list[str] = []
    with reported(problems, file):
        require_file(file)
        with file.open() as stream:
            walk.run(stream)
        problems += [f"{file}: {line}" for line in walk.settled()]
    problems += _sidecar(task.folder / f"{task.shard.url}.idx", walk, bool(problems))
    ids = np.frombuffer(b"".join(walk.ids), IDS)
    hashes = np.frombuffer(b"".join(walk.hashes), IDS)
    whole = len(ids) == len(hashes)  # an id that is not one was reported
    chosen = np.flatnonzero(below(ids.tobytes(), task.limit)) if whole else np.zeros(0, np.int64)
    sample = DocumentHashes(ids[chosen], hashes[chosen])
    return TarReport(problems, walk.position, walk.sha256.hexdigest(), ids, sample)


class _Walk(Walk):
    """The pass over a tar of documents. `why`: why it ended early."""

    def __init__(self, task: TextTask) -> None:
        super().__init__()
        self.task = task
        self.text_bytes = 0
        self.why = ""
        self.ids: list[bytes] = []
        self.hashes: list[bytes] = []
        self.starts: list[int] = []  # of samples
        self.end = 0  # of the last sample

    def run(self, stream: BinaryIO) -> None:
        self.stream = stream
        for _ in range(self.task.shard.nsamples):
            begin = self.position
            text = self._member(".txt")
            described = self._member(".json", text[0]) if text is not None else None
            if text is None or described is None:
                break
            self.starts.append(begin)
            self.end = self.position
            self._judge(*text, described[1])
        self._rest()

    def _member(self, suffix: str, key: str = "") -> tuple[str, bytes] | None:
        """(key, payload) of the next member, which must be of that kind."""
        at = self.position
        header = self.take(UNIT)
        if len(header) < UNIT:
            self.why = f"ends {'inside a header' if header else 'between members'} at byte {at}"
            return None
        info = read_header(header)
        if isinstance(info, str):
            self.why = f"header at byte {at} {info}"
            return None
        stem, dot, extension = info.name.partition(".")
        right = info.size <= LARGEST and header == _header(info)
        if not right or dot + extension != suffix or (key and stem != key):
            self.why = f"reordered: {info.name} at byte {at}, where {key or 'a document'}{suffix} should be"
            return None
        there = self.payload(info.size)
        if there is None:
            self.why = f"ends inside {info.name}"
            return None
        payload, padding = there
        self.filled(info.name, padding)
        return stem, payload

    def _judge(self, key: str, text: bytes, described: bytes) -> None:
        digest = xxhash.xxh3_128_digest(text)
        self.text_bytes += len(text)
        try:
            document = TextDocument.model_validate_json(described)
            identity = bytes.fromhex(document.doc_id)
        except (ValidationError, ValueError):
            self.lines.append(f"{key}.json: not what is said of a document")
            return
        if document.doc_id != key or len(identity) != 16 or document.source != self.task.source:
            self.lines.append(f"{key}.json: of {document.source}: {document.doc_id}")
        if document.text_hash != digest.hex():
            self.lines.append(f"{key}.txt: payload differs (checksum)")
        self.ids.append(identity)
        self.hashes.append(digest)

    def _rest(self) -> None:
        zeros, tail = True, 0
        while data := self.take(PIECE):
            tail += len(data)
            zeros = zeros and not data.strip(b"\x00")
        if not self.why and self.position == self.task.shard.filesize:
            self.ended(tail, not zeros)

    def settled(self) -> list[str]:
        """The lines to show: the one that explains the others, where there is such a one."""
        shard, size = self.task.shard, self.position
        counted = f"{size} bytes, the index says {shard.filesize}"
        if size < shard.filesize:
            return [f"truncated: {counted}; it {self.why or 'ends in its zeros'}"]
        if self.why:
            return [self.why]
        if size > shard.filesize:
            return [f"{counted}: {size - shard.filesize} trail", *self.lines]
        if self.lines:
            return self.lines
        if self.sha256.hexdigest() != shard.sha256:
            return ["sha256 differs, outside of the texts"]
        if unlike := self.unlike(self.task.published):
            return unlike
        if (len(self.ids), self.text_bytes) != (shard.ndocs, shard.text_bytes):
            return [
                f"{len(self.ids)} documents and {self.text_bytes} bytes of text, the index says {shard.ndocs} and"
                f" {shard.text_bytes}"
            ]
        return []


_BARE = member_header("x", 0)


def _header(info: tarfile.TarInfo) -> bytes:
    """`member_header` of a member whose header's checksum was found right, without making the header again."""
    name, size, total = info.name.encode("ascii", "replace"), b"%011o\0" % info.size, b"%06o\0 " % info.chksum
    return name.ljust(100, b"\0") + _BARE[100:124] + size + _BARE[136:148] + total + _BARE[156:]


def _sidecar(file: Folder, walk: _Walk, broken: bool) -> list[str]:
    """Problems of `<tar>.idx`; of a broken tar it is only asked that there is one."""
    problems: list[str] = []
    with reported(problems, file):
        data = read_regular(file)
        if not broken and data != energon_index([*walk.starts, walk.end]):
            raise WorkError(f"{file}: its offsets are not those of the tar")
    return problems
