"""A file as stored: what was read of it is counted and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, BinaryIO

import xxhash

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import without_query
from corpusmill.common.http_files import Unseekable
from corpusmill.common.hub import GIT, LFS
from corpusmill.common.storage import Folder
from corpusmill.common.stores import WEB
from corpusmill.common.task_progress import advance

READ_BYTES = 1 << 18  # of the stored file at a time


class Damaged(Exception):
    """The file cannot be read on from here. `position` counts bytes of the file as stored; `member` is where the
    compressed member that is damaged begins."""

    def __init__(self, rule: str, detail: str, position: int, member: int = 0) -> None:
        super().__init__(detail)
        self.rule, self.detail, self.position, self.member = rule, detail, position, member


def named_by_content(tag: str) -> bool:
    """Whether a change tag is a hash of the file's content, as those of the Hub are."""
    return tag.startswith((LFS, GIT))


def _hash(size: int | None, tag: str) -> tuple[str, Any]:
    """(what its value begins with, the hash) of a file's content: of the kind that the tag names, else xxh3_128."""
    if tag.startswith(LFS):
        return LFS, hashlib.sha256()
    if tag.startswith(GIT):
        return GIT, hashlib.sha1(b"blob %d\0" % (size or 0), usedforsecurity=False)
    return "", xxhash.xxh3_128()


class RawFile:
    """A file as stored; counts what was read. A failing store is a `WorkError`, never bad data.

    `size` and `tag` are those of its listing: with a size, web servers need not be asked; a tag that is a hash of the content
    names the kind of hash to compare it with. Of a part of the file, `begin` to `end`, these bytes are hashed and nothing else.
    `content` opens the bytes of a member of the archive `file`, which may be `Damaged`.
    """

    def __init__(
        self,
        file: Folder,
        size: int | None = None,
        tag: str = "",
        begin: int = 0,
        end: int | None = None,
        content: Callable[[], BinaryIO] | None = None,
    ) -> None:
        self.url = without_query(file.url)
        self.consumed = 0
        self._place, self._size = file, size
        self._content = content
        self._file = self._opened()
        self._at = begin  # where the next byte is read
        self._hashed = 0  # bytes from `begin` on that are hashed
        self.begin, self.end = begin, end
        self.damaged = False  # the archive that it is a member of ends the bytes here
        if begin:
            self._file.seek(begin)
        self._kind, self._hash = _hash(size, tag)

    def _opened(self) -> BinaryIO:
        return self._content() if self._content else self._place.open(size=self._size)

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except Damaged:
            self.damaged = True
            raise
        except Unseekable:
            raise
        except Exception as error:
            if self._content is not None:
                raise  # the archive's own file names what is wrong with the store
            if isinstance(error, UserError | WorkError) and self._place.root.partition("://")[0] in WEB:
                raise  # it names the file
            reason = str(error).splitlines()[0] if str(error) else repr(error)
            raise WorkError(f"{self.url}: cannot be read: {reason}") from None
        self.consumed += len(data)
        if self._content is None:  # a member's bytes are those of its archive
            advance(len(data))
        if self._at == self.begin + self._hashed:
            ours = data if self.end is None else data[: self.end - self._at]
            self._hash.update(ours)
            self._hashed += len(ours)
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
        """Bytes from the beginning, of the file or the part, that were read one after the other."""
        return self._hashed

    def hexdigest(self) -> str:
        """xxh3_128 of these bytes; of a file of the Hub, its change tag if they are its content."""
        return f"{self._kind}{self._hash.hexdigest()}"

    def digest(self, take: Callable[[bytes], None] | None = None) -> str:
        """The same of the whole file or part: of what was read from its beginning on, and the rest of it as it is now.

        `take` is given each block that is read for it.
        """
        if self.closed:
            self._file = self._opened()
            self._at = 0
        if self._at != self.begin + self._hashed:
            self.seek(self.begin + self._hashed)
        while (self.end is None or self._at < self.end) and (block := self.read(READ_BYTES)):
            if take:
                take(block)
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
