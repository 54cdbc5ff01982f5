"""The members of a zip file: by its central directory, and those that it does not list by their own headers."""

from __future__ import annotations

import stat
import struct
from array import array
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.local_files import shown
from corpusmill.pipeline.ingest.raw_file import READ_BYTES, RawFile
from corpusmill.pipeline.ingest.readers.member import Member
from corpusmill.pipeline.ingest.readers.zip_content import METHODS, STORED, content
from corpusmill.pipeline.ingest.readers.zip_directory import (
    LOCAL_SIGN,
    Directory,
    Entry,
    directory,
    entries,
    own_header,
    read_at,
)
from corpusmill.pipeline.ingest.records import Reading, Rejected
from corpusmill.pipeline.ingest.spool import Spool
from corpusmill.pipeline.ingest.streams import codec_of

_ENCRYPTED = 0x1 | 0x40 | 0x2000
_LENGTHS_FOLLOW = 0x8  # in a record behind the content
_KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO (named pipe)", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device", stat.S_IFBLK: "a block device",
}  # fmt: skip
_LENGTHS_SIGN = b"PK\x07\x08"
_SIGNS = (LOCAL_SIGN, b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x08", _LENGTHS_SIGN)
_NAME_BYTES = 4096
MAX_MEMBERS = 1 << 22  # of one directory: their places are held in memory


Places = npt.NDArray[np.uint64]


def members(reading: Reading) -> Iterator[Member | Rejected]:
    """Every member, in the directory's order. Yields `Rejected` for a directory that is damaged or lost."""
    raw = reading.raw()
    if codec_of(raw.read(16)) is None:
        yield from _members(raw, reading)
        return
    with Spool(reading.stream().blocks()) as whole:  # a zip file that is compressed once more
        yield from _members(RawFile(Folder(reading.file.url), content=whole.open), reading)


class _Layout(NamedTuple):
    """Where members begin and end, and whether each shares bytes with another or the directory; in the directory's order."""

    begins: Places
    ends: Places
    shared: npt.NDArray[np.bool_]


def _members(raw: RawFile, reading: Reading) -> Iterator[Member | Rejected]:
    size = raw.seek(0, 2)
    place = directory(raw, size)
    if place is None:
        nowhere = np.zeros(0, np.uint64)
        found = _unlisted(raw, 0, size, nowhere, nowhere)
        first = next(found, None)
        rule = "ingest.not_zip" if first is None else "ingest.damaged"
        detail = f"no central directory in {size} bytes"
        if first is not None:
            detail += "; members are read as their own headers have them"
        yield Rejected(reading.next(), rule, detail, float(size))
        if first is not None:
            yield first
            yield from found
        return
    reading.recognised = True
    passed: list[tuple[int, int]] = []
    layout = _layout(raw, place, passed)
    right = np.zeros(len(layout.begins), np.bool_)
    listed = entries(raw, place)
    for number, entry in enumerate(islice(listed, len(right))):
        own = own_header(raw, entry.place, place.end)
        if own is not None and _agree(raw, entry, own, place.end):
            right[number] = True
            yield _listed(raw, entry, own, bool(layout.shared[number]))
        else:
            what = "no member's header is" if own is None else "the member's own header differs"
            detail = f"the directory has '{shown(entry.text)[0][:200]}' at byte {entry.place}, where {what}"
            yield Rejected(reading.next(), "ingest.damaged", detail, float(entry.place))
    if len(right) == MAX_MEMBERS and (left := sum(1 for _ in listed)):
        detail = f"{left} members beyond the first {MAX_MEMBERS} are not read"
        yield Rejected(
            reading.next(), "ingest.too_many_members", detail, float(MAX_MEMBERS + left), float(MAX_MEMBERS)
        )
        return
    if passed:
        damaged = sum(size for _, size in passed)
        detail = f"{damaged} bytes of the central directory are damaged"
        yield Rejected(reading.next(), "ingest.damaged", detail, float(damaged))
    if passed or not right.all():
        order = np.argsort(layout.begins[right], kind="stable")
        known = layout.begins[right][order], layout.ends[right][order]
        yield from _unlisted(raw, 0, size, *known)


def _agree(raw: RawFile, entry: Entry, own: Entry, end: int) -> bool:
    """Whether a member's two headers are of one member. Its own may leave the lengths to a record behind the content."""
    if (own.name, own.method, own.flags & _ENCRYPTED) != (entry.name, entry.method, entry.flags & _ENCRYPTED):
        return False
    if not own.flags & _LENGTHS_FOLLOW:
        lengths = own.crc, own.stored, own.size
        return not any(lengths) or lengths == (entry.crc, entry.stored, entry.size)
    behind = own.content + entry.stored
    data = read_at(raw, behind, 24) if behind < end else b""
    if data[:4] in _SIGNS[:-1]:
        return bool(entry.flags & _LENGTHS_FOLLOW)  # some writers leave the record out
    widths = ("<L2Q",) if max(entry.stored, entry.size) > 0xFFFFFFFF else ("<3L", "<L2Q")
    records = [struct.pack(width, entry.crc, entry.stored, entry.size) for width in widths]
    return data.removeprefix(_LENGTHS_SIGN).startswith(tuple(records))


def _layout(raw: RawFile, place: Directory, passed: list[tuple[int, int]]) -> _Layout:
    """16 bytes of memory a member, and as much again while they are compared."""
    begins, ends = array("Q"), array("Q")
    for entry in islice(entries(raw, place, passed), MAX_MEMBERS):
        begins.append(entry.place)
        ends.append(entry.place + 30 + len(entry.name) + entry.stored)
    first, last = np.frombuffer(begins, np.uint64), np.frombuffer(ends, np.uint64)
    if not len(first):
        return _Layout(first, last, np.zeros(0, np.bool_))
    limit = place.begin
    for begin, size in passed:
        limit += size if begin == limit else 0  # where the end record has too early a beginning
    shared = _sharing(first, last, limit)
    if shared.any():  # an entry that is wrong must not cost the others
        wrong = np.zeros(len(first), np.bool_)
        for number, entry in enumerate(islice(entries(raw, place), len(first))):
            own = own_header(raw, entry.place, place.end)
            wrong[number] = own is None or not _agree(raw, entry, own, place.end)
        shared[wrong] = False
        shared[~wrong] = _sharing(first[~wrong], last[~wrong], limit)
    return _Layout(first, last, shared)


def _sharing(first: Places, last: Places, end: int) -> npt.NDArray[np.bool_]:
    """Whether the bytes of each member are another's, too, or lie behind `end`. Of entries for one place only the first is not."""
    found = np.ones(len(first), np.bool_)
    _, order = np.unique(first, return_index=True)  # sorted by place
    begins, ends = first[order], last[order]
    shared = ends > end
    shared[1:] |= begins[1:] < np.maximum.accumulate(ends)[:-1]
    shared[:-1] |= ends[:-1] > begins[1:]
    found[order] = shared
    return found


def _listed(raw: RawFile, entry: Entry, own: Entry, shared: bool) -> Member:
    """A member that the directory and its own header have."""
    problem = _problem(entry)
    if shared:
        problem = problem or "its bytes are another member's, too, or lie behind the members"
    blocks = content(raw, entry._replace(content=own.content))
    return Member(entry.text, entry.size, blocks, _is_folder(entry), problem)


def _problem(entry: Entry) -> str:
    kind = _KINDS.get(stat.S_IFMT(entry.mode))
    if kind:
        return f"{kind}; only regular files are read"
    if entry.flags & _ENCRYPTED:
        return "it is encrypted"
    if entry.method != STORED and entry.method not in METHODS:
        return f"it is compressed with method {entry.method}; read are 0, {', '.join(map(str, METHODS))}"
    return ""


def _is_folder(entry: Entry) -> bool:
    return entry.name.endswith(b"/") or (entry.name.endswith(b"\\") and not entry.size)


def _unlisted(raw: RawFile, begin: int, end: int, begins: Places, ends: Places) -> Iterator[Member]:
    """Members between two bytes of the file by their own headers, apart from those known from `begins` (sorted) to `ends`."""
    at = begin
    while at < end:
        block = read_at(raw, at, min(READ_BYTES, end - at))
        found = block.find(LOCAL_SIGN)
        if found < 0:
            at += max(len(block) - len(LOCAL_SIGN) + 1, 1)
            continue
        at += found
        own = own_header(raw, at, end)
        if own is None or not _likely(own):
            at += len(LOCAL_SIGN)
            continue
        number = int(np.searchsorted(begins, np.uint64(at)))
        if number < len(begins) and int(begins[number]) == at:
            # Where bytes of it are missing others begin before its end.
            behind = own.content + int(ends[number]) - at - 30 - len(own.name)
            at = behind if _ends(raw, own, behind, end) else own.content
            continue
        behind = own.content + own.stored
        known = not own.flags & _LENGTHS_FOLLOW or own.stored > 0
        yield _by_itself(raw, own, end, known)
        at = behind if known and _ends(raw, own, behind, end) else own.content


def _ends(raw: RawFile, own: Entry, behind: int, end: int) -> bool:
    """Whether a member's content ends at the byte `behind`: a header or record of the format follows, or the file's end."""
    if behind >= end:
        return behind == end
    data = read_at(raw, behind, 24)
    # The record of the lengths may have no signature.
    places = (0, 12, 20) if own.flags & _LENGTHS_FOLLOW else (0,)
    return any(data[at : at + 4] in _SIGNS for at in places)


def _by_itself(raw: RawFile, own: Entry, end: int, known: bool) -> Member:
    problem = _problem(own)
    if not known and own.method == STORED:
        problem = problem or "its length stands in the central directory alone, which is lost"
    blocks = content(raw, own) if known else content(raw, own, end)
    size = own.size if known else max(end - own.content, 0)
    return Member(own.text, size, blocks, _is_folder(own), problem)


def _likely(own: Entry) -> bool:
    """Whether a header found by its signature is one."""
    return 0 < len(own.name) <= _NAME_BYTES and b"\0" not in own.name
