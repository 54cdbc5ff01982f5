"""Fetched ranges kept in a local folder between runs: by URL, tag and range, within a size.

Nothing in the folder is trusted: whoever reads a range checks it against the block's checksum, as one from the store.
Several processes may share the folder; files appear whole, by a rename.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder

RANGE = re.compile(r"[0-9a-f]{32}-[0-9]+-[0-9]+")
UNFINISHED = re.compile(r"[0-9]+-[0-9]+\.part")
ABANDONED = 3600.0  # seconds after which an unfinished file is taken for that of a killed process
PART = 16  # room is made for 1/16 of the size at a time, and what others wrote is seen as often

Uses = Callable[[Sequence["Range"]], Sequence[float | None]]
log = logging.getLogger("corpusmill.train.data")


class Range(NamedTuple):
    """A range of one object as it was at one time: `of` is a hash of its URL and tag."""

    of: str
    start: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.of}-{self.start}-{self.size}"


def object_hash(file: Folder, tag: str) -> str:
    """What the ranges of this object have in common."""
    return checksum(f"{file.url}\n{tag}".encode())


class DiskCache:
    """Up to `limit` bytes of ranges in `folder`. Thread-safe.

    When it is full, ranges go that nothing is known of (the oldest first), then those that are used furthest in the
    future: `uses` says, per range, the sequence number of the next use, infinity for never and None for unknown.

    The size holds for one process. Of several that share the folder, each sees what the others wrote after every
    1/16 of `limit` that it wrote itself; so together they may exceed it by 1/16 each. Raises `UserError` if the folder
    cannot be made; a disk that fails later is said once, and the cache is left alone.
    """

    def __init__(
        self, folder: str, limit: int, uses: Uses | None = None, say: Callable[[str], None] | None = None
    ) -> None:
        self.folder, self.limit = Path(folder).expanduser(), limit
        self._uses, self._say = uses or (lambda ranges: [None] * len(ranges)), say or log.warning
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._writing = 0  # bytes that are being written
        self._off = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock:
                self._room = self._make_room(0)
        except OSError as error:
            raise UserError(
                f"data.fetch.cache: {folder}: cannot be used: {error.strerror}; give a local folder that can be written to"
            ) from None

    def get(self, wanted: Range) -> bytes | None:
        """The bytes of a range, unchecked; None if they are not there."""
        try:
            return (self.folder / wanted.name).read_bytes()
        except OSError:
            return None

    def drop(self, damaged: Range) -> None:
        """Forget a range."""
        with contextlib.suppress(OSError):
            (self.folder / damaged.name).unlink(missing_ok=True)

    def put(self, found: Range, data: Any) -> None:
        """Keep the bytes (any buffer) of a range."""
        if self._off or len(data) > self.limit:
            return
        part = self.folder / f"{os.getpid()}-{next(self._numbers)}.part"
        try:
            with self._lock:
                if len(data) > self._room:
                    self._room = self._make_room(len(data))
                self._room -= len(data)
                self._writing += len(data)
            try:
                part.write_bytes(data)
                part.replace(self.folder / found.name)
            finally:
                with self._lock:
                    self._writing -= len(data)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            if not self._off:
                self._off = True
                self._say(f"{self.folder}: blocks are no longer kept there: {error.strerror}")

    def _make_room(self, size: int) -> int:
        """Delete what is needed least until `size` more bytes fit; the bytes to write before the next look."""
        there: list[tuple[Range, int, float]] = []
        total, mine = self._writing, f"{os.getpid()}-"
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    if RANGE.fullmatch(entry.name):
                        of, start, length = entry.name.split("-")
                        status = entry.stat()
                        there.append((Range(of, int(start), int(length)), status.st_size, status.st_mtime))
                        total += status.st_size
                    elif UNFINISHED.fullmatch(entry.name):
                        if time.time() - entry.stat().st_mtime > ABANDONED:
                            Path(entry.path).unlink()
                        elif not entry.name.startswith(mine):
                            total += entry.stat().st_size
        if total + size > self.limit:
            uses = self._uses([kept for kept, _, _ in there])
            # Unknown ones by age, then known ones by use: the first of them go.
            rank = [
                (0, at) if use is None else (1, -use) for (_, _, at), use in zip(there, uses, strict=True)
            ]
            goal = self.limit - max(size, self.limit // PART)
            for number in sorted(range(len(there)), key=rank.__getitem__):
                if total <= goal:
                    break
                self.drop(there[number][0])
                total -= there[number][1]
        return max(min(self.limit - total, max(size, self.limit // PART)), size)
