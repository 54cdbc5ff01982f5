"""WARC: the pages that servers answered with. Error pages and other kinds of content are removed, by rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from corpusmill.pipeline.ingest.archive import HTTP_HEADERS, ArchiveRecord, records
from corpusmill.pipeline.ingest.readers.html import page
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.text_cleaning import Undecodable, decode
from corpusmill.schemas.ledger import REMOVED

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
        return Rejected(
            name, "ingest.content_type", f"record of type {_shown(container)}", outcome=REMOVED, url=url
        )
    message = _parse(found, reading)
    if message is None:
        return Rejected(name, "ingest.malformed_http", "the HTTP message cannot be read", url=url)
    if message.status != 200:
        detail = f"HTTP status {message.status}" if message.status else "no HTTP status line"
        return Rejected(name, "ingest.http_status", detail, float(message.status), 200.0, REMOVED, url=url)
    if len(message.payload) > limit:
        detail = f"more than {limit} bytes once decoded, the longest allowed (ingest.max_record_mb)"
        return Rejected(
            name, "ingest.record_too_large", detail, float(len(message.payload)), float(limit), url=url
        )
    if not message.payload.strip():
        return Rejected(name, "ingest.empty_text", "the answer has no body", 0.0, url=url)
    kind = message.kind or _mime(message.payload)
    if kind in _HTML:
        charset = message.charset or reading.source.encoding
        return page(message.payload, charset, name, reading, url, found.date)
    if kind in _TEXT:
        return _plain(message.payload, message.charset, found, reading)
    return Rejected(name, "ingest.content_type", f"content type {_shown(kind)}", outcome=REMOVED, url=url)


class _Message(NamedTuple):
    """An HTTP response; `payload` may be one byte longer than allowed, never more."""

    status: int
    kind: str
    charset: str | None
    payload: bytes


def _parse(found: ArchiveRecord, reading: Reading) -> _Message | None:
    """The HTTP message of a record, its encodings undone. Crawlers that store a page decoded but leave
    `Content-Encoding` in its header are common: then the header is not believed (counted)."""
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
            payload = _read_up_to(record.reader, reading.max_bytes) if status == 200 else b""
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException:  # pyo3's PanicException is no Exception
            continue
        if undo != "all":
            reading.counters["http_encoding_ignored"] += 1
        return _Message(status, kind, record.http_charset, payload)
    return None


def _plain(
    payload: bytes, charset: str | None, found: ArchiveRecord, reading: Reading
) -> Document | Rejected:
    try:
        decoded = decode(payload, charset)
    except Undecodable as error:
        return Rejected(found.name, "ingest.undecodable", error.reason, float(error.position), url=found.url)
    if decoded.repaired:
        reading.counters["encoding_repaired"] += 1
        reading.counters[f"encoding_repaired/{decoded.repaired}"] += 1
    return Document(found.name, decoded.text, None, found.url, found.date)


def _read_up_to(reader: Any, limit: int) -> bytes:
    """The payload, or `limit` + 1 bytes of a longer one: content encodings may expand without end."""
    parts, have = [], 0
    while have <= limit and (data := reader.read(min(1 << 20, limit + 1 - have))):
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def _mime(payload: bytes) -> str:
    """The content type of a payload that came without one."""
    from resiliparse.parse.encoding import detect_mime

    return str(detect_mime(payload[:4096]) or "")


def _shown(kind: str) -> str:
    plain = kind.encode("ascii", "replace").decode()
    return f"'{plain[:60]}'" if plain else "unknown"
