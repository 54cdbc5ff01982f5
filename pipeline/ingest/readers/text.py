"""Plain text and Markdown: one file, one document."""

from __future__ import annotations

from collections.abc import Iterator

from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.text_cleaning import Undecodable, decode


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    data = read_whole(reading)
    if isinstance(data, Rejected):
        yield data
        return
    try:
        decoded = decode(data, reading.source.encoding)
    except Undecodable as error:
        yield Rejected(reading.next(), "ingest.undecodable", error.reason, float(error.position))
        return
    if decoded.repaired:
        reading.counters["encoding_repaired"] += 1
        reading.counters[f"encoding_repaired/{decoded.repaired}"] += 1
    yield Document(reading.next(), decoded.text)


def read_whole(reading: Reading) -> bytes | Rejected:
    """The content of a file that is one record, if it is no longer than a record may be."""
    limit = reading.max_bytes
    data = reading.stream().read_up_to(limit)
    if len(data) <= limit:
        return data
    detail = f"a file of more than {limit} bytes of text, the longest allowed (ingest.max_record_mb)"
    return Rejected(reading.next(), "ingest.record_too_large", detail, float(reading.file.size), float(limit))
