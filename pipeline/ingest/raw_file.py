"""A file as stored: what was read of it is counted and hashed."""

from __future__ import annotations

from typing import BinaryIO

import xxhash

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder

READ_BYTES = 1 << 18  # of the stored file at a time


class Damaged(Exception):
    """The file cannot be read on from here. `position` counts bytes of the file as stored; `member` is where the
    compressed member that is damaged begins."""

    def __init__(self, rule: str, detail: str, position: int, member: int = 0) -> None:
        super().__init__(detail)
        self.rule, self.detail, self.position, self.member = rule, detail, position, member


class RawFile:
    """A file as stored; counts what was read. A failing store is a `WorkError`, never bad data; a member of an archive
    may be `Damaged`. `opened` gives its bytes; without it, they are those at `url`."""

    def __init__(self, url: str, opened: BinaryIO | None = None) -> None:
        self.url = url
        self.consumed = 0
        self._file: BinaryIO = opened or Folder(url).open()
        self._at = self._hashed = 0  # where the next byte is read; bytes from the beginning that are hashed
        self._hash = xxhash.xxh3_128()

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except (Damaged, WorkError):
            raise
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else repr(error)
            raise WorkError(f"{self.url}: cannot be read: {reason}") from None
        self.consumed += len(data)
        if self._at == self._hashed:
            self._hash.update(data)
            self._hashed += len(data)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = self._file.seek(offset, whence)
        return self._at

    def go_to(self, offset: int) -> None:
        """Read on from there, and count from there."""
        self.consumed = self.seek(offset)

    @property
    def hashed(self) -> int:
        """Bytes from the beginning that were read, one after the other."""
        return self._hashed

    def hexdigest(self) -> str:
        """xxh3_128 of these bytes."""
        return self._hash.hexdigest()

    def digest(self) -> str:
        """xxh3_128 (hex) of the whole file: of what was read from its beginning on, and the rest of it as it is now."""
        if self.closed:
            self._file = Folder(self.url).open()
            self._at = 0
        if self._at != self._hashed:
            self.seek(self._hashed)
        while self.read(READ_BYTES):
            pass
        self.close()
        return self.hexdigest()

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        self._file.close()
