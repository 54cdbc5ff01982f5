"""Bytes of a file, decompressed in bounded memory, with damage distinguished from the end of the file.

gzip, bzip2 and xz by the standard library, Zstandard by `zstandard`, LZ4 by `lz4`. Python's own file wrappers either lose
what they decompressed before a cut or, for Zstandard, end silently there; these streams deliver every byte
before the damage, then raise `Damaged` with its position.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any

from corpusmill.common.http_files import Unseekable
from corpusmill.pipeline.ingest.raw_file import READ_BYTES, RawFile
from corpusmill.pipeline.ingest.raw_file import Damaged as Damaged  # raised by everything here
from corpusmill.pipeline.ingest.zstd_blocks import ZstdBlocks

OUT_BYTES = 1 << 18  # decompressed at a time
COMPRESSED_SUFFIXES = {
    ".gz": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".lz4": "lz4",
}
_MAGIC = {
    # With what its flags, compression level and system of origin may be, so that few bytes of data look like it.
    "gzip": re.compile(rb"\x1f\x8b\x08[\x00-\x1f]"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18|[\x50-\x5f]\x2a\x4d\x18"),
}
_FIRST = frozenset(b"\x1f\x28B\xfd\x04" + bytes(range(0x50, 0x60)))  # what any of them begins with
_MAGIC_BYTES = 10
TRIED_BYTES = 1 << 16  # of what may be a member behind damage
AGAIN_BYTES = 1 << 26  # of a damaged member, at most, that are decompressed twice
SLICE_BYTES = 64  # of them at a time


def codec_of(head: bytes) -> str | None:
    """The compression that a file's first bytes show, or None."""
    if not head or head[0] not in _FIRST:
        return None
    return next((name for name, magic in _MAGIC.items() if magic.match(head)), None)


