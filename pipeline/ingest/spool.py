"""Bytes that come once, kept so that they can be read from any place: in memory while they are few, then in a file."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, BinaryIO, cast

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.ingest.raw_file import READ_BYTES, Damaged

MEMORY_BYTES = 8 << 20  # kept in memory
SPOOL_BYTES = 4 << 30  # kept at all; behind them the bytes can be read once, from front to back


@contextmanager
def written(what: str = "a member of an archive") -> Iterator[None]:
    """A temporary file that cannot be written, as one line."""
    try:
        yield
    except OSError as error:
        place = f"{tempfile.gettempdir()} (TMPDIR)"
        raise WorkError(f"{what} cannot be kept in {place}: {error.strerror}") from None


class Spool:
    """What `blocks` give, read as far as it is asked for. Up to `SPOOL_BYTES` of it are kept, in an unnamed temporary file
    once they are more than `MEMORY_BYTES`. Where `blocks` raise `Damaged`, so does every read that comes that far; a temporary file
    that cannot be written is a `WorkError`."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._kept: IO[bytes] = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 (closed by `close`)
        self._size = 0  # bytes kept
        self._beyond = 0  # bytes behind them that were delivered, and are not kept
        self._rest = b""  # the next ones behind these
        self._ended = False
        self._damage: Damaged | None = None

    def read_at(self, place: int, size: int) -> bytes:
        """Up to `size` bytes from `place` on, at least one before the end."""
        while place >= self._size and self._beyond == 0 and not self._rest and self._more():
            pass
        if place < self._size:
            with written():  # what was written last may come to the disk only now
                self._kept.seek(place)
                return self._kept.read(size)
        if self._rest or self._beyond:
            return self._read_beyond(place, size)
        if self._damage is not None:
            raise self._damage
        return b""

    def _more(self) -> bool:
        """Take the next block; False at the end, and where the bytes are damaged."""
        if self._ended or self._damage is not None:
            return False
        try:
            block = next(self._blocks, None)
        except Damaged as damage:
            self._damage = damage
            return False
        if block is None:
            self._ended = True
        elif self._size + len(block) <= SPOOL_BYTES and not self._beyond:
            with written():
                self._kept.seek(self._size)
                self._kept.write(block)
            self._size += len(block)
        else:
            self._rest = bytes(block)
        return block is not None

    def _read_beyond(self, place: int, size: int) -> bytes:
        """Bytes that are not kept; only the next ones can be had."""
        here = self._size + self._beyond
        while place > here and (self._rest or self._more()):
            step = min(place - here, len(self._rest))
            self._rest, here = self._rest[step:], here + step
            self._beyond += step
        if place < here:
            detail = f"the member is longer than {self._size} bytes, and of more than these no part can be read again"
            raise Damaged("ingest.record_too_large", detail, place)
        while not self._rest and self._more():
            pass
        data, self._rest = self._rest[:size], self._rest[size:]
        self._beyond += len(data)
        if not data and self._damage is not None:
            raise self._damage
        return data

    def end(self) -> int:
        """Bytes of the whole, read up to there; raises `Damaged` where they are, or if they are too many to be kept."""
        while not self._rest and not self._beyond and self._more():
            pass
        if self._damage is not None:
            raise self._damage
        if self._rest or self._beyond:
            detail = f"the member is longer than {self._size} bytes, and its format is read from its end"
            raise Damaged("ingest.record_too_large", detail, self._size)
        return self._size

    def open(self) -> BinaryIO:
        """The bytes as a file of its own place."""
        return cast(BinaryIO, _View(self))

    def close(self) -> None:
        with suppress(OSError):
            self._kept.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _View(io.RawIOBase):
    def __init__(self, spool: Spool) -> None:
        self._spool, self._at = spool, 0

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            parts = []
            while data := self.read(READ_BYTES):
                parts.append(data)
            return b"".join(parts)
        data = self._spool.read_at(self._at, size) if size else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}
        self._at = max(0, offset + (start[whence] if whence in start else self._spool.end()))
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
