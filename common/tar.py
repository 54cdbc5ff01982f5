"""A tar whose bytes depend on its members alone: USTAR, regular files, no time, no owner. Written as it is made."""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from corpusmill.common.ids import checksum

Piece = bytes | memoryview


class Sink(Protocol):
    """What a tar is written to."""

    def write(self, data: Piece, /) -> object: ...


class Member:
    """A member's name, where its payload lies in the tar, and the payload's xxh3_128."""

    __slots__ = ("name", "offset", "size", "xxh3")

    def __init__(self, name: str, offset: int, size: int, xxh3: str) -> None:
        self.name, self.offset, self.size, self.xxh3 = name, offset, size, xxh3


class TarWriter:
    """Writes members to `sink`, keeps none of them, and takes the checksums of the whole on the way."""

    def __init__(self, sink: Sink) -> None:
        self.size = 0
        self._sink = sink
        self._sha256, self._xxh3 = hashlib.sha256(), xxhash.xxh3_128()
        self._samples: list[npt.NDArray[np.int64]] = []

    def begin_sample(self) -> None:
        """The next member begins a sample: members of one key lie together."""
        self._samples.append(np.array([self.size], dtype=np.int64))

    def add(self, name: str, *pieces: Piece) -> Member:
        """Append a regular file whose payload is `pieces`; `name` is ASCII of at most 100 characters."""
        size = sum(len(piece) for piece in pieces)
        self._write(member_header(name, size))
        offset = self.size
        for piece in pieces:
            self._write(piece)
        self._write(bytes(-size % tarfile.BLOCKSIZE))
        return Member(name, offset, size, _checksum(pieces))

    def add_samples(self, data: memoryview, starts: npt.NDArray[np.int64]) -> None:
        """Append whole samples, rendered already: `starts` are the places of their first headers in `data`."""
        self._samples.append(starts + self.size)
        self._write(data)

    def _write(self, data: Piece) -> None:
        if len(data):
            self._sha256.update(data)
            self._xxh3.update(data)
            self._sink.write(data)
            self.size += len(data)

    def finish(self) -> bytes:
        """Write the end of the archive; its `.idx`. The sink stays open."""
        samples = np.concatenate([*self._samples, np.array([self.size], dtype=np.int64)])
        self._write(bytes(2 * tarfile.BLOCKSIZE))
        self._write(bytes(-self.size % tarfile.RECORDSIZE))
        return energon_index(samples)

    @property
    def sha256(self) -> str:
        """Of all that was written."""
        return self._sha256.hexdigest()

    @property
    def xxh3(self) -> str:
        """xxh3_128 of all that was written."""
        return self._xxh3.hexdigest()


def _checksum(pieces: tuple[Piece, ...]) -> str:
    if len(pieces) == 1:
        return checksum(pieces[0])
    whole = xxhash.xxh3_128()
    for piece in pieces:
        whole.update(piece)
    return whole.hexdigest()


def member_header(name: str, size: int) -> bytes:
    """The 512 bytes of USTAR header that a member of that name and size has."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.uid, info.gid = size, 0o644, 0, 0, 0
    info.uname = info.gname = ""
    return info.tobuf(format=tarfile.USTAR_FORMAT, encoding="ascii", errors="strict")


def energon_index(offsets: list[int] | npt.NDArray[np.int64]) -> bytes:
    """`<tar>.idx` as Megatron-Energon reads it: the byte offset of every sample's first header, then the end
    of the last sample, as little-endian unsigned 64-bit numbers."""
    return np.asarray(offsets).astype("<u8").tobytes()


def npy(array: npt.NDArray[np.generic]) -> tuple[bytes, memoryview]:
    """The header and the data of a `.npy` file of version 1.0, little-endian."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(array))
    return out.getvalue(), array.reshape(-1).view(np.uint8).data
