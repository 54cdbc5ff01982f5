"""The records of a web archive: WARC (ISO 28500) and ARC 1.0 and 1.1 (Internet Archive), one after the other, in bounded memory.

A record is taken when what follows it proves its length. Where that fails, where bytes between records are none, or where a
compressed member is damaged, reading goes on at the next record's first line; what was passed over is named with its place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from corpusmill.pipeline.ingest.records import Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged, Stream

HEADER_BYTES: Final = 64 << 10
BESIDE: Final = 64 << 10  # allowed for HTTP headers beyond the payload's limit
REPLAYS: Final = 16  # times a file is read again from its beginning, behind records whose length is a lie
TYPES: Final = frozenset(
    ["warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation"]
)
_BLANK = re.compile(rb"[\r\n]*")
_WARC = re.compile(rb"WARC/\d\.\d+[ \t]*\r?\n((?:[^\r\n][^\n]*\n)*)\r?\n")
# URL, IP address, date, MIME type, five more fields in ARC 1.1, length.
_ARC = re.compile(
    rb"([A-Za-z][\w+.-]{0,30}:[^\r\n]{0,2048}?) [0-9A-Fa-f.:-]{1,40} (\d{8,14}) ([^ \r\n]*)(?: [^ \r\n]+){0,5} (\d{1,12})\r?\n",
    re.A,
)
# The same to search for. Behind lost bytes it may stand within a line; lengths are bounded, so that no text makes the search slow.
_FIRST_LINE = re.compile(
    rb"WARC/\d\.\d{1,3}[ \t]{0,8}\r?\n[A-Za-z][A-Za-z0-9-]{0,40}:"
    rb"|(?:(?<![^\n])[A-Za-z][\w+.-]{0,30}:[^\r\n]{0,2048}?|(?:https?|ftp|dns):[^ \r\n]{0,2048}+)"
    rb" [0-9A-Fa-f.:-]{1,40} \d{8,14} [^ \r\n]{0,99}"
    rb"(?: [^ \r\n]{1,999}){0,5} \d{1,12}\r?\n",
    re.A,
)
_TYPE = re.compile(rb"^WARC-Type[ \t]*:", re.I | re.M)
_DIGEST = re.compile(r"(sha-?1|sha-?256|sha-?512|md5):\s*([A-Za-z0-9+/=_-]+)", re.I)


class ArchiveRecord(NamedTuple):
    """One record: `name` is what follows `#` in the locator, header fields have lower-case names."""

    name: str
    fields: dict[str, str]
    url: str | None
    date: str | None
    content: bytes


class _Head(NamedTuple):
    """The lines before a record's content; `length` is None where they give none."""

    bytes: int
    type: str
    fields: dict[str, str]
    length: int | None


class Window:
    """The decompressed bytes from a place on, as far as they were asked for."""

    def __init__(self, stream: Stream, place: int = 0) -> None:
        self.stream = stream
        self.data, self.at = b"", 0
        self._first = place  # where `data` begins in the decompressed file, as far as it can be read
        self.damage: Damaged | None = None
        self._ended = False

    @property
    def place(self) -> int:
        return self._first + self.at

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    @property
    def over(self) -> bool:
        """Whether nothing can follow: the file's end, or damage."""
        return self._ended or self.damage is not None

    def need(self, size: int) -> bool:
        """Whether `size` bytes can be had from here; as many as there are, are."""
        parts, have = [self.data[self.at :]], self.left
        if have >= size:
            return True
        while have < size and not self.over:
            try:
                block = self.stream.read()
            except Damaged as damage:
                self.damage = damage
                break
            self._ended = not block
            parts.append(block)
            have += len(block)
        self._first, self.at, self.data = self.place, 0, b"".join(parts)
        return have >= size

    def skip(self, size: int) -> int:
        """Pass over up to `size` bytes without holding them; how many there were."""
        passed = 0
        while passed < size and self.need(1):
            step = min(size - passed, self.left)
            self.at += step
            passed += step
        return passed

    def skip_blank(self) -> None:
        while self.need(1):
            self.at = self.behind_blank(self.at)
            if self.left:
                return

    def behind_blank(self, at: int) -> int:
        """The place in `data` of the first byte from `at` on that is no line end."""
        found = _BLANK.match(self.data, at)
        assert found is not None
        return found.end()

    def find_next(self, start: int) -> bool:
        """Go to the next line that begins a record, `start` bytes from here or later; to the end if there is none."""
        self.skip(start)
        while True:
            self.need(2 * HEADER_BYTES)
            # Every first line has a colon, which is found a hundred times faster than the line.
            colon = self.data.find(b":", self.at) >= 0
            if colon and (found := _FIRST_LINE.search(self.data, self.at)):
                self.at = found.start()
                return True
            if self.over:
                self.at = len(self.data)
                return False
            self.skip(self.left - HEADER_BYTES)

    def resume(self) -> tuple[int, int] | None:
        """After damage: go on where the stored file can be read again; the stored bytes left out, or None."""
        gap = self.stream.resume()
        if gap is None:
            return None
        self._first, self.data, self.at = self.place + self.left, b"", 0
        self.damage = None
        return gap


