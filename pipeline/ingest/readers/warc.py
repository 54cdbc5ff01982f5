"""Web archives: the pages of a WARC, without error pages and other kinds of content (removed, by rule), and the texts of a WET.

Parsing by fastwarc (https://resiliparse.chatnoir.eu), which ends silently where a file is cut short: each record's bytes are
compared with its Content-Length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.ingest.readers.html import page, plain_text
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged, RawFile, Stream, read_up_to
from corpusmill.schemas.tables import REMOVED

HTTP_HEADERS = 64 << 10  # allowed beyond the payload's limit
_LZ4 = b"\x04\x22\x4d\x18"


class ArchiveRecord(NamedTuple):
    """One record, its content in memory: `record` is fastwarc's, `name` what follows `#` in the locator."""

    name: str
    record: Any
    url: str | None
    date: str | None
    content: bytes


def records(reading: Reading, kind: str) -> Iterator[ArchiveRecord | Rejected]:
    """The records of type `kind` (`response`, `conversion`); others are counted as `skipped/<type>`.

    Names are WARC record ids; a second record with the same id has its number appended. Raises `Damaged`.
    """
    from fastwarc.warc import ArchiveIterator

    source = _source(reading)
    seen: set[str] = set()
    limit = reading.max_bytes + HTTP_HEADERS
    walk = _Guarded(source, lambda: ArchiveIterator(source, parse_http=False))
    for record in walk:
        reading.recognised = True
        type_ = str(record.record_type).rpartition(".")[2]
        identity = record.record_id
        url = record.headers.get("WARC-Target-URI")
        expected = max(record.content_length, 0)
        if not (record.headers.get("Content-Length") or "").strip().isdigit():
            detail = "a record's header is cut short, or has no Content-Length"
            raise source.damage or Damaged("ingest.truncated", detail, reading.consumed)
        if type_ != kind:
            reading.counters[f"skipped/{type_}"] += 1
            got = walk.call(record.reader.consume)
        elif expected > limit:
            name = _name(identity, seen, reading)
            detail = f"record of {expected} bytes; allowed are {reading.max_bytes}"
            yield reading.too_large(name, detail, expected, url=_clean(url))
            got = walk.call(record.reader.consume)
        else:
            content = walk.call(record.reader.read) or b""
            got = len(content)
            if got >= expected:
                name, date = _name(identity, seen, reading), _clean(record.headers.get("WARC-Date"))
                yield ArchiveRecord(name, record, _clean(url), date, content)
        if (got or 0) < expected:
            position = reading.consumed
            detail = f"{type_} record cut short: {got or 0} of {expected} bytes"
            raise source.damage or Damaged("ingest.truncated", detail, position)
    if source.damage:
        raise source.damage
    if walk.error:
        rule = "ingest.damaged" if reading.recognised else "ingest.not_warc"
        raise Damaged(rule, f"no WARC record where one should begin ({walk.error})", reading.consumed)


def _clean(value: str | None) -> str | None:
    value = (value or "").strip().strip("<>")
    return value or None


def _name(identity: str | None, seen: set[str], reading: Reading) -> str:
    number = reading.next()
    if not identity:
        return number
    name = identity.strip().strip("<>").removeprefix("urn:uuid:") or number
    name = name.replace("#", "%23")
    if name in seen or name.isdigit():  # a bare number stands for a record without an id
        name = f"{name}~{number}"
    while name in seen:
        name += "~"
    seen.add(name)
    return name


def _source(reading: Reading) -> _Source:
    stream = reading.stream()
    if stream.peek(4) == _LZ4:
        return _Source(reading.raw())  # fastwarc reads LZ4 frames itself
    return _Source(stream)


class _Source:
    """The file object given to fastwarc: ends where the bytes are damaged, and remembers why.

    Our exceptions must not pass through its native code, and it needs a `tell` method.
    """

    def __init__(self, stream: Stream | RawFile) -> None:
        self.stream = stream
        self.position = 0
        self.damage: Damaged | None = None
        self.failure: WorkError | None = None

    def read(self, size: int = -1) -> bytes:
        if self.damage or self.failure:
            return b""
        try:
            data = self.stream.read(size)
        except Damaged as damage:
            self.damage = damage
            return b""
        except WorkError as failure:
            self.failure = failure
            return b""
        self.position += len(data)
        return data

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = 0) -> int:
        raise OSError("a stream is read from front to back")

    def close(self) -> None:
        """The reading closes its file."""


