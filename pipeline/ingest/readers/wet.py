"""WET: text that someone else extracted from a WARC, one conversion record a page (Common Crawl)."""

from __future__ import annotations

from collections.abc import Iterator

from corpusmill.pipeline.ingest.archive import records
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.text_cleaning import Undecodable, decode


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    for found in records(reading, "conversion"):
        if isinstance(found, Rejected):
            yield found
            continue
        if len(found.content) > reading.max_bytes:
            limit, size = reading.max_bytes, len(found.content)
            detail = f"record of {size} bytes; the longest allowed is {limit} (ingest.max_record_mb)"
            yield Rejected(
                found.name, "ingest.record_too_large", detail, float(size), float(limit), url=found.url
            )
            continue
        try:
            decoded = decode(found.content)
        except Undecodable as error:
            yield Rejected(
                found.name, "ingest.undecodable", error.reason, float(error.position), url=found.url
            )
            continue
        if decoded.repaired:
            reading.counters["encoding_repaired"] += 1
            reading.counters[f"encoding_repaired/{decoded.repaired}"] += 1
        yield Document(found.name, decoded.text, None, found.url, found.date)
