"""EPUB 2 and 3: the files of a book's reading order as text, one document a book or a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
from resiliparse.parse.html import HTMLTree

from corpusmill.pipeline.ingest.decoding import Decoded, Undecodable
from corpusmill.pipeline.ingest.readers.html import decode_html, text_of_tree
from corpusmill.pipeline.ingest.readers.html_limits import TooComplex, check_complexity
from corpusmill.pipeline.ingest.readers.zip_parts import Archive, Encrypted, Missing, TooLarge, local, resolve
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged
from corpusmill.schemas.tables import REMOVED

WHOLE = "0"  # the record that is the book; the files of its reading order are records 1, 2, ...
CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
MAX_FILES = 20_000  # of a book's reading order
META_CHARS = 1_000
_TEXT = ("application/xhtml+xml", "text/html")
# Fonts may be obfuscated in a book that anyone can read.
_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_DC = "http://purl.org/dc/elements/1.1/ "
_WANTED = ("title", "creator", "language", "rights", "publisher", "identifier", "date")
_NO_PROSE = ("toc", "cover", "nav")  # references of an EPUB 2 guide, and names
_COVER = re.compile(r"(?:book[-_]?)?cover(?:[-_]?page)?|toc|nav", re.I)
# In XHTML an element may be closed where it is opened; to an HTML parser all that follows would be inside of it.
_CLOSED = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)((?:\s[^<>]*)?)/>")
_VOID = frozenset(re.findall(r"\w+", "area base br col embed hr img input link meta param source track wbr"))
_DECLARED = re.compile(
    rb"(?:\xef\xbb\xbf)?\s{0,99}<\?xml[^>]{0,200}?\sencoding=[\"']([A-Za-z0-9_.:-]{2,40})[\"']"
)
_PROLOGUE = re.compile(r"\s*<\?xml[^>]*\?>")


class _Item(NamedTuple):
    """An entry of the manifest."""

    path: str
    media: str
    properties: frozenset[str]


class _Chapter(NamedTuple):
    """A file of the reading order."""

    text: str
    title: str
    decoded: Decoded


class _Package:
    """What the package document (OPF) names."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.items: dict[str, _Item] = {}
        self.spine: list[str] = []
        self.apart: set[str] = set()  # paths of the cover and tables of contents
        self.about: dict[str, list[str]] = {}
        self._field: str | None = None
        self._text: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = local(tag)
        if tag.startswith(_DC) and name in _WANTED:
            self._field, self._text = name, []
        elif name == "item" and "href" in attributes:
            path = resolve(self.path, attributes["href"])
            properties = frozenset(attributes.get("properties", "").split())
            self.items[attributes.get("id", "")] = _Item(path, attributes.get("media-type", ""), properties)
        elif name == "itemref" and len(self.spine) <= MAX_FILES:
            self.spine.append(attributes.get("idref", ""))
        elif name == "reference" and attributes.get("type", "").lower() in _NO_PROSE:
            self.apart.add(resolve(self.path, attributes.get("href", "")))

    def end(self, tag: str) -> None:
        if self._field and local(tag) == self._field:
            value = " ".join("".join(self._text).split())[:META_CHARS]
            if value and len(self.about.get(self._field, [])) < 100:
                self.about.setdefault(self._field, []).append(value)
            self._field = None

    def characters(self, data: str) -> None:
        if self._field and len(self._text) < META_CHARS:
            self._text.append(data)

    def metadata(self) -> dict[str, Any]:
        """Of each field its value, or all of them if it has several."""
        found = {name: values[0] if len(values) == 1 else values for name, values in self.about.items()}
        found.pop("date", None)
        return found

    def is_prose(self, name: str, item: _Item) -> bool:
        """Whether an entry of the reading order is neither cover nor table of contents."""
        file = item.path.rpartition("/")[2].rpartition(".")[0]
        named = _COVER.fullmatch(name) or _COVER.fullmatch(file)
        return not named and "nav" not in item.properties and item.path not in self.apart


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    for event in _events(reading):
        reading.records += 1
        yield event


