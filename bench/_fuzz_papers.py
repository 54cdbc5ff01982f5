"""PDF, EPUB and DOCX files; for the fuzz bench with several marked paragraphs each, which are one record of ingest."""

from __future__ import annotations

import datetime
import io
import random as randoms
import zipfile
from collections.abc import Callable, Iterable, Sequence

from bench._fuzz_words import Piece, mark, sentence, text_of

CONTAINER = (
    '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile'
    ' full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
WHEN = datetime.datetime(2021, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


def _pieces(data: bytes, marks: list[str]) -> list[Piece]:
    return [Piece(data), *(Piece(b"", name) for name in marks)]


def _text(random: randoms.Random, name: str) -> str:
    """A text in Latin-1, as the standard fonts of PDF have it."""
    return text_of(random, name).encode("latin-1", "ignore").decode("latin-1")


def pdf(random: randoms.Random) -> list[Piece]:
    """Pages with paragraphs and a number; streams compressed or not."""
    from fpdf import FPDF

    out, marks = FPDF(), []
    out.set_compression(random.random() < 0.4)
    out.set_creation_date(WHEN)
    out.set_title(sentence(random, 2).encode("latin-1", "ignore").decode("latin-1"))
    for page in range(random.randint(1, 4)):
        out.add_page()
        out.set_font(random.choice(["Times", "Helvetica", "Courier"]), size=11)
        for _ in range(random.randint(1, 3)):
            marks.append(mark(random))
            out.multi_cell(0, 5, _text(random, marks[-1]), new_x="LMARGIN", new_y="NEXT")
            out.ln(6)
        out.text(100, 290, str(page + 1))
    return _pieces(bytes(out.output()), marks)


def epub(random: randoms.Random) -> list[Piece]:
    """Chapters, with a style sheet beside them."""
    marks, pages = [], []
    for _ in range(random.randint(1, 5)):
        marks.append(mark(random))
        text = f"<p>{text_of(random, marks[-1])}</p><p>{sentence(random, 30)}.</p>"
        pages.append(f"<h1>{sentence(random, 2)}</h1>{text}")
    return _pieces(epub_of(pages, sentence(random, 2), random.choice(METHODS)), marks)


def epub_of(bodies: Sequence[str], title: str = "A book", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An EPUB 3 of chapters, given as XHTML."""
    pages = {
        f"c{number}.xhtml": f'<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head>'
        f'<title>{number}</title><link rel="stylesheet" href="s.css"/></head><body>{body}</body></html>'
        for number, body in enumerate(bodies)
    }
    items = "".join(
        f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(pages)
    )
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(pages)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{title}</dc:title><dc:language>en</dc:language></metadata><manifest>{items}"
        f'<item id="css" href="s.css" media-type="text/css"/></manifest><spine>{spine}</spine></package>'
    )
    parts = {
        "mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER, "book.opf": package, **pages,
        "s.css": "p {margin: 0}",
    }  # fmt: skip
    return _zip({name: text.encode() for name, text in parts.items()}, method)


def docx(random: randoms.Random) -> list[Piece]:
    """Paragraphs, a list and a table, as python-docx writes them."""
    import docx as python_docx

    document, marks = python_docx.Document(), []
    document.add_heading(sentence(random, 3), 1)
    for _ in range(random.randint(2, 5)):
        marks.append(mark(random))
        document.add_paragraph(text_of(random, marks[-1]), random.choice([None, "List Bullet"]))
    table = document.add_table(2, 2)
    marks.append(mark(random))
    table.cell(0, 1).text = text_of(random, marks[-1])
    document.core_properties.created = document.core_properties.modified = WHEN
    out = io.BytesIO()
    document.save(out)
    with zipfile.ZipFile(out) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    return _pieces(_zip(parts, random.choice(METHODS)), marks)


def docx_of(paragraphs: Iterable[str]) -> bytes:
    """A DOCX with the parts that every reader needs; paragraphs are escaped."""
    office = "http://schemas.openxmlformats.org/officeDocument/2006"
    package, kinds = "http://schemas.openxmlformats.org/package/2006", "application/vnd.openxmlformats"
    main = "wordprocessingml.document.main+xml"
    types = (
        f'<Types xmlns="{package}/content-types"><Default Extension="xml" ContentType="application/xml"/><Default'
        f' Extension="rels" ContentType="{kinds}-package.relationships+xml"/><Override PartName="/word/document.xml"'
        f' ContentType="{kinds}-officedocument.{main}"/></Types>'
    )
    relations = (
        f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}/relationships/officeDocument"'
        ' Target="word/document.xml"/></Relationships>'
    )
    body = "".join(f'<w:p><w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>' for text in paragraphs)
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    parts = {
        "[Content_Types].xml": types, "_rels/.rels": relations,
        "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>',
    }  # fmt: skip
    return _zip({name: text.encode() for name, text in parts.items()}, zipfile.ZIP_DEFLATED)


def _zip(parts: dict[str, bytes], method: int) -> bytes:
    """The same bytes for the same parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in parts.items():
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            archive.writestr(info, data, zipfile.ZIP_STORED if name == "mimetype" else method)
    return out.getvalue()


PAPERS: dict[str, Callable[[randoms.Random], list[Piece]]] = {"pdf": pdf, "epub": epub, "docx": docx}
PDF_WORDS = (
    b"endobj", b"endstream", b"stream\n", b"obj", b"<<", b">>", b"[", b"]", b"(", b")", b"\\", b"/Kids [3 0 R 3 0 R]", b"/Length 0",
    b"/Length 99999999", b"/Count 999999999", b"startxref\n0\n", b"%%EOF", b"xref", b"trailer", b"BT ", b" ET", b" Tj ", b"3 Tr ", b"0 Tf ",
    b"1 0 0 1 9e9 9e9 cm ", b"q " * 5000, b"[" * 5000, b"<<" * 2000, b"/Filter /FlateDecode", b"/Filter [/FlateDecode /FlateDecode]",
    b"/Encrypt 1 0 R", b"/ObjStm", b"/Parent 1 0 R", b"/MediaBox [0 0 0 0]", b"/MediaBox [-9e30 0 9e30 1]", b"\x00", b"\xff",
)  # fmt: skip
ZIP_WORDS = (
    b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x07\x08", b"\x00" * 8, b"\xff" * 8, b"<w:p>" * 500, b"</w:t>", b"<w:del>",
    b"<w:vanish/>", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"&#x0;", b"]]>", b"<a>" * 400, b"\x78\x9c", b"\x01\x00\x10\x00", b"../../x",
    b"word/document.xml", b"book.opf", b"\xed\xa0\x80",
)  # fmt: skip
