"""One pass over a tar, from its first byte to its last, a member at a time (`Walk`); and a tar of blocks against its entry in the
index."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.common.tar import energon_index, member_header
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.inspect.damage import read_regular, reported, require_file
from corpusmill.pipeline.inspect.shards.contents import Contents, DocumentHashes
from corpusmill.pipeline.shard.read import above, decode_block, members, read_tokenizer
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.shards import Block, Shard, ShardIndex

PIECE = 4 << 20  # bytes read at once where they are only hashed
UNIT = tarfile.BLOCKSIZE


class TarReport(NamedTuple):
    """What was found. `ids`: the documents that begin in the tar; `sample`: (id, hash of the decoded text)."""

    problems: list[str]
    bytes: int
    sha256: str
    ids: npt.NDArray[np.void]  # V16
    sample: DocumentHashes


class Walk:
    """Reads `stream`; `position` and the checksums are of what was read. `lines` are the problems that it found."""

    stream: BinaryIO

    def __init__(self) -> None:
        self.sha256, self.xxh3 = hashlib.sha256(), xxhash.xxh3_128()
        self.position = 0
        self.lines: list[str] = []

    def take(self, size: int) -> bytes:
        """The next `size` bytes, or what is left of them."""
        data = self.stream.read(size)
        self.position += len(data)
        self.sha256.update(data)
        self.xxh3.update(data)
        return data

    def payload(self, size: int) -> tuple[bytes, bytes] | None:
        """The next member's payload and what fills it up to the next header; None if the tar ends before."""
        payload, padding = self.take(size), self.take(-size % UNIT)
        return (payload, padding) if len(payload) + len(padding) == size + -size % UNIT else None

    def filled(self, name: str, padding: bytes) -> bool:
        """Whether a member is filled up with zeros; if not, there is a line."""
        if padding.strip(b"\x00"):
            self.lines.append(f"{name}: the bytes after it, up to the next member, are not zeros")
            return False
        return True

    def ended(self, zeros: int, others: bool) -> None:
        """Check the end of the archive: `zeros` bytes, with `others` not all of them zeros."""
        if others:
            self.lines.append("sha256 differs: the blocks at its end are not zeros")
        elif zeros < 2 * UNIT:
            self.lines.append(f"only {zeros} bytes of zeros at its end, {2 * UNIT} are wanted")

    def unlike(self, published: PublishedFile | None) -> list[str]:
        """The line for a tar that is not the one in the stage's manifest."""
        there = (self.position, self.xxh3.hexdigest(), self.sha256.hexdigest())
        if published is None or there == (published.bytes, published.xxh3, published.sha256 or there[2]):
            return []
        return ["as its index says, but not as the stage's manifest does"]


def read_header(header: bytes) -> tarfile.TarInfo | str:
    """A header's fields, or in words why it is not a header."""
    if not header.strip(b"\x00"):
        return "differs: zeros, which readers take for the end of the tar"
    try:
        return tarfile.TarInfo.frombuf(header, "ascii", "replace")
    except tarfile.HeaderError:
        return "differs: its own checksum is wrong, where readers stop in silence"


@dataclass(frozen=True)
class TarTask:
    """A tar to check. `index` is that of its (source, split) without the list of shards."""

    folder: Folder  # of the index
    index: ShardIndex
    shard: Shard
    limit: int  # documents whose hash lies below it are decoded; 2**64: all
    published: PublishedFile | None  # what the stage's manifest says of the tar
    decodes: bool = True  # the tokenizer beside the shards is the one that wrote them


def check_tar(task: TarTask) -> TarReport:
    """Every byte of the tar and of its `.idx`. One damage makes one line, which begins with the file."""
    file = task.folder / task.shard.url
    walk = _Walk(task, Contents(task.index, _tokenizer(task), task.limit))
    problems: list[str] = []
    with reported(problems, file):
        require_file(file)
        with file.open() as stream:
            walk.run(stream)
        problems += _settled(file, task, walk)
    problems += sidecar(task.folder / f"{task.shard.url}.idx", task.shard)
    ids, sample = walk.contents.found()
    return TarReport(problems, walk.position, walk.sha256.hexdigest(), ids, sample)


def _tokenizer(task: TarTask) -> Bpe | None:
    """The tokenizer beside the shards; None if it cannot be used, which is reported where it is checked."""
    if not task.decodes:
        return None
    try:
        return read_tokenizer(above(task.folder, task.index.tokenizer), task.index.eos_id)
    except (FileNotFoundError, UserError, WorkError):
        return None