def _events(reading: Reading) -> Iterator[Event]:
    try:
        archive = Archive(reading)
        package = _package(archive)
        protected = _protected(archive)
    except (Missing, Encrypted, TooLarge) as error:
        yield _rejected(error, WHOLE, "the book's package document", reading)
        return
    except Damaged as damage:
        yield Rejected(WHOLE, damage.rule, damage.detail, float(damage.position))
        return
    about = package.metadata()
    date = next(iter(package.about.get("date", [])), None)
    identifier = next(iter(package.about.get("identifier", [])), None)
    chapters: list[_Chapter] = []
    held = 0
    for number, name in enumerate(package.spine[:MAX_FILES], 1):
        item = package.items.get(name)
        if item is not None and not package.is_prose(name, item):
            reading.counters["epub_left_out"] += 1
            continue
        found = _chapter(archive, item, number, protected, reading)
        if isinstance(found, Rejected):
            yield found
            continue
        if reading.source.epub.chapters == "each":
            reading.repaired(found.decoded)
            more = {**about, "chapter": found.title} if found.title else about
            yield Document(str(number), found.text, date=date, metadata=_json(more))
            continue
        held += len(found.text.encode("utf-8", "replace")) + 2
        if held > reading.max_bytes:
            detail = f"a book of more than {reading.max_bytes} bytes of text, the longest allowed"
            yield reading.too_large(WHOLE, detail, held)
            return
        chapters.append(found)
    if len(package.spine) > MAX_FILES:
        detail = f"what follows {MAX_FILES} files of the reading order is not read"
        record = str(MAX_FILES + 1)
        yield Rejected(record, "ingest.record_too_large", detail, float(len(package.spine)), float(MAX_FILES))
    if reading.source.epub.chapters == "join":
        text = "\n\n".join(chapter.text for chapter in chapters if chapter.text)
        for chapter in chapters:
            reading.repaired(chapter.decoded)
        if text:
            yield Document(WHOLE, text, identifier, date=date, metadata=_json(about))
        else:
            detail = f"no text in the {len(package.spine)} files of the reading order"
            yield Rejected(WHOLE, "ingest.empty_text", detail, 0.0, float(reading.params.min_chars))
    elif not package.spine:
        yield Rejected(WHOLE, "ingest.empty_text", "the reading order names no file", 0.0)


def _package(archive: Archive) -> _Package:
    """The package document that the container names."""
    paths: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if local(tag) == "rootfile" and "full-path" in attributes:
            paths.append(attributes["full-path"])

    archive.parse(CONTAINER, start, lambda tag: None, lambda data: None)
    if not paths:
        raise Damaged("ingest.damaged", "the container names no package document", 0)
    package = _Package(paths[0])
    archive.parse(paths[0], package.start, package.end, package.characters)
    return package


def _protected(archive: Archive) -> frozenset[str]:
    """Paths of the files that are encrypted, obfuscated fonts aside."""
    found: set[str] = set()
    method = ""

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal method
        if local(tag) == "EncryptionMethod":
            method = attributes.get("Algorithm", "")
        elif local(tag) == "CipherReference" and method not in _FONTS:
            found.add(resolve("", attributes.get("URI", "")))

    if ENCRYPTION in archive:
        archive.parse(ENCRYPTION, start, lambda tag: None, lambda data: None)
    return frozenset(found)


def _chapter(
    archive: Archive, item: _Item | None, number: int, protected: frozenset[str], reading: Reading
) -> _Chapter | Rejected:
    """A file of the reading order, or why it has no text."""
    record, what = str(number), f"file {number} of the reading order"
    if item is None:
        return Rejected(record, "ingest.missing_part", f"{what} is not in the manifest", float(number))
    if item.path in protected:
        return Rejected(record, "ingest.encrypted", f"{what} is encrypted (DRM)", float(number))
    if item.media and item.media not in _TEXT:
        return Rejected(record, "ingest.content_type", f"{what} is no text", outcome=REMOVED)
    try:
        data = archive.read(item.path)
        declared = _DECLARED.match(data)
        charset = reading.source.encoding or (declared[1].decode() if declared else None)
        decoded = decode_html(data, charset, reading.params.max_replaced)
        page = as_html(decoded.text)
        check_complexity(page)
        tree = HTMLTree.parse(page)
        text = text_of_tree(tree, page, "all_text")
    except (Missing, Encrypted, TooLarge) as error:
        return _rejected(error, record, what, reading)
    except Damaged as damage:
        return Rejected(record, damage.rule, f"{what}: {damage.detail}", float(damage.position))
    except Undecodable as error:
        return Rejected(record, "ingest.undecodable", f"{what}: {error.reason}", float(error.position))
    except TooComplex as error:
        return Rejected(record, "ingest.html_too_complex", f"{what}: {error}")
    return _Chapter(text, " ".join((tree.title or "").split())[:META_CHARS], decoded)


def as_html(page: str) -> str:
    """XHTML in a form that an HTML parser takes for the same tree: `<title/>` as `<title></title>`."""
    page = page[found.end() :] if (found := _PROLOGUE.match(page)) else page
    return _CLOSED.sub(_opened_and_closed, page)


def _opened_and_closed(found: re.Match[str]) -> str:
    return found[0] if found[1].lower() in _VOID else f"<{found[1]}{found[2]}></{found[1]}>"


def _rejected(error: Missing | Encrypted | TooLarge, record: str, what: str, reading: Reading) -> Rejected:
    if isinstance(error, Encrypted):
        return Rejected(record, "ingest.encrypted", f"{what} is encrypted")
    if isinstance(error, TooLarge):
        detail = f"{what} has more than {reading.max_bytes} bytes, the longest allowed"
        return reading.too_large(record, detail, error.size)
    return Rejected(record, "ingest.missing_part", f"{what} is not in the archive")


def _json(about: dict[str, Any]) -> str | None:
    return orjson.dumps(about, option=orjson.OPT_SORT_KEYS).decode() if about else None
