"""Files that are one document: HTML, of which the main text is taken (Resiliparse or trafilatura), plain text and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import orjson
from resiliparse.parse.html import HTMLTree

from corpusmill.common.errors import UserError
from corpusmill.pipeline.ingest.decoding import MAX_REPLACED, Decoded, Undecodable, decode
from corpusmill.pipeline.ingest.readers.html_limits import TooComplex, check_complexity
from corpusmill.pipeline.ingest.readers.page_fields import PageFields, page_fields
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.streams import read_up_to

Extractor = Literal["main_text", "resiliparse", "trafilatura", "all_text"]
_META = re.compile(rb"<meta[^<>]{0,512}?charset\s{0,8}=\s{0,8}[\"']?\s{0,8}([A-Za-z0-9_:.-]{2,40})", re.I)
_SPACES = re.compile(r"[ \t]+\n")


class Extracted(NamedTuple):
    """A page's text, and what it says of itself; `decoded` is the page."""

    text: str
    fields: PageFields
    decoded: Decoded


def require(extractor: Extractor) -> None:
    """Raise `UserError` if the extractor's library is not installed."""
    if extractor == "trafilatura":
        try:
            import trafilatura  # noqa: F401
        except ImportError:
            raise UserError(
                "ingest.html_extractor: trafilatura is not installed: pip install 'corpusmill[html]',"
                " or choose main_text (the default), resiliparse or all_text"
            ) from None


def extract(
    data: bytes, charset: str | None, extractor: Extractor, max_replaced: float = MAX_REPLACED
) -> Extracted:
    """The text of a page. `charset` is what the HTTP header or the user declares.

    Raises `Undecodable`, and `TooComplex` for pages built to exhaust a parser.
    """
    decoded = decode_html(data, charset, max_replaced)
    check_complexity(decoded.text)
    tree = HTMLTree.parse(decoded.text)
    return Extracted(text_of_tree(tree, decoded.text, extractor), page_fields(tree), decoded)


def extract_text(page: str, extractor: Extractor) -> str:
    """The text of a decoded page."""
    return text_of_tree(HTMLTree.parse(page), page, extractor)


def text_of_tree(tree: HTMLTree, page: str, extractor: Extractor) -> str:
    """The text of a parsed page; `page` is what was parsed."""
    if extractor == "main_text":
        from corpusmill.pipeline.ingest.readers.main_text.extract import TooManyBlocks, main_text

        try:
            return main_text(tree)
        except TooManyBlocks as error:
            raise TooComplex(str(error)) from None
    if extractor == "trafilatura":
        require(extractor)
        import trafilatura

        text = trafilatura.extract(page, include_comments=False, include_tables=True) or ""
    else:
        from resiliparse.extract.html2text import extract_plain_text

        text = extract_plain_text(tree, main_content=extractor == "resiliparse", alt_texts=False)
    return _SPACES.sub("\n", text).strip()


def decode_html(data: bytes, charset: str | None, max_replaced: float = MAX_REPLACED) -> Decoded:
    """A page's bytes as text: BOM, then the HTTP header, then `<meta charset>`, then detection. Raises `Undecodable`."""
    meta = _META.search(data, 0, 8_192)
    declared = charset or (meta[1].decode("ascii") if meta else None)
    if charset and meta and not _decodes(data, charset):
        declared = meta[1].decode("ascii")
    return decode(data, declared, max_replaced)


def _decodes(data: bytes, charset: str) -> bool:
    try:
        data.decode(charset)
    except (UnicodeError, LookupError):
        return False
    return True


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    data = read_whole(reading)
    if isinstance(data, bytes):
        yield page(data, reading.source.encoding, reading.next(), reading)
    else:
        yield data


def page(
    data: bytes,
    charset: str | None,
    record: str,
    reading: Reading,
    url: str | None = None,
    date: str | None = None,
    **about: str,
) -> Document | Rejected:
    """A page's bytes as a document of its main text; `about` and what the page says of itself are its metadata."""
    try:
        extracted = extract(data, charset, reading.params.html_extractor, reading.params.max_replaced)
    except Undecodable as error:
        return Rejected(record, "ingest.undecodable", error.reason, float(error.position), url=url)
    except TooComplex as error:
        return Rejected(record, "ingest.html_too_complex", str(error), url=url)
    reading.repaired(extracted.decoded)
    about |= extracted.fields.metadata()
    date = date or extracted.fields.published
    metadata = orjson.dumps(about, option=orjson.OPT_SORT_KEYS).decode() if about else None
    return Document(record, extracted.text, None, url, date, metadata)


def read_text(reading: Reading) -> Iterator[Event]:
    """The reader of plain text and Markdown: one file, one document."""
    data = read_whole(reading)
    if isinstance(data, bytes):
        yield plain_text(data, reading.source.encoding, reading.next(), reading)
    else:
        yield data


def plain_text(
    data: bytes,
    charset: str | None,
    record: str,
    reading: Reading,
    url: str | None = None,
    date: str | None = None,
) -> Document | Rejected:
    """Bytes that are text, as a document."""
    try:
        text = reading.decode(data, charset)
    except Undecodable as error:
        return Rejected(record, "ingest.undecodable", error.reason, float(error.position), url=url)
    return Document(record, text, None, url, date)


def read_whole(reading: Reading) -> bytes | Rejected:
    """The content of a file that is one record, if it is no longer than a record may be."""
    limit = reading.max_bytes
    data = read_up_to(reading.stream(), limit)
    if len(data) <= limit:
        return data
    detail = f"a file of more than {limit} bytes of text, the longest allowed"
    return reading.too_large(reading.next(), detail, reading.file.size)
