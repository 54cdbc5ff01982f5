"""Mutants of a file: damage by the byte, by the field and by the record, the same for the same seed and number.

Damage is done to the records before they are compressed, or to the compressed file. After M. Zalewski's AFL
(bits, runs, numbers, words of a dictionary, splices) and grammar-aware fuzzers (whole records dropped, doubled, moved).
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import zstandard

from bench._fuzz_formats import FORMATS, Format, Piece

CODECS = ("", "gz", "zst", "bz2", "xz", "lz4")
HUGE = ("-1", "0", "1", "2147483647", "4294967296", "9223372036854775808", "1" * 30, "-", "1e9")
SIZES = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1)
_NUMBER = re.compile(rb"\d+")
_JOINT = re.compile(rb"[\s\"{}\[\]:,;<>&=|/\\]")


class Mutant(NamedTuple):
    """`data` as the file is stored; `plain` before compression, None where the compressed file was damaged."""

    format: str
    number: int
    codec: str
    pieces: list[Piece]
    members: list[tuple[bytes, list[Piece]]]  # compressed, as they were, with the records that each has whole
    data: bytes
    plain: bytes | None
    damage: tuple[str, ...]

    @property
    def file_name(self) -> str:
        suffix = FORMATS[self.format].suffix
        return f"m{self.number}.{suffix}" + (f".{self.codec}" if self.codec else "")


def make(name: str, seed: int, number: int) -> Mutant:
    """Mutant `number` of a format. Number 0 to 5 are not damaged: one for each codec."""
    choice = random.Random(f"{seed}/{name}/{number}")
    format = FORMATS[name]
    pieces = format.pieces(choice)
    codec = CODECS[number % len(CODECS)] if number % 2 or number < len(CODECS) else ""
    codec = codec if format.compressed else ""
    damage: list[str] = []
    chunks = [piece.data for piece in pieces]
    before = codec == "" or choice.random() < 0.4
    if before and number >= len(CODECS):
        chunks = _damaged(chunks, choice, format, damage)
    plain: bytes | None = b"".join(chunks)
    members = _members(chunks, pieces, codec, choice)
    blobs = [blob for blob, _ in members]
    if not before and number >= len(CODECS):
        blobs = _damaged(blobs, choice, format, damage)
        plain = None
    return Mutant(name, number, codec, pieces, members, b"".join(blobs), plain, tuple(damage))


def compress(data: bytes, codec: str) -> bytes:
    """One member, frame or stream."""
    if codec == "lz4":
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, "lz4") as stream:
            stream.write(data)
        return bytes(out.getvalue().to_pybytes())
    if codec == "zst":
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    if codec == "gz":
        return gzip.compress(data, mtime=0)
    return {"": bytes, "bz2": bz2.compress, "xz": lzma.compress}[codec](data)


def _members(
    chunks: list[bytes], pieces: Sequence[Piece], codec: str, choice: random.Random
) -> list[tuple[bytes, list[Piece]]]:
    """The file in compressed members that end with a record, or (as blocked compressors write them) anywhere."""
    whole = b"".join(chunks)
    if not codec:
        return [(whole, list(pieces))]
    if choice.random() < 0.3 and len(whole) > 2:
        size = max(1, len(whole) // choice.randint(1, 5))
        return [(compress(whole[at : at + size], codec), []) for at in range(0, len(whole), size)]
    step = choice.choice([1, 3, len(chunks)])
    found = []
    for at in range(0, len(chunks), step):
        data = b"".join(chunks[at : at + step])
        has = [piece for piece in pieces if piece.mark and piece.data and piece.data in data]
        if data or not found:
            found.append((compress(data, codec), has))
    return found


def _damaged(chunks: list[bytes], choice: random.Random, format: Format, damage: list[str]) -> list[bytes]:
    """One place of damage in most mutants, up to four in the others."""
    for _ in range(1 if choice.random() < 0.6 else choice.randint(2, 4)):
        if len(chunks) > 1 and choice.random() < 0.2:
            change = choice.choice(_OF_RECORDS)
            chunks = change(list(chunks), choice)
            damage.append(change.__name__.strip("_"))
            continue
        kind = choice.choice(_OF_BYTES)
        at = choice.randrange(len(chunks))
        if kind in (_truncated, _beheaded, _spliced, _swapped) or choice.random() < 0.4:
            chunks = [kind(b"".join(chunks), choice, format)]  # anywhere in the file
        else:
            chunks[at] = kind(chunks[at], choice, format)
        damage.append(kind.__name__.strip("_"))
    return chunks


def _dropped(chunks: list[bytes], choice: random.Random) -> list[bytes]:
    del chunks[choice.randrange(len(chunks))]
    return chunks


def _doubled(chunks: list[bytes], choice: random.Random) -> list[bytes]:
    at = choice.randrange(len(chunks))
    return [*chunks[:at], chunks[at], *chunks[at:]]


def _reordered(chunks: list[bytes], choice: random.Random) -> list[bytes]:
    a, b = choice.randrange(len(chunks)), choice.randrange(len(chunks))
    chunks[a], chunks[b] = chunks[b], chunks[a]
    return chunks


def _halved(chunks: list[bytes], choice: random.Random) -> list[bytes]:
    at = choice.randrange(len(chunks))
    chunks[at] = chunks[at][: len(chunks[at]) // 2]
    return chunks


_OF_RECORDS: tuple[Callable[[list[bytes], random.Random], list[bytes]], ...] = (
    _dropped, _doubled, _reordered, _halved,
)  # fmt: skip


def _place(data: bytes, choice: random.Random) -> int:
    """Anywhere, half of the time where the grammar has a joint."""
    if data and choice.random() < 0.5:
        start = choice.randrange(len(data))
        if found := _JOINT.search(data, start):
            return found.start() + choice.randint(0, 1)
    return choice.randint(0, len(data))


def _run(data: bytes, choice: random.Random) -> tuple[int, int]:
    at = _place(data, choice)
    return at, min(len(data), at + choice.choice([1, 2, 4, 8, 30, 100, 500]))


def _flipped(data: bytes, choice: random.Random, format: Format) -> bytes:
    out = bytearray(data)
    for _ in range(choice.choice([1, 1, 1, 2, 8])):
        if out:
            out[choice.randrange(len(out))] ^= 1 << choice.randrange(8)
    return bytes(out)


def _replaced(data: bytes, choice: random.Random, format: Format) -> bytes:
    at, end = _run(data, choice)
    fill = choice.choice([b"\0", b"\xff", b" ", b"x"])
    new = choice.randbytes(end - at) if choice.random() < 0.5 else fill * (end - at)
    return data[:at] + new + data[end:]


def _deleted(data: bytes, choice: random.Random, format: Format) -> bytes:
    at, end = _run(data, choice)
    return data[:at] + data[end:]


def _inserted(data: bytes, choice: random.Random, format: Format) -> bytes:
    at = _place(data, choice)
    return data[:at] + choice.randbytes(choice.choice([1, 2, 8, 100, 3000])) + data[at:]


def _repeated(data: bytes, choice: random.Random, format: Format) -> bytes:
    at, end = _run(data, choice)
    return data[:end] + data[at:end] * choice.choice([1, 2, 50]) + data[end:]


def _word(data: bytes, choice: random.Random, format: Format) -> bytes:
    at = _place(data, choice)
    word = choice.choice(format.words)
    return data[:at] + word + data[at + (len(word) if choice.random() < 0.3 else 0) :]


def _number(data: bytes, choice: random.Random, format: Format) -> bytes:
    found = [match.span() for match in _NUMBER.finditer(data)]
    if not found:
        return _binary(data, choice, format)
    begin, end = choice.choice(found)
    value = choice.choice([*HUGE, str(int(data[begin:end][:18]) + choice.randint(-9, 9))])
    return data[:begin] + value.encode() + data[end:]


def _binary(data: bytes, choice: random.Random, format: Format) -> bytes:
    """A field of 1, 2, 4 or 8 bytes, as lengths are stored, overwritten."""
    width = choice.choice([1, 2, 4, 8])
    value = choice.choice(SIZES) & ((1 << 8 * width) - 1)
    at = choice.randrange(max(1, len(data) - width + 1))
    if choice.random() < 0.3:  # footers and heads have most of them
        at = (
            min(at, choice.randrange(64))
            if choice.random() < 0.5
            else max(0, len(data) - choice.randint(1, 64))
        )
    return data[:at] + value.to_bytes(width, choice.choice(["little", "big"])) + data[at + width :]


def _truncated(data: bytes, choice: random.Random, format: Format) -> bytes:
    return data[: _place(data, choice)]


def _beheaded(data: bytes, choice: random.Random, format: Format) -> bytes:
    return data[_place(data, choice) :]


def _swapped(data: bytes, choice: random.Random, format: Format) -> bytes:
    a, b, c = sorted(choice.randint(0, len(data)) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _spliced(data: bytes, choice: random.Random, format: Format) -> bytes:
    """The beginning of this file and the end of another, now and then of another format."""
    other = format if choice.random() < 0.8 else choice.choice(list(FORMATS.values()))
    second = b"".join(piece.data for piece in other.pieces(choice))
    return data[: _place(data, choice)] + second[_place(second, choice) :]


_OF_BYTES: tuple[Callable[[bytes, random.Random, Format], bytes], ...] = (
    _flipped, _flipped, _replaced, _deleted, _inserted, _repeated, _word, _word, _word, _number, _binary, _truncated,
    _beheaded, _swapped, _spliced,
)  # fmt: skip


class Intact(NamedTuple):
    """A record that the damage left whole, and whether nothing that is not whole touches it."""

    mark: str
    apart: bool


def intact(mutant: Mutant) -> list[Intact]:
    """The records whose bytes stand in the mutant as they were; a record of a compressed file if its member does."""
    format = FORMATS[mutant.format]
    if format.apart == "file":
        same = mutant.plain is not None and mutant.plain == mutant.pieces[0].data
        return [Intact(piece.mark, True) for piece in mutant.pieces if piece.mark and same]
    if mutant.plain is not None:
        blocks = [(piece.data, [piece]) for piece in mutant.pieces if piece.data]
        data = mutant.plain
    else:
        blocks, data = [(blob, has) for blob, has in mutant.members], mutant.data
    found: list[tuple[int, int, list[Piece]]] = []
    for block, has in blocks:
        at = data.find(block)
        while at >= 0:
            found.append((at, at + len(block), has))
            at = data.find(block, at + 1)
    starts, ends = {at for at, _, _ in found} | {len(data)}, {end for _, end, _ in found} | {0}
    result = []
    for at, end, has in sorted(found, key=lambda entry: entry[:2]):
        whole = at in ends and end in starts
        if mutant.plain is not None and format.apart == "line":
            whole = not at or data[at - 1 : at] == b"\n"
        result += [Intact(piece.mark, whole) for piece in has if piece.mark]
    return result


def gaps(mutant: Mutant) -> list[bytes]:
    """What stands between whole records of the uncompressed file."""
    data, spans = mutant.plain or b"", []
    for piece in mutant.pieces:
        at = data.find(piece.data) if piece.data else -1
        while at >= 0:
            spans.append((at, at + len(piece.data)))
            at = data.find(piece.data, at + 1)
    spans.sort()
    reach = [0, *accumulate((end for _, end in spans), max)]
    return [data[a:b] for a, b in zip(reach, [*(at for at, _ in spans), len(data)], strict=True) if b > a]