def records(reading: Reading, kind: str) -> Iterator[ArchiveRecord | Rejected]:
    """The records of type `kind` (`response`, `conversion`); other known types are counted as `skipped/<type>`.

    Names are WARC record ids, and numbers where a record has none; a second record with the same id has its number appended.
    Raises `Damaged` where the file cannot be read to its end.
    """
    return iter(_Walk(reading, kind))


class _Walk:
    def __init__(self, reading: Reading, kind: str) -> None:
        self.reading, self.kind = reading, kind
        self.window = Window(reading.stream())
        self.limit = reading.max_bytes + BESIDE
        self.names: set[str] = set()
        self.replays = 0

    def __iter__(self) -> Iterator[ArchiveRecord | Rejected]:
        while True:
            window = self.window  # `_replay` makes another
            window.skip_blank()
            if not window.need(1):
                if window.damage is None:
                    return
                yield from self._behind_damage(None, None)
                continue
            head = self._head()
            if head is None:
                yield from self._garbage()
                continue
            self.reading.recognised = True
            yield from self._record(head)

    def _head(self) -> _Head | None:
        window = self.window
        window.need(HEADER_BYTES)
        end = window.at + HEADER_BYTES
        if found := _WARC.match(window.data, window.at, end):
            if b"WARC/" in found[1] and len(_TYPE.findall(found[1])) > 1 and _FIRST_LINE.search(found[1]):
                return None  # cut short within its header: what follows is the next record's
            fields: dict[str, str] = {}
            for line in re.sub(rb"\r?\n[ \t]+", b" ", found[1]).split(b"\n"):
                name, colon, value = line.decode("utf-8", "replace").partition(":")
                if colon:
                    fields.setdefault(name.strip().lower(), value.strip())
            length = fields.get("content-length", "")
            known = length.isascii() and length.isdigit() and len(length) < 19
            return _Head(
                found.end() - found.start(),
                fields.get("warc-type", "").lower(),
                fields,
                int(length) if known else None,
            )
        if found := _ARC.match(window.data, window.at, end):
            url, date, mime, length = (part.decode("utf-8", "replace") for part in found.groups())
            fields = {"warc-target-uri": url, "warc-date": _iso(date), "arc-content-type": mime}
            type_ = (
                "response" if url.lower().startswith(("http:", "https:")) else url.partition(":")[0].lower()
            )
            return _Head(found.end() - found.start(), type_, fields, int(length))
        return None

    def _record(self, head: _Head) -> Iterator[ArchiveRecord | Rejected]:
        window, begin = self.window, self.window.place
        window.at += head.bytes
        if head.length is None:
            yield from self._wrong_length(head, begin, "a record without a valid Content-Length")
            return
        held = head.length <= self.limit
        if held:
            there = head.length if window.need(head.length) else window.left
        else:
            there = window.skip(head.length)
        if there < head.length or not self._ends(head.length if held else 0):
            if not held and not self._replay(begin + head.bytes):
                detail = f"{_named(head)} of {head.length} bytes is not followed by another"
                raise Damaged("ingest.damaged", detail, self.reading.consumed)
            yield from self._wrong_length(head, begin, f"Content-Length is {head.length}", there)
            return
        content = window.data[window.at : window.at + head.length] if held else b""
        window.at += len(content)
        if head.type != self.kind:
            if head.type in TYPES or "arc-content-type" in head.fields:
                self.reading.counters[f"skipped/{head.type}"] += 1
            else:
                yield self._rejected(
                    head, "ingest.record_type", f"{_named(head)}: no version of WARC defines its type"
                )
            return
        url, date = (_clean(head.fields.get(name)) for name in ("warc-target-uri", "warc-date"))
        if not held:
            detail = f"record of {head.length} bytes; allowed are {self.reading.max_bytes}"
            yield self.reading.too_large(self._name(head), detail, head.length, url=url)
        elif matches(content, head.fields.get("warc-block-digest")) is False:
            what = "the content does not have its WARC-Block-Digest"
            if _FIRST_LINE.search(content):  # its end is missing: the next record begins within
                window.at -= len(content)
                yield from self._wrong_length(head, begin, what, len(content))
            else:
                yield self._rejected(head, "ingest.digest", what)
        else:
            yield ArchiveRecord(self._name(head), head.fields, url, date, content)

    def _ends(self, size: int) -> bool:
        """Whether a record may end `size` bytes from here: blank lines, another record or the end of what is there follow."""
        window = self.window
        window.need(size + 4)
        if window.data.startswith((b"\r\n\r\n", b"\n\n"), window.at + size):
            return True
        window.need(size + HEADER_BYTES)
        place = window.behind_blank(window.at + size)
        return window.over if place == len(window.data) else _FIRST_LINE.match(window.data, place) is not None

    def _wrong_length(self, head: _Head, begin: int, what: str, there: int = 0) -> Iterator[Rejected]:
        """A record whose length is not what its header says: on to the next one, wherever that begins.

        The window is at the content. Of the length that the header gives, `there` bytes were found.
        """
        window = self.window
        found = window.find_next(0)
        short = f"{_named(head)} cut short: {there} of {head.length or 'unknown'} bytes"
        if not found and window.damage is not None:
            yield from self._behind_damage(head, short)
            return
        if not found and (head.length is None or there < head.length):
            yield self._rejected(head, "ingest.truncated", f"{short}; nothing follows it", float(there))
            return
        end = "the next record begins" if found else "the file ends"
        size = window.place - begin
        detail = (
            f"{what}, and {end} after {size - head.bytes}; {size} bytes from byte {begin} on are passed over"
        )
        yield self._rejected(head, "ingest.wrong_length", detail, float(size))

    def _garbage(self) -> Iterator[Rejected]:
        """Bytes where a record should begin."""
        window, begin = self.window, self.window.place
        found = window.find_next(1)
        size = window.place - begin
        if not self.reading.recognised and not found and window.damage is None:
            raise Damaged("ingest.not_warc", f"no record in {size} bytes", self.reading.consumed)
        detail = f"no record begins in {size} bytes from byte {begin} on; they are passed over"
        yield Rejected(self.reading.next(), "ingest.damaged", detail, float(size))

    def _behind_damage(self, head: _Head | None, what: str | None) -> Iterator[Rejected]:
        """Damage of the stored file: named, and reading goes on behind it; raises it where nothing can be read any more."""
        damage = self.window.damage
        assert damage is not None
        gap = self.window.resume()
        if gap is None:
            raise (
                damage if what is None else Damaged(damage.rule, f"{what}; {damage.detail}", damage.position)
            )
        begin, end = gap
        where = f"{damage.detail}; {end - begin} stored bytes from byte {begin} on are passed over"
        detail = where if what is None else f"{what}; {where}"
        if head is None:
            yield Rejected(self.reading.next(), damage.rule, detail, float(begin))
        else:
            yield self._rejected(head, damage.rule, detail, float(begin))

    def _replay(self, place: int) -> bool:
        """Read the file again up to a place that was passed over; False if that was done too often."""
        self.replays += 1
        if self.replays > REPLAYS:
            return False
        window = Window(self.reading.stream())
        while window.place < place:
            if not window.skip(place - window.place) and (window.damage is None or window.resume() is None):
                return False
        self.window = window
        return True

    def _rejected(self, head: _Head, rule: str, detail: str, value: float | None = None) -> Rejected:
        return Rejected(self._name(head), rule, detail, value, url=_clean(head.fields.get("warc-target-uri")))

    def _name(self, head: _Head) -> str:
        number = self.reading.next()
        identity = (head.fields.get("warc-record-id") or "").strip().strip("<>")
        if not identity:
            return number
        name = (identity.removeprefix("urn:uuid:") or number).replace("#", "%23")
        if name in self.names or name.isdigit():  # a bare number stands for a record without an id
            name = f"{name}~{number}"
        while name in self.names:
            name += "~"
        self.names.add(name)
        return name


