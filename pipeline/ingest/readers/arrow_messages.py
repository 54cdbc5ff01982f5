"""The messages of an Arrow IPC stream, looked at before they are decoded: a length that is a lie, or a body that expands without end,
takes no memory (https://arrow.apache.org/docs/format/Columnar.html, encapsulated messages; metadata are FlatBuffers)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from corpusmill.pipeline.ingest.raw_file import READ_BYTES
from corpusmill.pipeline.ingest.streams import Damaged, Stream

METADATA_BYTES = 64 << 20
_CONTINUATION = b"\xff\xff\xff\xff"
_DICTIONARY, _BATCH = 2, 3  # of the union MessageHeader


class Refused(NamedTuple):
    """A batch that was passed over: its number in the file, and the bytes that it would have taken."""

    number: int
    size: int


class Messages:
    """A file for `pyarrow.ipc.open_stream` that leaves out batches of more than `limit` bytes, as stored or as decompressed.

    It ends where the bytes do, or make no sense: `problem` says how, "" for an end mark or the end of the file. What follows
    the end mark is left in the stream.
    """

    closed = False

    def __init__(self, stream: Stream, limit: int) -> None:
        self.stream, self.limit = stream, limit
        self.refused: list[Refused] = []
        self.batches = 0  # seen so far
        self.problem = ""
        self.marked = False  # an end mark was there
        self._parts: list[bytes] = []
        self._held = memoryview(b"")
        self._over = False

    def read(self, size: int = -1) -> bytes:
        """As a binary file's."""
        parts, have = [], 0
        while size < 0 or have < size:
            if not self._held:
                if not self._parts and not self._over:
                    self._next()
                if not self._parts:
                    break
                self._held = memoryview(self._parts.pop(0))
            piece = self._held[: size - have] if size >= 0 else self._held
            self._held = self._held[len(piece) :]
            parts.append(piece)
            have += len(piece)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """The reading closes its file."""

    def _next(self) -> None:
        """Take the next message; passes over those that are too large."""
        self._over = True
        prefix = self._take(4)
        if prefix == _CONTINUATION:
            prefix += self._take(4)
        if not prefix or self.problem:
            return
        (length,) = struct.unpack("<i", prefix[-4:])
        if not length:
            self.marked = True
            self._parts.append(prefix)
            return
        if not 0 < length <= METADATA_BYTES:
            self.problem = f"a message claims {length} bytes of metadata; allowed are {METADATA_BYTES}"
            return
        metadata = self._take(length)
        if self.problem:
            return
        try:
            message = _Message(metadata)
        except (struct.error, ValueError):
            self.problem = "the metadata of a message cannot be read"
            return
        if message.body < 0:
            self.problem = f"a message claims a body of {message.body} bytes"
            return
        size = message.body
        body = b""
        if size <= self.limit:
            body = self._take(size)
            if self.problem:
                return
            size = max(size, message.expanded(body))
        else:
            self._skip(size)
        self._over = False
        number = self.batches
        self.batches += message.kind == _BATCH
        if size > self.limit:
            self.refused.append(Refused(number, size))
            if not self.problem:
                self._next()
            return
        self._parts += [prefix, metadata, body] if body else [prefix, metadata]

    def _take(self, size: int) -> bytes:
        """`size` bytes, in one piece; fewer, with a problem, where the file ends or is damaged within them."""
        parts, have = [], 0
        try:
            while have < size and (data := self.stream.read(min(READ_BYTES, size - have))):
                parts.append(data)
                have += len(data)
        except Damaged:
            self.problem = "the compressed file is damaged"
        if 0 < have < size or (have < size and size != 4):
            self.problem = self.problem or f"a message is cut short: {have} of {size} bytes"
        return b"".join(parts)

    def _skip(self, size: int) -> None:
        passed = 0
        try:
            while passed < size and (data := self.stream.read(min(READ_BYTES, size - passed))):
                passed += len(data)
        except Damaged:
            self.problem = "the compressed file is damaged"
        if passed < size:
            self.problem = self.problem or f"a message is cut short: {passed} of {size} bytes"


class _Message:
    """What counts of a message's metadata. Raises `struct.error` or `ValueError` where it is none."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        root = self._unsigned(0)
        (self.kind,) = self._field(root, 1, "<B", 0)
        (self.body,) = self._field(root, 3, "<q", 0)
        header = self._table(root, 2)
        if self.kind == _DICTIONARY and header is not None:
            header = self._table(header, 1)
        self.buffers: list[tuple[int, int]] = []
        if self.kind not in (_DICTIONARY, _BATCH) or header is None or self._table(header, 3) is None:
            return  # nothing is compressed
        place = self._at(header, 2)
        if place is None:
            return
        vector = place + self._unsigned(place)
        count = self._unsigned(vector)
        if count * 16 > len(data):
            raise ValueError("more buffers than the metadata can hold")
        self.buffers = [struct.unpack_from("<qq", data, vector + 4 + 16 * n) for n in range(count)]

    def expanded(self, body: bytes) -> int:
        """Bytes of all buffers once decompressed, as each says before its content; 0 where nothing is compressed."""
        total = 0
        for offset, length in self.buffers:
            if length >= 8 and 0 <= offset <= len(body) - 8:
                (size,) = struct.unpack_from("<q", body, offset)
                total += length if size < 0 else size
        return total

    def _unsigned(self, at: int) -> int:
        value: int = struct.unpack_from("<I", self.data, at)[0]
        return value

    def _at(self, table: int, field: int) -> int | None:
        """Where a table has a field; None if it has not."""
        entries = table - int(struct.unpack_from("<i", self.data, table)[0])
        if entries < 0:
            raise ValueError("a table without its fields")
        (size,) = struct.unpack_from("<H", self.data, entries)
        place = 4 + 2 * field
        if place + 2 > size:
            return None
        (offset,) = struct.unpack_from("<H", self.data, entries + place)
        return table + offset if offset else None

    def _field(self, table: int, field: int, form: str, default: int) -> tuple[int]:
        place = self._at(table, field)
        return (default,) if place is None else struct.unpack_from(form, self.data, place)

    def _table(self, table: int, field: int) -> int | None:
        place = self._at(table, field)
        return None if place is None else place + self._unsigned(place)
