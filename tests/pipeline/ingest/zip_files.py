"""EPUB and DOCX files for tests, made part by part."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
META = (
    "<dc:title>The Title</dc:title><dc:creator>First Author</dc:creator><dc:creator>Second Author</dc:creator>"
    "<dc:language>en</dc:language><dc:date>1999-05-06</dc:date><dc:rights>Public domain</dc:rights>"
    '<dc:identifier id="id">urn:isbn:1</dc:identifier>'
)
CONTENT_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/></Types>'
)
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def packed(parts: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive; a part `mimetype` is stored."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in parts.items():
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            archive.writestr(info, content, zipfile.ZIP_STORED if name == "mimetype" else method)
    return out.getvalue()


def page(body: str, title: str = "<title/>") -> str:
    """An XHTML file."""
    head = (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml">'
    )
    return f"{head}<head>{title}</head><body>{body}</body></html>"


def epub_parts(
    pages: Mapping[str, str | bytes], manifest: str = "", spine: str = "", meta: str = META, more: str = ""
) -> dict[str, str | bytes]:
    """The parts of an EPUB whose reading order is that of `pages`, then what `spine` adds."""
    items = "".join(
        f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(pages)
    )
    refs = "".join(f'<itemref idref="i{n}"/>' for n in range(len(pages)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"{meta}</metadata><manifest>{items}{manifest}</manifest><spine>{refs}{spine}</spine>{more}</package>"
    )
    parts: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": package,
    }
    return parts | {f"OEBPS/{name}".replace("%20", " "): content for name, content in pages.items()}


def docx_parts(body: str, **others: str) -> dict[str, str | bytes]:
    """The parts of a DOCX with that body, and others such as `styles`, `footnotes`, in `w:` or their own namespaces."""

    def relations(targets: Mapping[str, str]) -> str:
        entries = "".join(
            f'<Relationship Id="r{n}" Type="{OFFICE}/{kind}" Target="{target}"/>'
            for n, (kind, target) in enumerate(targets.items())
        )
        return f'<Relationships xmlns="{RELATIONS}">{entries}</Relationships>'

    core = others.pop("core", None)
    first = {"officeDocument": "word/document.xml"} | (
        {"core-properties": "docProps/core.xml"} if core else {}
    )
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": CONTENT_TYPES,
        "_rels/.rels": relations(first),
        "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
        "word/_rels/document.xml.rels": relations({kind: f"{kind}.xml" for kind in others}),
    }
    for kind, content in others.items():
        parts[f"word/{kind}.xml"] = f'<w:{kind} xmlns:w="{WORD}">{content}</w:{kind}>'
    if core:
        parts["docProps/core.xml"] = core
    return parts


def p(*texts: str, properties: str = "") -> str:
    """A paragraph of WordprocessingML with a run for each text."""
    runs = "".join(f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>' for text in texts)
    return f"<w:p>{f'<w:pPr>{properties}</w:pPr>' if properties else ''}{runs}</w:p>"