def matches(content: bytes, digest: str | None) -> bool | None:
    """Whether bytes have a digest as WARC writes it (`sha1:` and base 32 or hexadecimal); None for one of no known form."""
    found = _DIGEST.fullmatch((digest or "").strip())
    if not found:
        return None
    actual = hashlib.new(found[1].lower().replace("-", ""), content, usedforsecurity=False).digest()
    given = _decoded(found[2], len(actual))
    return None if given is None else given == actual


def _decoded(text: str, size: int) -> bytes | None:
    """A digest of `size` bytes out of base 16, 32 or 64; None if it is in none of them."""
    bare = text.rstrip("=")
    padding = "=" * (-len(bare) % 8)
    forms: tuple[tuple[int, Callable[[], bytes]], ...] = (
        (2 * size, lambda: bytes.fromhex(bare)),
        (-(-size * 8 // 5), lambda: base64.b32decode(bare.upper() + padding)),
        (
            -(-size * 8 // 6),
            lambda: base64.b64decode(
                bare + padding[:2], altchars="-_" if "-" in bare or "_" in bare else "+/"
            ),
        ),
    )
    for length, decode in forms:
        if len(bare) == length:
            try:
                return decode()
            except (ValueError, binascii.Error):
                return None
    return None


def _iso(date: str) -> str:
    """`20080430204825` as WARC writes it."""
    padded = date.ljust(14, "0")
    return f"{padded[:4]}-{padded[4:6]}-{padded[6:8]}T{padded[8:10]}:{padded[10:12]}:{padded[12:14]}Z"


def _named(head: _Head) -> str:
    return f"{head.type.encode('ascii', 'replace').decode()[:60] or 'nameless'} record"


def _clean(value: str | None) -> str | None:
    value = (value or "").strip().strip("<>")
    return value or None
