"""The headers of a zip file: its central directory, each member's own header, and their zip64 fields (APPNOTE.TXT, PKWARE)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from corpusmill.pipeline.ingest.raw_file import READ_BYTES, RawFile

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
LOCAL_SIGN, _ENTRY_SIGN, _END_SIGN = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_MAX_COMMENT = 0xFFFF
_UTF8 = 0x800
_LIMIT = 1 << 62  # no place or length of a real file
_UNIX = 3  # the system of origin whose file modes are there


class Entry(NamedTuple):
    """A member by one of its headers. `place` is where its own header begins, `content` where what follows this header does."""

    name: bytes
    flags: int
    method: int
    crc: int
    stored: int
    size: int
    place: int
    content: int = 0
    mode: int = 0

    @property
    def text(self) -> str:
        """The name: UTF-8, or in the code page of DOS that the format prescribes."""
        try:
            return self.name.decode("utf-8")
        except UnicodeDecodeError:
            return (
                self.name.decode("utf-8", "surrogateescape")
                if self.flags & _UTF8
                else self.name.decode("cp437")
            )


class Directory(NamedTuple):
    """Where the central directory begins and ends, and how many bytes precede the archive in its file."""

    begin: int
    end: int
    before: int


def directory(raw: RawFile, size: int) -> Directory | None:
    """The central directory of a file of `size` bytes, if its end record is there and leads to it and to a member."""
    start = max(0, size - _END.size - _MAX_COMMENT)
    tail = read_at(raw, start, size - start)
    found = tail.rfind(_END_SIGN)
    if found < 0 or found + _END.size > len(tail):
        return None
    _, _, _, _, _, length, begin, _ = _END.unpack_from(tail, found)
    end = start + found
    locator = read_at(raw, end - _LOCATOR64.size, _LOCATOR64.size) if end >= _LOCATOR64.size else b""
    if locator.startswith(b"PK\x06\x07") and len(locator) == _LOCATOR64.size:
        place = _LOCATOR64.unpack(locator)[2]
        # Bytes before the archive move its end record, too: it usually lies right before the locator.
        for at in (place, end - _LOCATOR64.size - _END64.size):
            record = read_at(raw, at, _END64.size) if 0 <= at < size else b""
            if record.startswith(b"PK\x06\x06") and len(record) == _END64.size:
                length, begin = _END64.unpack(record)[8:]
                end = at
                break
    if not length:
        return Directory(end, end, 0) if begin == end else None
    places = [first for first in dict.fromkeys((end - length, begin)) if 0 <= first < end]
    # Where bytes of the directory are missing its length leads into the members.
    signed = [first for first in places if read_at(raw, first, 4) == _ENTRY_SIGN]
    for first in [*signed, *(first for first in reversed(places) if first not in signed)]:
        for before in dict.fromkeys((first - begin, 0)):
            if before >= 0 and _leads_to_a_member(raw, Directory(first, end, before)):
                return Directory(first, end, before)
    return None


def _leads_to_a_member(raw: RawFile, place: Directory) -> bool:
    entry = next(entries(raw, place), None)
    return entry is not None and entry.place < place.end and read_at(raw, entry.place, 4) == LOCAL_SIGN


def entries(raw: RawFile, place: Directory, passed: list[tuple[int, int]] | None = None) -> Iterator[Entry]:
    """The directory's entries. What cannot be read is passed over to the next one; `passed` takes (place, bytes) of it."""
    data, at, read = b"", 0, place.begin
    while True:
        if len(data) - at < _ENTRY.size + 3 * 0xFFFF and read < place.end:
            more = read_at(raw, read, min(READ_BYTES, place.end - read))
            data, at, read = data[at:] + more, 0, read + len(more) if more else place.end
        if len(data) - at < _ENTRY.size or not data.startswith(_ENTRY_SIGN, at):
            following = data.find(_ENTRY_SIGN, at + 1)
            more_follow = read < place.end  # a signature may be cut by the end of what was read
            gap = (following if following >= 0 else len(data) - 3 * more_follow) - at
            signature = following < 0 and data.startswith(b"PK\x05\x05", at)
            if passed is not None and gap and not signature:
                passed.append((read - len(data) + at, gap))
            at += gap
            if following < 0 and not more_follow:
                return
            continue
        _, made_by, _, flags, method, _, _, crc, stored, size, names, extras, comments, _, _, about, begin = (
            _ENTRY.unpack_from(data, at)
        )
        extra = at + _ENTRY.size + names
        behind = extra + extras + comments
        if behind > len(data):
            if passed is not None:
                passed.append((read - len(data) + at, len(data) - at))
            return
        name = data[at + _ENTRY.size : extra]
        size, stored, begin = _wide(data[extra : extra + extras], [size, stored, begin])
        mode = about >> 16 if made_by >> 8 == _UNIX else 0
        yield Entry(name, flags, method, crc, stored, size, min(begin + place.before, _LIMIT), 0, mode)
        at = behind


def own_header(raw: RawFile, place: int, end: int) -> Entry | None:
    """The header that a member's content follows; None if there is none at that place, before `end`."""
    head = read_at(raw, place, _LOCAL.size) if place < end else b""
    if len(head) < _LOCAL.size or not head.startswith(LOCAL_SIGN):
        return None
    _, _, flags, method, _, _, crc, stored, size, names, extras = _LOCAL.unpack(head)
    rest = read_at(raw, place + _LOCAL.size, names + extras)
    if len(rest) < names + extras:
        return None
    size, stored = _wide(rest[names:], [size, stored])
    content = place + _LOCAL.size + names + extras
    return Entry(rest[:names], flags, method, crc, stored, size, place, content)


def _wide(extra: bytes, values: list[int]) -> list[int]:
    """`values`, those that do not fit into 32 bits from the zip64 field of the extra data."""
    if 0xFFFFFFFF not in values:
        return values
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        field = extra[at + 4 : at + 4 + length]
        at += 4 + length
        if kind == 1:
            wide = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
            return [min(next(wide, value), _LIMIT) if value == 0xFFFFFFFF else value for value in values]
    return values


def read_at(raw: RawFile, place: int, size: int) -> bytes:
    """`size` bytes from there; fewer at the file's end."""
    raw.seek(place)
    parts, have = [], 0
    while have < size and (data := raw.read(size - have)):
        parts.append(data)
        have += len(data)
    return b"".join(parts)
