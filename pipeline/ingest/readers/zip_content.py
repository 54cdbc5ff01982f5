"""The content of a member of a zip file: decompressed in bounded memory, its length and checksum verified."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from corpusmill.pipeline.ingest.raw_file import READ_BYTES, Damaged, RawFile
from corpusmill.pipeline.ingest.readers.zip_directory import Entry, read_at
from corpusmill.pipeline.ingest.streams import (
    AGAIN_BYTES,
    BAD_DATA,
    DECODERS,
    OUT_BYTES,
    Step,
    buffered,
    tail,
)

STORED: Final = 0
_DICTIONARY_BYTES = 1 << 28  # of LZMA: what a decoder allocates


def content(raw: RawFile, entry: Entry, end: int | None = None) -> Iterator[bytes]:
    """The bytes of a member in blocks, from `entry.content` on. Raises `Damaged` where they cannot be decompressed, and at
    their end if their number or CRC-32 is not the one of `entry`.

    Where `end` is given the entry has neither: the compressed data shows its own end, before that byte.
    """
    got = crc = 0
    try:
        for block in _decompressed(raw, entry, entry.stored if end is None else end - entry.content):
            got += len(block)
            crc = zlib.crc32(block, crc)
            if end is None and got > entry.size:
                detail = f"the member holds more than the {entry.size} bytes that the directory gives"
                raise Damaged("ingest.damaged", detail, entry.size)
            yield block
    except _NO_DATA as error:
        detail = f"the member's data is corrupt behind byte {got} ({type(error).__name__})"
        raise Damaged("ingest.damaged", detail, got) from None
    if end is not None:
        return
    if got < entry.size:
        raise Damaged("ingest.truncated", f"the member ends after {got} of {entry.size} bytes", got)
    if crc != entry.crc:
        raise Damaged("ingest.damaged", f"the member's {got} bytes do not have their CRC-32", got)


class _Bad(ValueError):
    """Data that the method's decoder does not take, or that ends too early."""


_NO_DATA = (*BAD_DATA, _Bad)


def _decompressed(raw: RawFile, entry: Entry, stored: int) -> Iterator[bytes]:
    if entry.method == STORED:
        yield from _blocks(raw, entry.content, stored)
        return
    step = METHODS[entry.method]()
    given = 0
    try:
        for data in _blocks(raw, entry.content, stored):
            rest, out = data, b""
            while rest or out:
                out, rest, ended = step(rest)
                if out:
                    given += len(out)
                    yield out
                if ended:
                    return
    except BAD_DATA:
        yield tail(METHODS[entry.method](), _blocks(raw, entry.content, min(stored, AGAIN_BYTES)), given)
        raise
    raise _Bad


def _blocks(raw: RawFile, place: int, size: int) -> Iterator[bytes]:
    """`size` bytes of the file from `place` on, or those that it has."""
    while size and (data := read_at(raw, place, min(size, READ_BYTES))):
        place, size = place + len(data), size - len(data)
        yield data


def _deflate() -> Step:
    decoder = zlib.decompressobj(wbits=-15)

    def step(data: bytes) -> tuple[bytes, bytes, bool]:
        out = decoder.decompress(data, OUT_BYTES)
        return out, decoder.unconsumed_tail, decoder.eof

    return step


def _lzma() -> Step:
    """LZMA behind the header of zip files: a version, the length of the properties, the properties (APPNOTE 5.8.8)."""
    held, inner = b"", None

    def step(data: bytes) -> tuple[bytes, bytes, bool]:
        nonlocal held, inner
        if inner is None:
            held += data
            if len(held) < 9:
                return b"", b"", False
            properties = held[4]
            dictionary = int.from_bytes(held[5:9], "little")
            if held[2:4] != b"\5\0" or properties >= 225 or dictionary > _DICTIONARY_BYTES:
                raise _Bad
            about = {
                "id": lzma.FILTER_LZMA1, "dict_size": max(dictionary, 4096), "lc": properties % 9,
                "lp": properties // 9 % 5, "pb": properties // 45,
            }  # fmt: skip
            inner = buffered(lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[about]))
            data = held[9:]
        return inner(data)

    return step


METHODS: dict[int, Callable[[], Step]] = {
    8: _deflate, 12: DECODERS["bzip2"], 14: _lzma, 93: DECODERS["zstd"], 95: DECODERS["xz"],
}  # fmt: skip
