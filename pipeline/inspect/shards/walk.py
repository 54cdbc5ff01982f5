"""One pass over a tar, from its first byte to its last: what the walks over tokens and over texts have in common."""

from __future__ import annotations

import hashlib
import tarfile
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from corpusmill.pipeline.inspect.shards.contents import DocumentHashes
from corpusmill.schemas.manifest import PublishedFile

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
    """Reads `stream`; `position` and the sums are of what was read. `lines` are problems of its own."""

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
        """Judge the end of the archive: so many bytes, others than zeros among them."""
        if others:
            self.lines.append("sha256 differs: the blocks at its end are not zeros")
        elif zeros < 2 * UNIT:
            self.lines.append(f"only {zeros} bytes of zeros at its end, {2 * UNIT} are wanted")

    def unlike(self, published: PublishedFile | None) -> list[str]:
        """The line for a tar that is another than the one that the stage's manifest names."""
        if published is None or (published.bytes, published.xxh3) == (self.position, self.xxh3.hexdigest()):
            return []
        return ["as its index says, but not as the stage's manifest does"]


def read_header(header: bytes) -> tarfile.TarInfo | str:
    """What a header says, or how it differs from any header."""
    if not header.strip(b"\x00"):
        return "differs: zeros, which readers take for the end of the tar"
    try:
        return tarfile.TarInfo.frombuf(header, "ascii", "replace")
    except tarfile.HeaderError:
        return "differs: its own checksum is wrong, where readers stop in silence"
