"""A tar whose bytes depend on its members alone: USTAR, regular files, no time, no owner."""

from __future__ import annotations

import io
import tarfile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Member(NamedTuple):
    """A member's name, and where its payload lies in the tar."""

    name: str
    offset: int
    size: int


class TarWriter:
    """Collects members in memory; `finish` gives the bytes and the sample offsets for the index."""

    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._samples: list[int] = []

    def begin_sample(self) -> None:
        """The next member begins a sample: members of one key lie together."""
        self._samples.append(self._out.tell())

    def add(self, name: str, payload: bytes) -> Member:
        """Append a regular file; `name` is ASCII of at most 100 characters."""
        self._out.write(member_header(name, len(payload)))
        member = Member(name, self._out.tell(), len(payload))
        self._out.write(payload)
        self._out.write(bytes(-len(payload) % tarfile.BLOCKSIZE))
        return member

    def finish(self) -> tuple[bytes, bytes]:
        """(the tar, its `.idx`)."""
        end = self._out.tell()
        self._out.write(bytes(2 * tarfile.BLOCKSIZE))
        self._out.write(bytes(-self._out.tell() % tarfile.RECORDSIZE))
        return self._out.getvalue(), energon_index([*self._samples, end])


def member_header(name: str, size: int) -> bytes:
    """The 512 bytes of USTAR header that a member of that name and size has."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.uid, info.gid, info.uname, info.gname = (
        size,
        0o644,
        0,
        0,
        0,
        "",
        "",
    )
    return info.tobuf(format=tarfile.USTAR_FORMAT, encoding="ascii", errors="strict")


def energon_index(offsets: list[int]) -> bytes:
    """`<tar>.idx` as Megatron-Energon reads it: the byte offset of every sample's first header, then the end
    of the last sample, as little-endian unsigned 64-bit numbers."""
    return np.array(offsets, dtype="<u8").tobytes()


def npy(array: npt.NDArray[np.generic]) -> tuple[bytes, int]:
    """(a `.npy` file of version 1.0, little-endian, and the length of its header)."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(array))
    header = out.tell()
    out.write(array.data)
    return out.getvalue(), header
