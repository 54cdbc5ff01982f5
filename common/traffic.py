"""What this process has asked of its stores: requests and bytes, counted by `corpusmill.common.storage.Folder` as it makes them.

A request is what an object store would count, also where the store is a local disk. Not counted are repeated attempts,
deletions (stores take a thousand at once, and charge nothing) and the bytes of local files read through `Folder.open`.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

PAGE = 1000  # objects of a listing in one answer


class Amounts(NamedTuple):
    """Reads and look-ups of objects (`gets`), writes of objects and of parts of large ones (`puts`), pages of a
    listing (`lists`); bytes read and written."""

    gets: int = 0
    puts: int = 0
    lists: int = 0
    read: int = 0
    written: int = 0

    def plus(self, other: Amounts) -> Amounts:
        """The sums."""
        return Amounts(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: Amounts) -> Amounts:
        """What came after `other`."""
        return Amounts(*(a - b for a, b in zip(self, other, strict=True)))


class Traffic:
    """The running totals of a process; safe with threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = Amounts()

    def add(self, gets: int = 0, puts: int = 0, lists: int = 0, read: int = 0, written: int = 0) -> None:
        """Count a request."""
        with self._lock:
            so_far = self._total
            self._total = Amounts(
                so_far.gets + gets, so_far.puts + puts, so_far.lists + lists, so_far.read + read,
                so_far.written + written,
            )  # fmt: skip

    def add_listing(self, objects: int) -> None:
        """Count the pages of a listing."""
        self.add(lists=max(1, -(-objects // PAGE)))

    def add_upload(self, size: int, part: int) -> None:
        """Count the writing of an object, which above `part` bytes is begun and completed by a request each."""
        self.add(puts=1 if size <= part else 2 + -(-size // part), written=size)

    @property
    def total(self) -> Amounts:
        """All since the process began."""
        return self._total


class CountedStream:
    """A stream that is written to; `size`: bytes so far."""

    def __init__(self, writer: Any) -> None:
        self.writer, self.size = writer, 0

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            self.size += view.nbytes
        return int(self.writer.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.writer, name)


TRAFFIC = Traffic()
