"""MediaWiki XML exports, streamed by expat. A file cut short gives every page before the cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.parsers import expat

import orjson

from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged
from corpusmill.pipeline.ingest.wikitext import strip
from corpusmill.schemas.tables import REMOVED

ARTICLES = "0"  # the namespace of articles
_LEAVES = frozenset(("title", "ns", "id", "timestamp", "text", "base", "namespace", "model"))
_MARKUP_NAMESPACES = ("6", "14", "-2")  # files, categories, media: their links are no prose


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    stream = reading.stream()
    export = _Export(reading.max_bytes)
    while True:
        try:
            data = stream.read()
        except Damaged:
            yield from _events(export, reading)
            raise
        try:
            export.feed(data)
        except expat.ExpatError as error:
            yield from _events(export, reading)
            if not export.is_mediawiki:
                raise Damaged("ingest.not_mediawiki", "the XML has no <mediawiki> root", 0) from None
            rule, detail = "ingest.truncated", f"the XML ends in line {error.lineno}, inside an element"
            if data:
                rule, reason = "ingest.malformed_xml", expat.ErrorString(error.code)
                detail = f"{reason} in line {error.lineno} of the XML"
            raise Damaged(rule, detail, reading.consumed) from None
        yield from _events(export, reading)
        if not data:
            return


def _events(export: _Export, reading: Reading) -> Iterator[Event]:
    reading.recognised = reading.recognised or export.is_mediawiki
    pages, export.pages = export.pages, []
    for page in pages:
        yield _event(page, export, reading)


def _event(page: dict[str, Any], export: _Export, reading: Reading) -> Document | Rejected:
    record, title = reading.next(), page.get("title", "")
    about: dict[str, Any] = {"source_id": page.get("id"), "url": export.url(title)}
    if page.get("size", 0) > reading.max_bytes:
        detail = f"page of {page['size']} bytes; the longest allowed is {reading.max_bytes}"
        return reading.too_large(record, detail, page["size"], **about)
    wikitext = "".join(page.get("text", ()))
    if page.get("redirect") or wikitext[:20].lstrip().lower().startswith("#redirect"):
        return Rejected(record, "ingest.redirect", "a redirect to another page", outcome=REMOVED, **about)
    namespace = page.get("ns", ARTICLES)
    if namespace != ARTICLES:
        number = float(namespace) if namespace.lstrip("-").isdigit() and len(namespace) < 9 else None
        detail = "not in the article namespace"
        return Rejected(record, "ingest.namespace", detail, number, 0.0, REMOVED, **about)
    if page.get("model", "wikitext") != "wikitext":
        detail = "the page's content model is not wikitext"
        return Rejected(record, "ingest.content_type", detail, outcome=REMOVED, **about)
    metadata, text = orjson.dumps({"title": title}).decode(), strip(wikitext, export.dropped)
    return Document(record, text, date=page.get("timestamp"), metadata=metadata, **about)


class _Export:
    """Gathers pages. Of many revisions the last one counts; text longer than `limit` is not held."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pages: list[dict[str, Any]] = []
        self.is_mediawiki = False
        self.base = ""
        self.dropped: frozenset[str] = frozenset()
        self._page: dict[str, Any] | None = None
        self._path: list[str] = []
        self._leaf: str | None = None
        self._text: list[str] = []
        self._size = 0
        self._namespace_key = ""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity
        self._parser = parser

    def feed(self, data: bytes) -> None:
        """Parse on; b"" ends the file. Raises `ExpatError`."""
        self._parser.Parse(data, not data)

    def url(self, title: str) -> str | None:
        """Where the page is on its wiki."""
        if not self.base or not title:
            return None
        return self.base.rpartition("/")[0] + "/" + quote(title.replace(" ", "_"), safe="/:(),'!*@;~$&=-._")

    def _entity(self, *_: object) -> None:
        """Exports declare no entities; a file that does is one that should not be expanded."""
        raise Damaged("ingest.malformed_xml", "the XML declares entities", self._parser.CurrentByteIndex)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self._path:
            if name != "mediawiki":
                raise Damaged("ingest.not_mediawiki", "the XML has no <mediawiki> root", 0)
            self.is_mediawiki = True
        if len(self._path) > 64:
            raise Damaged("ingest.malformed_xml", "elements nest too deep", self._parser.CurrentByteIndex)
        self._path.append(name)
        if name == "page":
            self._page = {}
        elif name == "redirect" and self._page is not None:
            self._page["redirect"] = True
        elif name in _LEAVES:
            self._leaf, self._text, self._size = name, [], 0
            self._namespace_key = attributes.get("key", "")

    def _characters(self, data: str) -> None:
        if self._leaf is None:
            return
        self._size += len(data)
        if self._size <= self.limit:
            self._text.append(data)
        else:
            self._text.clear()

    def _end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        parent = self._path[-2] if len(self._path) > 1 else ""
        self._path.pop()
        if name == self._leaf:
            self._leaf = None
            self._take(name, parent)
        elif name == "page" and self._page is not None:
            self.pages.append(self._page)
            self._page = None

    def _take(self, name: str, parent: str) -> None:
        if self._page is None:
            if name == "base":
                self.base = "".join(self._text).strip()
            elif name == "namespace" and self._namespace_key in _MARKUP_NAMESPACES:
                self.dropped |= {"".join(self._text).strip().lower()} - {""}
            return
        if name == "text":
            self._page["text"], self._page["size"] = self._text, self._size
            self._text = []
        elif parent in ("page", "revision") and not (name == "id" and parent == "revision"):
            self._page[name] = "".join(self._text).strip()[:2000]
