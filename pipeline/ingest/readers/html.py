"""HTML files: one page, one document."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from corpusmill.pipeline.ingest.html import TooComplex, extract
from corpusmill.pipeline.ingest.readers.text import read_whole
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.text_cleaning import Undecodable


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    data = read_whole(reading)
    if isinstance(data, Rejected):
        yield data
        return
    yield page(data, reading.source.encoding, reading.next(), reading)


def page(
    data: bytes,
    charset: str | None,
    record: str,
    reading: Reading,
    url: str | None = None,
    date: str | None = None,
    **about: str,
) -> Document | Rejected:
    """A page's bytes as a document of its main text; `about` and the page's title are its metadata."""
    try:
        extracted = extract(data, charset, reading.params.html_extractor)
    except Undecodable as error:
        return Rejected(record, "ingest.undecodable", error.reason, float(error.position), url=url)
    except TooComplex as error:
        return Rejected(record, "ingest.html_too_complex", str(error), url=url)
    if extracted.repaired:
        reading.counters["encoding_repaired"] += 1
        reading.counters[f"encoding_repaired/{extracted.repaired}"] += 1
    if extracted.title:
        about["title"] = extracted.title[:1000]
    metadata = orjson.dumps(about, option=orjson.OPT_SORT_KEYS).decode() if about else None
    return Document(record, extracted.text, None, url, date, metadata)