class _Walk(Walk):
    """The pass over a tar of blocks. `moved`: members in the place of others."""

    def __init__(self, task: TarTask, contents: Contents) -> None:
        super().__init__()
        self.task, self.contents = task, contents
        self.moved: list[str] = []
        self.cut = ""  # where the tar ended too early
        self.names = {
            f"{b.key}{suffix}": xxh3 for b in task.shard.blocks for suffix, _, _, xxh3 in members(b)
        }

    def run(self, stream: BinaryIO) -> None:
        self.stream = stream
        for block in self.task.shard.blocks:
            payloads = self._block(block)
            if self.cut:
                break
            self._judge(block, payloads)
        if not self.cut:
            self._end()
        while self.take(PIECE):
            pass

    def _block(self, block: Block) -> list[bytes]:
        """Payloads of the members that are as the index says."""
        payloads = []
        for suffix, offset, size, xxh3 in members(block):
            name = f"{block.key}{suffix}"
            if offset - UNIT != self.position:
                where = f"{self.task.folder / 'index.json'}: {self.task.shard.url}: {name}"
                self.lines.append(f"{where}: at byte {offset}, but the member before ends at {self.position}")
                self.cut = "-"
                return []
            header = self.take(UNIT)
            if len(header) < UNIT:
                self.cut = f"inside the header of {name}" if header else f"before {name}"
                return []
            there = self.payload(size)
            if there is None:
                self.cut = f"inside {name}"
                return []
            payload, padding = there
            if header != member_header(name, size):
                self._header(name, header)
            elif (digest := checksum(payload)) != xxh3:
                self._payload(name, digest)
            elif self.filled(name, padding):
                payloads.append(payload)
        return payloads

    def _header(self, name: str, header: bytes) -> None:
        there = read_header(header)
        if isinstance(there, str):
            self.lines.append(f"{name}: header {there}")
        elif there.name != name and there.name in self.names:
            self.moved.append(f"{there.name} is in the place of {name}")
        else:
            self.lines.append(f"{name}: header differs")

    def _payload(self, name: str, digest: str) -> None:
        owner = next((other for other, xxh3 in self.names.items() if xxh3 == digest and other != name), None)
        how = " (checksum)" if owner is None else f": swapped, it is that of {owner}"
        self.lines.append(f"{name}: payload differs{how}")

    def _judge(self, block: Block, payloads: list[bytes]) -> None:
        if len(payloads) < len(members(block)):
            self.contents.lost()
            return
        try:
            data = decode_block(*payloads)
        except Exception as error:  # NumPy parses a header as Python: whatever that raises
            self.lines.append(f"{block.key}: {(str(error) or type(error).__name__).splitlines()[0]}")
            self.contents.lost()
            return
        self.lines += [f"{block.key}: {what}" for what in self.contents.judge(data, block)]

    def _end(self) -> None:
        """The end of the archive: two blocks of zeros or more, up to the size that the index says."""
        size = self.task.shard.filesize
        end = self.take(max(0, size - self.position))
        if self.position < size:
            self.cut = "inside the zeros at its end"
        else:
            self.ended(len(end), bool(end.strip(b"\x00")))


def _settled(file: Folder, task: TarTask, walk: _Walk) -> list[str]:
    """The lines to show: the one that explains the others, where there is one."""
    shard, size, digest = task.shard, walk.position, walk.sha256.hexdigest()
    if walk.cut not in ("", "-") and size < shard.filesize:
        return [
            f"{file}: truncated: {size} bytes, the index says {shard.filesize}; it ends {walk.cut}",
            *_lines(file, walk),
        ]
    if walk.moved or any("header differs" in line for line in walk.lines):
        actual, expected = _names(file, size), list(walk.names)
        if sorted(actual) == sorted(expected) and actual != expected:
            first = next(i for i, (a, b) in enumerate(zip(actual, expected, strict=True)) if a != b)
            return [f"{file}: reordered: member {first} is {actual[first]}, the index says {expected[first]}"]
    found = _lines(file, walk)
    found += [f"{file}: reordered: {there}" for there in walk.moved[:1]]
    if size > shard.filesize:
        found.append(f"{file}: {size} bytes, the index says {shard.filesize}: {size - shard.filesize} trail")
    if found:
        return found
    if digest != shard.sha256:
        return [f"{file}: sha256 differs, outside of the blocks"]
    return [f"{file}: {what}" for what in walk.unlike(task.published) or walk.contents.totals(shard)]


def _lines(file: Folder, walk: _Walk) -> list[str]:
    return [line if line.startswith(str(file.parent)) else f"{file}: {line}" for line in walk.lines]


def _names(file: Folder, size: int) -> list[str]:
    """The members that a reader finds who believes the headers: only asked for when something is wrong."""
    names, position = [], 0
    while position + UNIT <= size:
        info = read_header(file.read_range(position, UNIT))
        if isinstance(info, str):
            break
        names.append(info.name)
        position += UNIT + max(0, info.size) + -info.size % UNIT
    return names


def sidecar(file: Folder, shard: Shard) -> list[str]:
    """Problems of `<tar>.idx`."""
    last = shard.blocks[-1] if shard.blocks else None
    end = last.json_offset + last.json_size + -last.json_size % UNIT if last else 0
    problems: list[str] = []
    with reported(problems, file):
        if read_regular(file) != energon_index([*(b.offset - UNIT for b in shard.blocks), end]):
            raise WorkError(f"{file}: its offsets are not those of the index")
    return problems
