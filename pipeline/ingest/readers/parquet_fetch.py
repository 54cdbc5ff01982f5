"""Row groups of a Parquet file that is not on this machine: each byte is asked for once, although pages are looked at before they
are decoded."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from typing import IO

from corpusmill.pipeline.ingest.raw_file import READ_BYTES, RawFile
from corpusmill.pipeline.ingest.spool import SPOOL_BYTES, written

MEMORY_BYTES = 32 << 20  # of a row group, kept in memory; the rest is in an unnamed temporary file


class Fetched:
    """A file of `size` bytes of which some ranges were fetched: these are read from there, everything else from `raw`."""

    def __init__(self, raw: RawFile, size: int) -> None:
        self._raw, self._size = raw, size
        self._at = 0
        self._ranges: list[tuple[int, int, int]] = []  # (first byte, last byte + 1, place in `_kept`)
        self._kept: IO[bytes] = io.BytesIO()

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Fetch ranges (first byte, bytes), in place of those before; False if they are too many bytes to be kept."""
        self._kept.close()
        self._kept, self._ranges = tempfile.SpooledTemporaryFile(MEMORY_BYTES), []  # noqa: SIM115 (closed with the next, or `close`)
        inside = sorted(
            (begin, min(begin + size, self._size)) for begin, size in ranges if 0 <= begin < self._size
        )
        if sum(end - begin for begin, end in inside) > SPOOL_BYTES:
            return False
        kept = 0
        for begin, end in inside:
            self._ranges.append((begin, end, kept))
            self._raw.seek(begin)
            while begin < end and (block := self._raw.read(min(READ_BYTES, end - begin))):
                with written("a row group"):
                    self._kept.write(block)
                begin, kept = begin + len(block), kept + len(block)
        return True

    def read(self, size: int = -1) -> bytes:
        size = max(self._size - self._at, 0) if size is None or size < 0 else size
        parts = []
        while size > 0 and (data := self._piece(size)):
            parts.append(data)
            self._at += len(data)
            size -= len(data)
        return b"".join(parts)

    def _piece(self, size: int) -> bytes:
        """Up to `size` bytes from the present place on."""
        for begin, end, place in self._ranges:
            if begin <= self._at < end:
                with written("a row group"):
                    self._kept.seek(place + self._at - begin)
                    return self._kept.read(min(size, end - self._at))
        before = [begin - self._at for begin, _, _ in self._ranges if begin > self._at]
        self._raw.seek(self._at)
        return self._raw.read(min([size, *before]))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        return self._kept.closed

    def close(self) -> None:
        self._kept.close()
