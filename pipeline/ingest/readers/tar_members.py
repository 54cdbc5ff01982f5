"""The members of a tar (POSIX.1-2001 pax and ustar, GNU, V7), read from front to back; behind damage, from the next header on."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Generator, Iterator
from typing import NamedTuple

from corpusmill.pipeline.ingest.readers.archive_records import Window
from corpusmill.pipeline.ingest.readers.member import Member
from corpusmill.pipeline.ingest.records import Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged

BLOCK = 512
EXTENDED_BYTES = 1 << 20  # of one extended header: names and attributes
SEARCHED_BYTES = 1 << 18  # at a time, for a header behind damage
_MAGIC_AT, _CHECKSUM_AT = 257, 148
_CHECKSUM = re.compile(rb"[ 0-7]{6}[\0 ]{2}| *[0-7]{1,7}[\0 ]")
_PAX = re.compile(rb"(\d{1,7}) ([^=\n]{1,255})=")
_EXTENDED = {b"x": "pax", b"X": "pax", b"g": "global", b"L": "name", b"K": "link"}
_KINDS = {
    tarfile.SYMTYPE: "a symbolic link", tarfile.LNKTYPE: "a hard link", tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device", tarfile.FIFOTYPE: "a FIFO (named pipe)", tarfile.GNUTYPE_SPARSE: "a sparse file",
    b"M": "the rest of a file that begins in another volume", b"V": "a volume's name", b"D": "a list of a folder's names",
}  # fmt: skip
_NO_CONTENT = (
    tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, b"V",
)  # fmt: skip


class _Extended(NamedTuple):
    """What extended headers say of the next member."""

    name: str | None = None
    size: int | None = None
    sparse: bool = False


def members(reading: Reading) -> Iterator[Member | Rejected]:
    """Every member in order. Yields `Rejected` for what is passed over: damage costs the members that it hits."""
    stream = reading.stream()
    tape, lost = Window(stream), ""
    while True:
        ended = yield from _members(tape, reading, lost)
        damage = tape.damage
        if damage is None:
            if not ended and reading.recognised:
                detail = f"the archive ends at byte {tape.place} without the mark of its end"
                yield Rejected(reading.next(), "ingest.truncated", detail, float(tape.place))
            return
        gap = stream.resume()
        if gap is None:
            raise damage
        begin, end = gap
        lost = f"{damage.detail}; {end - begin} stored bytes from byte {begin} on are passed over"
        tape = Window(stream, tape.place)


def _members(tape: Window, reading: Reading, lost: str) -> Generator[Member | Rejected, None, bool]:
    """The members up to damage of the stream or its end; returns whether the mark of the archive's end was there.

    `lost`: what was passed over before, where the beginning of a header has to be found first.
    """
    zeros = 0
    extended = _Extended()
    if lost:
        passed = _find_header(tape)
        detail = f"{lost}, with {passed} bytes up to the next member"
        yield Rejected(reading.next(), "ingest.damaged", detail, float(passed))
    while tape.need(BLOCK):
        block = tape.data[tape.at : tape.at + BLOCK]
        if not block.strip(b"\0"):
            zeros += 1
            tape.at += BLOCK
            continue
        header = parse_header(block)
        if header is None:
            begin = tape.place
            passed = _find_header(tape)
            detail = f"no member begins in {passed} bytes from byte {begin} on; they are passed over"
            rule = "ingest.damaged" if reading.recognised or not tape.over else "ingest.not_tar"
            yield Rejected(reading.next(), rule, detail, float(passed))
            extended = _Extended()
            continue
        reading.recognised = True
        zeros = 0
        place = tape.place
        tape.at += BLOCK
        kind = _EXTENDED.get(header.type)
        if kind is not None:
            if header.size > EXTENDED_BYTES:
                detail = f"an extended header at byte {place} has {header.size} bytes; it is passed over"
                yield Rejected(
                    reading.next(),
                    "ingest.record_too_large",
                    detail,
                    float(header.size),
                    float(EXTENDED_BYTES),
                )
                tape.skip(_padded(header.size))
                continue
            tape.need(header.size)
            data = tape.data[tape.at : tape.at + header.size]
            tape.skip(_padded(header.size))
            if len(data) == header.size:
                extended = _extend(extended, kind, data)
            continue
        size = 0 if header.type in _NO_CONTENT else header.size if extended.size is None else extended.size
        name = extended.name or header.name
        problem = _KINDS.get(header.type, "")
        if extended.sparse:
            problem = _KINDS[tarfile.GNUTYPE_SPARSE]
        folder = header.type == tarfile.DIRTYPE
        extended = _Extended()
        begin = tape.place
        yield Member(
            name, size, _content(tape, size), folder, problem and f"{problem}; only regular files are read"
        )
        tape.skip(begin + _padded(size) - tape.place)
    if tape.left and tape.data[tape.at :].strip(b"\0") and tape.damage is None:
        detail = f"the archive ends at byte {tape.place + tape.left}, inside a member's header"
        yield Rejected(reading.next(), "ingest.truncated", detail, float(tape.place))
        return True
    return zeros >= 2


def parse_header(block: bytes) -> tarfile.TarInfo | None:
    """The header that a block is, by its checksum; None if it is none."""
    if not _CHECKSUM.match(block, _CHECKSUM_AT, _CHECKSUM_AT + 8):
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return None
    return header if header.size >= 0 else None


def _padded(size: int) -> int:
    return size + -size % BLOCK


def _content(tape: Window, size: int) -> Iterator[bytes]:
    left = size
    while left:
        if not tape.need(1):
            damage = tape.damage
            if damage is None:
                raise Damaged("ingest.truncated", "the archive ends inside this member", size - left)
            raise Damaged(damage.rule, f"the archive's {damage.detail}", size - left)
        step = min(left, tape.left)
        left -= step
        tape.at += step
        yield tape.data[tape.at - step : tape.at]


def _extend(extended: _Extended, kind: str, data: bytes) -> _Extended:
    """`extended` with what one more extended header says."""
    if kind == "name":
        return extended._replace(name=_text(data.partition(b"\0")[0]))
    if kind != "pax":
        return extended
    at = 0
    while found := _PAX.match(data, at):
        end = at + int(found[1])
        if end <= found.end() or end > len(data):
            break
        value, at = data[found.end() : end - 1], end
        if found[2] in (b"path", b"GNU.sparse.name"):
            extended = extended._replace(name=_text(value))
        elif found[2] == b"size" and value.isdigit() and len(value) < 20:
            extended = extended._replace(size=int(value))
        elif found[2].startswith(b"GNU.sparse."):
            extended = extended._replace(sparse=True)
    return extended


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _find_header(tape: Window) -> int:
    """Go to the next header: at any byte where it has a magic, at a multiple of `BLOCK` bytes from here where it has none.

    Returns the bytes passed over; all that are left if there is none.
    """
    passed = 0
    while tape.need(BLOCK):
        tape.need(SEARCHED_BYTES)
        found = _header_in(tape.data, tape.at)
        step = (tape.left - BLOCK) // BLOCK * BLOCK + BLOCK if found is None else found - tape.at
        if found is None and not tape.over:
            step -= BLOCK  # a header may begin in the last one
        tape.at += step
        passed += step
        if found is not None:
            return passed
    return passed + tape.skip(tape.left)


def _header_in(data: bytes, start: int) -> int | None:
    """Where the first header at or behind `start` begins that lies in `data` as a whole."""
    last = len(data) - BLOCK
    aligned = next((at for at in range(start, last + 1, BLOCK) if parse_header(data[at : at + BLOCK])), None)
    end = last if aligned is None else aligned
    magic = data.find(b"ustar", start + _MAGIC_AT)
    while 0 <= magic - _MAGIC_AT < end:
        at = magic - _MAGIC_AT
        if parse_header(data[at : at + BLOCK]):
            return at
        magic = data.find(b"ustar", magic + 1)
    return aligned