class _Guarded:
    """Iterates over an archive; whatever the native parser raises (its panics too) ends the iteration."""

    def __init__(self, source: _Source, start: Any) -> None:
        self.source, self._start = source, start
        self.error: str | None = None

    def __iter__(self) -> Iterator[Any]:
        iterator = self.call(self._start)
        while iterator is not None and (record := self.call(lambda: next(iterator, None))) is not None:
            yield record

    def call(self, function: Any) -> Any:
        """The function's result, or None with `error` set. A failing store raises `WorkError`."""
        result = None
        try:
            result = function()
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # pyo3's PanicException is no Exception
            known = isinstance(error, OSError)
            self.error = str(error).splitlines()[0][:80] if known else type(error).__name__
        if self.source.failure:
            raise self.source.failure
        return result


_HTML = ("text/html", "application/xhtml+xml")
_TEXT = ("text/plain", "text/markdown")


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    for found in records(reading, "response"):
        yield found if isinstance(found, Rejected) else response(found, reading)


def response(found: ArchiveRecord, reading: Reading) -> Document | Rejected:
    """The page of a record of type `response`, or why it has none."""
    name, url, limit = found.name, found.url, reading.max_bytes
    container = (found.record.headers.get("Content-Type") or "application/http").strip().lower()
    if not container.startswith("application/http"):  # such as text/dns
        detail = f"record of type {_shown(container)}"
        return Rejected(name, "ingest.content_type", detail, outcome=REMOVED, url=url)
    message = _parse(found, reading)
    if message is None:
        return Rejected(name, "ingest.malformed_http", "the HTTP message cannot be read", url=url)
    if message.status != 200:
        detail = f"HTTP status {message.status}" if message.status else "no HTTP status line"
        return Rejected(name, "ingest.http_status", detail, float(message.status), 200.0, REMOVED, url=url)
    if len(message.payload) > limit:
        detail = f"more than {limit} bytes once decoded, the longest allowed"
        return reading.too_large(name, detail, len(message.payload), url=url)
    if not message.payload.strip():
        return Rejected(name, "ingest.empty_text", "the answer has no body", 0.0, url=url)
    kind = message.kind or _mime(message.payload)
    if kind in _HTML:
        charset = message.charset or reading.source.encoding
        return page(message.payload, charset, name, reading, url, found.date)
    if kind in _TEXT:
        return plain_text(message.payload, message.charset, name, reading, url, found.date)
    return Rejected(name, "ingest.content_type", f"content type {_shown(kind)}", outcome=REMOVED, url=url)


class _Message(NamedTuple):
    """An HTTP response; `payload` may be one byte longer than allowed, never more."""

    status: int
    kind: str
    charset: str | None
    payload: bytes


def _parse(found: ArchiveRecord, reading: Reading) -> _Message | None:
    """The HTTP message of a record, its encodings undone. Crawlers that store a page decoded but leave
    `Content-Encoding` in its header are common: then that header is ignored (counted)."""
    from fastwarc.warc import WarcRecord

    for undo in ("all", "transfer", "none"):
        record = WarcRecord()  # of its own: the content is in memory, and is parsed up to three times
        record.init_headers(found.record.record_type)
        record.is_http = True
        record.set_bytes_content(found.content)
        try:
            # Quirks: header lines that end in a bare newline, as ClueWeb09 has them.
            record.parse_http(auto_decode=undo, max_header_len=HTTP_HEADERS, quirks_mode=True)
            status = record.http_headers.status_code or 0
            kind = (record.http_content_type or "").strip().lower()
            # A content encoding may expand without end.
            payload = read_up_to(record.reader, reading.max_bytes) if status == 200 else b""
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException:  # pyo3's PanicException is no Exception
            continue
        if undo != "all":
            reading.counters["http_encoding_ignored"] += 1
        return _Message(status, kind, record.http_charset, payload)
    return None


def _mime(payload: bytes) -> str:
    """The content type of a payload that came without one."""
    from resiliparse.parse.encoding import detect_mime

    return str(detect_mime(payload[:4096]) or "")


def _shown(kind: str) -> str:
    plain = kind.encode("ascii", "replace").decode()
    return f"'{plain[:60]}'" if plain else "unknown"


def read_wet(reading: Reading) -> Iterator[Event]:
    """The reader of WET: text that someone else extracted from a WARC, one conversion record a page (Common Crawl)."""
    for found in records(reading, "conversion"):
        if isinstance(found, Rejected):
            yield found
        elif (size := len(found.content)) > reading.max_bytes:
            detail = f"record of {size} bytes; the longest allowed is {reading.max_bytes}"
            yield reading.too_large(found.name, detail, size, url=found.url)
        else:
            yield plain_text(found.content, None, found.name, reading, found.url, found.date)
