"""Reading an untrusted tar from start to end: damage that CPython's `tarfile` silently ignores is an error here.

`tarfile` takes a damaged header after the first for the end of the archive, and a tar that is cut between two members for a
complete one. Here a tar must end with a block of zeros, followed by zeros alone.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from corpusmill.common.errors import WorkError

UNIT = tarfile.BLOCKSIZE
PIECE = 1 << 20  # bytes read at once where they are only hashed
_EXTENSION = 1 << 20  # most bytes of a long name or of a pax header
_FILE = (tarfile.REGTYPE, tarfile.AREGTYPE)
_KINDS = {
    tarfile.LNKTYPE: "a hard link", tarfile.SYMTYPE: "a symbolic link", tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a pipe", tarfile.GNUTYPE_SPARSE: "a sparse file",
}  # fmt: skip


class Member(NamedTuple):
    """A regular file of a tar, its size in bytes, and the bytes, if they were asked for."""

    name: str
    size: int
    data: bytes | None = None


class TarReader:
    """A tar of `size` bytes, read once. `where` names it in errors; `sha256` is that of what was read so far.

    Raises `WorkError` for a tar that is truncated, damaged or compressed, and for members that are no regular files or
    folders, or whose names are absolute, go up (`..`) or hold a NUL. Memory: one member whose bytes are asked for.
    """

    def __init__(self, stream: BinaryIO, size: int, where: str) -> None:
        self.position = 0
        self.sha256 = hashlib.sha256()
        self._stream, self._size, self._where = stream, size, where

    def members(self, wanted: Callable[[str, int], bool]) -> Iterator[Member]:
        """The regular files in their order, with their bytes if `wanted(name, size)`. In names, bytes that are not UTF-8 become
        surrogates."""
        long_name, pax = "", dict[str, str]()
        while (info := self._header()) is not None:
            if info.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
                extension = self._extension(info)
                if info.type == tarfile.XHDTYPE:
                    pax = self._pax(extension)
                elif info.type == tarfile.GNUTYPE_LONGNAME:
                    long_name = extension.rstrip(b"\0").decode("utf-8", "surrogateescape")
                continue
            name = pax.get("path") or long_name or info.name
            size = self._declared(info, pax)
            long_name, pax = "", {}
            self._allowed(name, info.type)
            data = self._take(size, name) if info.type in _FILE and wanted(name, size) else None
            self._skip((0 if data is not None else size) + -size % UNIT, name)
            if info.type in _FILE:
                yield Member(name, size, data)
        if long_name or pax:
            raise self._damaged("it ends behind a header that belongs to a next one")

    def _header(self) -> tarfile.TarInfo | None:
        """The next header; None at the end, after reading it to its last byte."""
        at = self.position
        block = self._read(UNIT)
        if not block:
            raise self._damaged(f"truncated: it ends at byte {at} without the zeros that end a tar")
        if len(block) < UNIT:
            raise self._damaged(f"truncated: it ends inside the header at byte {at}")
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            while rest := self._read(PIECE):
                if rest.count(0) != len(rest):
                    problem = f"zeros at byte {at} where a header should be, and data behind them"
                    raise self._damaged(problem) from None
            return None
        except tarfile.HeaderError as error:
            what = "a compressed file: unpack it first" if block[:2] == b"\x1f\x8b" else f"no tar ({error})"
            damage = f"header at byte {at} is damaged ({error})"
            raise self._damaged(damage if at else what) from None
        if not 0 <= info.size <= self._size - self.position:
            raise self._damaged(f"{info.name!r}: {info.size} bytes do not fit in a tar of {self._size}")
        return info

    def _declared(self, info: tarfile.TarInfo, pax: dict[str, str]) -> int:
        """Size of a member by its header or the extended header before it."""
        if any(key.startswith("GNU.sparse.") for key in pax):
            raise self._damaged(f"{info.name!r}: a sparse file; only regular files are read")
        size = pax.get("size", str(info.size))
        if not (size.isascii() and size.isdigit()) or int(size[:20]) > self._size - self.position:
            raise self._damaged(f"{info.name!r}: {size[:40]!r} bytes do not fit in a tar of {self._size}")
        return int(size)

    def _extension(self, info: tarfile.TarInfo) -> bytes:
        if info.size > _EXTENSION:
            raise self._damaged(f"a name or pax header of {info.size} bytes; at most {_EXTENSION}")
        data = self._take(info.size, "a pax header")
        self._skip(-info.size % UNIT, "a pax header")
        return data

    def _pax(self, data: bytes) -> dict[str, str]:
        """The records of a pax header (POSIX.1-2001): `<length> <key>=<value>\\n`, the length that of the record."""
        found: dict[str, str] = {}
        while data:
            digits, _, _ = data[:20].partition(b" ")
            length = int(digits) if digits.isdigit() else 0
            key, equals, value = data[len(digits) + 1 : length].partition(b"=")
            if not equals or value[-1:] != b"\n" or length > len(data):
                raise self._damaged("a pax header that cannot be read")
            found[key.decode("utf-8", "replace")] = value[:-1].decode("utf-8", "surrogateescape")
            data = data[length:]
        return found

    def _allowed(self, name: str, kind: bytes) -> None:
        if kind not in _FILE and kind != tarfile.DIRTYPE:
            what = _KINDS.get(kind, f"of type {kind!r}")
            raise self._damaged(f"member {name!r} is {what}; only regular files are read")
        if not name or name.startswith("/") or "\0" in name or ".." in name.split("/"):
            raise self._damaged(f"member {name!r}: absolute names, '..' and NUL are refused")

    def _take(self, size: int, name: str) -> bytes:
        data = self._read(size)
        if len(data) < size:
            raise self._damaged(f"truncated: it ends inside {name!r}")
        return data

    def _skip(self, size: int, name: str) -> None:
        while size:
            size -= len(self._take(min(size, PIECE), name))

    def _read(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except OSError as error:
            raise self._damaged(f"cannot be read from byte {self.position} on: {error.strerror}") from None
        self.position += len(data)
        self.sha256.update(data)
        return data

    def _damaged(self, what: str) -> WorkError:
        return WorkError(f"{self._where}: {what}")
