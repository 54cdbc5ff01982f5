"""The lines of a stream, one by one or by blocks, in bounded memory. Part of a line before damage is no line: `Damaged` follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from corpusmill.pipeline.ingest.streams import Stream


class Piece(NamedTuple):
    """One line without its newline, or several whole ones with theirs (`many`). `offset`, `size`: in bytes of the stream."""

    offset: int
    data: bytes | None
    size: int
    many: bool = False


def pieces(stream: Stream, limit: int) -> Iterator[Piece]:
    """All lines from here on; of each block of the stream, those that end in it come together before the next block is read.

    A line of more than `limit` bytes that does not begin and end in one block comes alone, without its data; so does the last one, if no newline
    follows it. Holds one block and at most `limit` bytes.
    """
    parts: list[bytes] = []
    held, start, offset = 0, stream.position, stream.position
    while block := stream.read():
        begin = 0
        end = block.find(b"\n") if held else -1
        if end >= 0 and held + end > limit:
            yield Piece(start, None, held + end)
            parts, held, begin = [], 0, end + 1
            start = offset + begin
        last = block.rfind(b"\n", begin) + 1
        if last > begin:
            parts.append(block[begin:last] if begin or last < len(block) else block)
            whole = parts[0] if len(parts) == 1 else b"".join(parts)
            yield Piece(start, whole, len(whole), True)
            parts, held, begin = [], 0, last
            start = offset + begin
        held += len(block) - begin
        if held > limit:
            parts = []
        elif begin < len(block):
            parts.append(block[begin:])
        offset += len(block)
    if held > limit:
        yield Piece(start, None, held)
    elif held:
        yield Piece(start, b"".join(parts), held)


def lines(stream: Stream, limit: int) -> Iterator[tuple[int, bytes | None, int]]:
    """(offset, line without its newline, bytes) of every line from here on; one of more than `limit` bytes comes as None."""
    for offset, data, size, many in pieces(stream, limit):
        if not many or data is None:
            yield offset, data, size
            continue
        begin = 0
        while begin < size:
            end = data.index(b"\n", begin)
            yield offset + begin, data[begin:end] if end - begin <= limit else None, end - begin
            begin = end + 1
