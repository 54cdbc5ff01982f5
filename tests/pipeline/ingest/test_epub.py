"""EPUB: reading order, what is left out, metadata, protection, damage."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.ingest.discover import discover
from corpusmill.pipeline.ingest.readers.epub import as_html
from corpusmill.pipeline.ingest.readers.zip_parts import resolve
from corpusmill.pipeline.ingest.reread import RawFile
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from tests.pipeline.ingest.helpers import Result, ingest
from tests.pipeline.ingest.zip_files import epub_parts, packed, page

ONE = page("<h1>Chapter 1</h1><p>First  <i>para</i>graph.</p><p>Second.</p>", "<title>One</title>")
TWO = page(
    '<h2>Chapter 2</h2><ul><li>first</li><li>second</li></ul><p>Last<a id="x"/> words &amp; caf&eacute;.</p>'
)
TEXT_ONE = "Chapter 1\n\nFirst paragraph.\n\nSecond."
TEXT_TWO = "Chapter 2\n\n  • first\n  • second\n\nLast words & café."
BOOK = packed(epub_parts({"b.xhtml": ONE, "text/a.xhtml": TWO}))
ENCRYPTED = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" xmlns:e="http://www.w3.org/2001/04/xmlenc#">'
    '<e:EncryptedData><e:EncryptionMethod Algorithm="{}"/><e:CipherData><e:CipherReference URI="OEBPS/b.xhtml"/>'
    "</e:CipherData></e:EncryptedData></encryption>"
)


def write(folder: Path, data: bytes, name: str = "a.epub") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def rows(result: Result) -> list[tuple[str, str]]:
    return [(row["locator"], row["rule"]) for row in result.decisions]


def test_a_book_in_its_reading_order(tmp_path: Path) -> None:
    result = ingest(write(tmp_path, BOOK))
    assert result.texts == [f"{TEXT_ONE}\n\n{TEXT_TWO}"] and not result.decisions
    (doc,) = result.docs
    assert (doc["locator"], doc["date"], doc["source_id"]) == ("a.epub#0", "1999-05-06", "urn:isbn:1")
    assert json.loads(doc["metadata"]) == {
        "title": "The Title", "creator": ["First Author", "Second Author"], "language": "en", "rights": "Public domain",
        "identifier": "urn:isbn:1",
    }  # fmt: skip


def test_one_document_a_chapter(tmp_path: Path) -> None:
    result = ingest(write(tmp_path, BOOK), epub={"chapters": "each"})
    assert result.texts == [TEXT_ONE, TEXT_TWO] and result.locators() == ["a.epub#1", "a.epub#2"]
    chapters = [json.loads(doc["metadata"]).get("chapter") for doc in result.docs]
    assert chapters == ["One", None] and {doc["date"] for doc in result.docs} == {"1999-05-06"}
    source = Source.model_validate({"paths": [str(tmp_path)], "epub": {"chapters": "each"}})
    (file,) = discover("s", source)
    assert RawFile(file, source, IngestParams()).text("2") == TEXT_TWO


def test_cover_and_tables_of_contents_are_left_out(tmp_path: Path) -> None:
    other = page("<p>Not a part of the text.</p>")
    parts = epub_parts(
        {"cover.xhtml": other, "b.xhtml": ONE, "contents.xhtml": other},
        manifest='<item id="n" href="nav2.xhtml" properties="nav scripted" media-type="application/xhtml+xml"/>',
        spine='<itemref idref="n"/>',
        more='<guide><reference type="toc" href="contents.xhtml#top"/></guide>',
    )
    result = ingest(write(tmp_path, packed(parts | {"OEBPS/nav2.xhtml": other})))
    assert result.texts == [TEXT_ONE] and result.counters["epub_left_out"] == 3 and not result.decisions


def test_missing_and_unreadable_files_have_rows(tmp_path: Path) -> None:
    pages: dict[str, str | bytes] = {
        "gone.xhtml": "", "b.xhtml": ONE, "bad.xhtml": b"\xff\xfe\xfd\x80\x81" * 40, "deep.xhtml": "<b>" * 4000,
    }  # fmt: skip
    parts = epub_parts(
        pages,
        manifest='<item id="s" href="s.svg" media-type="image/svg+xml"/>',
        spine='<itemref idref="none"/><itemref idref="s"/>',
    )
    del parts["OEBPS/gone.xhtml"]
    result = ingest(write(tmp_path, packed(parts | {"OEBPS/s.svg": "<svg/>"})))
    assert result.texts == [TEXT_ONE]
    assert rows(result) == [
        ("a.epub#1", "ingest.missing_part"), ("a.epub#3", "ingest.undecodable"), ("a.epub#4", "ingest.html_too_complex"),
        ("a.epub#5", "ingest.missing_part"), ("a.epub#6", "ingest.content_type"),
    ]  # fmt: skip


def test_protected_books_are_quarantined_and_obfuscated_fonts_are_not(tmp_path: Path) -> None:
    parts = epub_parts({"b.xhtml": ONE, "c.xhtml": TWO})
    drm = ENCRYPTED.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc")
    result = ingest(write(tmp_path, packed(parts | {"META-INF/encryption.xml": drm})))
    assert rows(result) == [("a.epub#1", "ingest.encrypted")] and result.texts == [TEXT_TWO]
    font = ENCRYPTED.format("http://www.idpf.org/2008/embedding")
    result = ingest(write(tmp_path, packed(parts | {"META-INF/encryption.xml": font})))
    assert not result.decisions and len(result.docs) == 1


def test_encodings_names_with_spaces_and_compressed_books(tmp_path: Path) -> None:
    latin = page("<p>café</p>").replace("utf-8", "iso-8859-1").encode("latin-1")
    data = packed(epub_parts({"my%20file.xhtml": latin}))
    for name, content in (("a.epub", data), ("a.epub.gz", gzip.compress(data)), ("noname", data)):
        assert ingest(write(tmp_path, content, name)).texts == ["café"]


@pytest.mark.parametrize(
    ("xhtml", "html"),
    [
        ("<title/><p>a</p>", "<title></title><p>a</p>"), ('<a id="x" />b', '<a id="x" ></a>b'), ("a<br/>b", "a<br/>b"),
        ('<?xml version="1.0"?>\n<html/>', "\n<html></html>"), ("1 < 2 />", "1 < 2 />"), ("<p", "<p"),
    ],
)  # fmt: skip
def test_xhtml_as_html(xhtml: str, html: str) -> None:
    assert as_html(xhtml) == html


def test_references_never_leave_the_archive() -> None:
    assert resolve("OEBPS/book.opf", "text/a%20b.xhtml#x") == "OEBPS/text/a b.xhtml"
    assert resolve("OEBPS/book.opf", "../../../etc/passwd") == "etc/passwd"
    assert resolve("OEBPS/book.opf", "/../../x") == "x" and resolve("", "a/./b/../c") == "a/c"


LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
    "<package><metadata>&c;</metadata></package>"
)
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><package>&a;</package>'


@pytest.mark.parametrize("package", [LAUGHS, EXTERNAL, "<package>", "", "<a>" * 5000, b"\xff\xfe\0"])
def test_hostile_and_broken_xml(tmp_path: Path, package: str | bytes) -> None:
    result = ingest(write(tmp_path, packed(epub_parts({"b.xhtml": ONE}) | {"OEBPS/book.opf": package})))
    assert rows(result) == [("a.epub#0", "ingest.malformed_xml")]


def test_parts_that_inflate_beyond_a_record_are_stopped(tmp_path: Path) -> None:
    """By what they inflate to, not by the size that the archive names."""
    bomb = page("x" * 30_000_000)
    parts = epub_parts({"b.xhtml": ONE, "bomb.xhtml": bomb})
    data = packed(parts)
    assert len(data) < 100_000
    result = ingest(write(tmp_path, data), params={"max_record_mb": 1})
    assert result.texts == [TEXT_ONE] and rows(result) == [("a.epub#2", "ingest.record_too_large")]
    assert 2**20 < result.decisions[0]["value"] < 2**20 + 2**17
    lying = data.replace(len(bomb).to_bytes(4, "little"), (9).to_bytes(4, "little"))
    result = ingest(write(tmp_path, lying), params={"max_record_mb": 1})
    assert result.texts == [TEXT_ONE] and [rule for _, rule in rows(result)] == ["ingest.damaged"]
    long = packed(epub_parts({f"{n}.xhtml": page("y" * 600_000) for n in range(3)}))
    result = ingest(write(tmp_path, long), params={"max_record_mb": 1})
    assert rows(result) == [("a.epub#0", "ingest.record_too_large")] and not result.docs


def test_archives_with_a_directory_that_is_too_long_are_not_opened(tmp_path: Path) -> None:
    names = {f"{n:06}" + "x" * 200: "" for n in range(25_000)}
    result = ingest(write(tmp_path, packed(epub_parts({"b.xhtml": ONE}) | names)))
    assert rows(result) == [("a.epub#0", "ingest.damaged")] and "directory" in result.decisions[0]["detail"]


@pytest.mark.parametrize("cut", [10, 300, -30])
def test_archives_cut_short(tmp_path: Path, cut: int) -> None:
    result = ingest(write(tmp_path, BOOK[:cut]))
    assert rows(result) == [("a.epub#0", "ingest.damaged")]


def test_a_book_without_text(tmp_path: Path) -> None:
    for pages in ({}, {"b.xhtml": page("")}):
        result = ingest(write(tmp_path, packed(epub_parts(pages))))
        assert rows(result) == [("a.epub#0", "ingest.empty_text")]


def test_mutants_never_end_a_run(tmp_path: Path) -> None:
    draw = random.Random(2)
    stored = packed(epub_parts({"b.xhtml": ONE, "c.xhtml": TWO}), 0)
    for number in range(300):
        data = bytearray(draw.choice([BOOK, stored]))
        for _ in range(draw.choice([1, 2, 10])):
            at = draw.randrange(len(data))
            if draw.random() < 0.7:
                data[at] = draw.randrange(256)
            else:
                del data[at : at + draw.randrange(1, 30)]
        (tmp_path / f"{number:03}.epub").write_bytes(bytes(data))
    for options in ({}, {"chapters": "each"}):
        result = ingest(tmp_path, epub=options)
        named = {row["locator"].split("#")[0] for row in [*result.docs, *result.decisions]}
        assert len(named) == 300 and "ingest.unreadable" not in result.rules


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, book: bytes, text: bytes, end: bytes) -> None:
    parts = epub_parts({"b.xhtml": text or b"x"})
    package = parts["OEBPS/book.opf"]
    assert isinstance(package, str)
    at = len(book) * 3 % len(package)
    parts["OEBPS/book.opf"] = package[:at].encode() + book + package[at:].encode()
    path = write(tmp_path_factory.getbasetemp(), packed(parts) + end, "fuzz.epub")
    result = ingest(path)
    assert (result.docs or result.decisions) and "ingest.unreadable" not in result.rules