class Stream:
    """`read` gives up to `size` bytes, at least one before the end, b"" at the end; raises `Damaged`."""

    def __init__(self, raw: RawFile, name: str) -> None:
        self.raw = raw
        self.position = raw.begin  # decompressed bytes before the next one
        self._rest = memoryview(b"")
        self._codec: str | None = None
        self._damage: Damaged | None = None
        self._blocks = self._noticing(self._open(name))

    def _noticing(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from blocks
        except Damaged as damage:
            self._damage = damage
            raise

    @property
    def damage(self) -> Damaged | None:
        """Where the file cannot be read on, once that was noticed."""
        return self._damage

    def resume(self) -> tuple[int, int] | None:
        """After `Damaged`: go on with the next member of the compressed file that can be read.

        Returns the stored bytes passed over, from the damaged member's beginning to that of the next (first, end); None if
        none follows, the file is not compressed, or it cannot be read further itself (a member of a damaged archive).
        """
        damage, codec = self._damage, self._codec
        if damage is None or codec not in DECODERS or self.raw.damaged:
            return None
        found = _next_member(self.raw, damage.member + 1, codec)
        if found is None:
            return None
        self._damage = None
        self.raw.go_to(found)
        self._rest = memoryview(b"")
        self._blocks = self._noticing(_members(self.raw, self.raw.read(READ_BYTES), codec))
        return damage.member, found

    def _open(self, name: str) -> Iterator[bytes]:
        if self.raw.end is not None:  # a part of a file is stored as it is
            while (size := self.raw.end - self.raw.tell()) > 0 and (
                block := self.raw.read(min(size, READ_BYTES))
            ):
                yield block
            return
        head = self.raw.read(READ_BYTES)
        codec = self._codec = codec_of(head)
        if codec is None:
            named = next(
                (c for suffix, c in COMPRESSED_SUFFIXES.items() if name.lower().endswith(suffix)), None
            )
            if named and head and not _looks_like_text(head[:1024]):
                self._codec = named
                raise Damaged("ingest.damaged", f"named as {named}, but its first bytes are not {named}'s", 0)
            while head:
                yield head
                head = self.raw.read(READ_BYTES)
            return
        yield from _members(self.raw, head, codec)

    def read(self, size: int = READ_BYTES) -> bytes:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return b""
            self._rest = memoryview(block)
        size = len(self._rest) if size is None or size < 0 else size
        data = bytes(self._rest[:size])
        self._rest = self._rest[size:]
        self.position += len(data)
        return data

    def blocks(self) -> Iterator[bytes]:
        """All that is left. Raises `Damaged`."""
        while block := self.read():
            yield block

    def peek(self, size: int) -> bytes:
        """The next bytes, not consumed; fewer at the end or before damage."""
        parts, have = [], 0
        start = self.position
        try:
            while have < size and (data := self.read(size - have)):
                parts.append(data)
                have += len(data)
        except Damaged as damage:
            self._blocks = _raise(damage)
        head = b"".join(parts)
        self._rest = memoryview(head + bytes(self._rest))
        self.position = start
        return head


def read_up_to(reader: Any, limit: int) -> bytes:
    """All that `reader.read` gives, or `limit` + 1 bytes if there is more than `limit`."""
    parts, have = [], 0
    while have <= limit and (data := reader.read(min(1 << 20, limit + 1 - have))):
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def _looks_like_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not merely cut inside a character
            return False
        text = head[: error.start].decode("utf-8")
    return not text.isspace() and all(c.isprintable() or c in "\t\r\n\ufeff" for c in text)


def _raise(damage: Damaged) -> Iterator[bytes]:
    raise damage
    yield b""


def _members(raw: RawFile, data: bytes, codec: str) -> Iterator[bytes]:
    """The content of consecutive gzip members, Zstandard frames, bzip2 or xz streams, in bounded blocks."""
    while True:
        data = yield from _member(raw, data, codec)
        if len(data) < _MAGIC_BYTES:
            data += raw.read(READ_BYTES)
        while data and not data.lstrip(b"\x00"):  # padding, as tape tools and xz write it
            data = raw.read(READ_BYTES)
        data = data.lstrip(b"\x00")
        if not data:
            return
        if len(data) < _MAGIC_BYTES:
            data += raw.read(READ_BYTES)
        if not _MAGIC[codec].match(data):
            at = raw.consumed - len(data)
            detail = f"bytes that are not {codec} follow the compressed data, at byte {at}"
            raise Damaged("ingest.damaged", detail, at, at)


def _next_member(raw: RawFile, start: int, codec: str) -> int | None:
    """Where the first member at or after byte `start` of a file begins that can be decompressed; None if there is none."""
    first, data = start, b""
    raw.go_to(start)
    while True:
        block = raw.read(READ_BYTES)
        data += block
        for sign in _MAGIC[codec].finditer(data):
            if block and sign.start() > len(data) - _MAGIC_BYTES:
                break  # looked at with the next block
            if _begins(raw, first + sign.start(), codec):
                return first + sign.start()
        if not block:
            return None
        keep = min(len(data), _MAGIC_BYTES)
        first, data = first + len(data) - keep, data[len(data) - keep :]


def _begins(raw: RawFile, at: int, codec: str) -> bool:
    """Whether the first `TRIED_BYTES` from there decompress; leaves the file where it was."""
    place = raw.tell()
    raw.seek(at)
    data = raw.read(TRIED_BYTES)
    raw.seek(place)
    step = DECODERS[codec]()
    try:
        got = 0
        while got < TRIED_BYTES:
            out, data, ended = step(data)
            got += len(out)
            if ended or (not out and not data):
                break
    except BAD_DATA:
        return False
    return True


def _member(raw: RawFile, data: bytes, codec: str) -> Generator[bytes, None, bytes]:
    """One member, from `data` and on; returns the bytes after it."""
    start, given = raw.consumed - len(data), 0
    step = DECODERS[codec]()
    while True:
        try:
            out, data, ended = step(data)
        except BAD_DATA as error:
            at = raw.consumed - len(data)
            if "check" not in str(error):  # a checksum that does not hold makes all of it doubtful
                yield _before_damage(raw, start, codec, given)
            detail = f"{codec} data from byte {start} on is corrupt, noticed before byte {at}"
            raise Damaged("ingest.damaged", detail, at, start) from None
        if out:
            given += len(out)
            yield out
        if ended:
            return data
        if not data and not out:
            data = raw.read(READ_BYTES)
            if not data:
                detail = f"{codec} data ends inside a member, at byte {raw.consumed}"
                raise Damaged("ingest.truncated", detail, raw.consumed, start)


def _before_damage(raw: RawFile, start: int, codec: str, given: int) -> bytes:
    """`tail` of the member from byte `start` on; leaves the file where it was."""
    place, consumed = raw.tell(), raw.consumed
    blocks = iter(lambda: raw.read(READ_BYTES), b"")
    try:
        raw.seek(start)
        return tail(DECODERS[codec](), blocks, given) if place - start <= AGAIN_BYTES else b""
    except Unseekable:
        return b""
    finally:
        raw.seek(place)
        raw.consumed = consumed


def tail(step: Step, blocks: Iterable[bytes], given: int) -> bytes:
    """What damaged data decompresses to before the damage, behind the first `given` bytes.

    A decoder that finds an error loses what it made in the same step: the steps here are small.
    """
    got, parts = 0, []
    with suppress(*BAD_DATA):
        for block in blocks:
            for at in range(0, len(block), SLICE_BYTES):
                out, rest, ended = step(block[at : at + SLICE_BYTES])
                while out or rest:
                    parts.append(out[max(0, given - got) :])
                    got += len(out)
                    if ended:
                        return b"".join(parts)
                    out, rest, ended = step(rest)
    return b"".join(parts)


Step = Callable[[bytes], tuple[bytes, bytes, bool]]  # input -> (output, input not yet used, ended)


def _gzip() -> Step:
    decoder = zlib.decompressobj(wbits=31)

    def step(data: bytes) -> tuple[bytes, bytes, bool]:
        out = decoder.decompress(data, OUT_BYTES)
        return out, decoder.unused_data if decoder.eof else decoder.unconsumed_tail, decoder.eof

    return step


def buffered(decoder: Any) -> Step:
    def step(data: bytes) -> tuple[bytes, bytes, bool]:
        if not data and decoder.needs_input:
            return b"", b"", False
        out = decoder.decompress(data, OUT_BYTES)
        return out, (decoder.unused_data or b"") if decoder.eof else b"", decoder.eof

    return step


def _lz4() -> Step:
    import lz4.frame

    step = buffered(lz4.frame.LZ4FrameDecompressor())

    def checked(data: bytes) -> tuple[bytes, bytes, bool]:
        try:
            return step(data)
        except RuntimeError as error:
            raise OSError(str(error)) from None

    return checked


def _zstd() -> Step:
    import zstandard

    decoder = zstandard.ZstdDecompressor().decompressobj()
    blocks = ZstdBlocks()
    held, at = b"", 0  # input is kept here, not handed back, so that small slices cost no copies

    def step(data: bytes) -> tuple[bytes, bytes, bool]:
        nonlocal held, at
        if at >= len(held):
            held, at = data, 0
        out = b""
        while not out and at < len(held):
            piece = held[at : at + blocks.within(len(held) - at)]
            at += len(piece)
            try:
                out = decoder.decompress(piece)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            if decoder.eof:
                return out, decoder.unused_data + held[at:], True
            blocks.pass_over(piece)
        return out, b"", False

    return step


DECODERS: dict[str, Callable[[], Step]] = {
    "gzip": _gzip,
    "bzip2": lambda: buffered(bz2.BZ2Decompressor()),
    "xz": lambda: buffered(lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=1 << 28)),
    "zstd": _zstd,
    "lz4": _lz4,
}
BAD_DATA = (zlib.error, OSError, EOFError, lzma.LZMAError, MemoryError)  # what decoders raise
