"""Web archives (WARC and ARC): their pages, without error pages and other kinds of content (removed, by rule), and the texts of a
WET."""

from __future__ import annotations

from collections.abc import Iterator

from corpusmill.pipeline.ingest.readers.archive_records import ArchiveRecord, matches, records
from corpusmill.pipeline.ingest.readers.html import page, plain_text
from corpusmill.pipeline.ingest.readers.http_message import Malformed, Message, parse
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.schemas.tables import REMOVED

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = ("text/plain", "text/markdown")


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    for found in records(reading, "response"):
        yield found if isinstance(found, Rejected) else response(found, reading)


def response(found: ArchiveRecord, reading: Reading) -> Document | Rejected:
    """The page of a record of type `response`, or why it has none."""
    name, url, limit = found.name, found.url, reading.max_bytes
    container = (found.fields.get("content-type") or "application/http").lower()
    if not container.startswith("application/http"):  # such as text/dns
        detail = f"record of type {_shown(container)}"
        return Rejected(name, "ingest.content_type", detail, outcome=REMOVED, url=url)
    try:
        message = parse(found.content, limit)
    except Malformed as error:
        return Rejected(name, "ingest.malformed_http", str(error), url=url)
    if message.ignored:
        reading.counters["http_encoding_ignored"] += 1
    if message.status != 200:
        detail = f"HTTP status {message.status}" if message.status else "no HTTP status line"
        return Rejected(name, "ingest.http_status", detail, float(message.status), 200.0, REMOVED, url=url)
    if len(message.payload) > limit:
        detail = f"more than {limit} bytes once decoded, the longest allowed"
        return reading.too_large(name, detail, len(message.payload), url=url)
    if "warc-truncated" not in found.fields and _has_digest(message, found) is False:
        return Rejected(name, "ingest.digest", "the body does not have its WARC-Payload-Digest", url=url)
    if not message.payload.strip():
        return Rejected(name, "ingest.empty_text", "the answer has no body", 0.0, url=url)
    kind = message.kind or _mime(message.payload)
    if kind in _HTML:
        charset = message.charset or reading.source.encoding
        return page(message.payload, charset, name, reading, url, found.date)
    if kind in _TEXT:
        return plain_text(message.payload, message.charset, name, reading, url, found.date)
    return Rejected(name, "ingest.content_type", f"content type {_shown(kind)}", outcome=REMOVED, url=url)


def _has_digest(message: Message, found: ArchiveRecord) -> bool | None:
    """Whether the body has the record's payload digest; None without one.

    Crawlers take it of the body as stored, without its transfer encoding, without any, or (ClueWeb09) of the whole record.
    """
    digest = found.fields.get("warc-payload-digest")
    forms = (message.body, message.unchunked, message.payload, found.content)
    results = (matches(form, digest) for form in forms)
    return next((result for result in results if result is not False), False)


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
