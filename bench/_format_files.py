"""The files of `bench formats`: real texts and real pages in every format, written once into a folder."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from bench import html_extraction, natural
from bench._fuzz_formats import warc_record
from bench._fuzz_papers import docx_of, epub_of

MEGABYTES = 12  # of text
PAPER_MEGABYTES = 3  # of it, in PDF, EPUB and DOCX
SECTION, SECTIONS = 20_000, 20  # characters of a section at most, sections of a file
_XML_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SOURCES = ("abstracts", "blog", "books", "docs_postgresql", "medicine", "qa", "speeches", "wiki")


def texts() -> list[str]:
    """About 12 MB of real text, in turn from eight sources."""
    found: list[str] = []
    each = MEGABYTES * 10**6 // len(SOURCES)
    for name in SOURCES:
        sizes = itertools.accumulate(len(text.encode()) for text in natural.read_only(name))
        kept = sum(1 for _ in itertools.takewhile(lambda size: size <= each, sizes))
        found += natural.read_only(name)[: max(kept, 1)]
    return [text.encode("utf-8", "replace").decode() for text in found if text.strip()]


def pages() -> list[bytes]:
    """The pages of trafilatura's evaluation set that are UTF-8."""
    files = sorted((html_extraction.WEB / "trafilatura_eval" / "html").glob("*.gz"))
    found = (gzip.decompress(file.read_bytes()) for file in files)
    return [page for page in found if _is_utf8(page)]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def write(folder: Path) -> dict[str, Path]:
    """Format -> its file; `html` is a folder."""
    data, html = texts(), pages()
    rows = [{"id": str(n), "url": f"http://a.example/{n}", "text": text} for n, text in enumerate(data)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    files = {
        "jsonl": lines,
        "jsonl.gz": gzip.compress(lines),
        "jsonl.zst": zstandard.ZstdCompressor().compress(lines),
        "json": json.dumps(rows, ensure_ascii=False).encode(),
        "csv": _csv(rows, ","),
        "tsv": _csv(rows, "\t"),
    }
    table = pa.Table.from_pylist(rows)
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", row_group_size=1000)
    files["parquet"] = out.getvalue()
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, 1000)
    files["arrow"] = out.getvalue()
    records = [_response(number, page) for number, page in enumerate(html)]
    files["warc"] = b"".join(records)
    files["warc.gz"] = b"".join(map(gzip.compress, records))
    head = ["Content-Type: text/plain"]
    conversions = [
        warc_record("conversion", n, text.encode(), [f"WARC-Target-URI: {row['url']}", *head])
        for n, (text, row) in enumerate(zip(data, rows, strict=True))
    ]
    files["wet.gz"] = b"".join(map(gzip.compress, conversions))
    found = {}
    for suffix, content in files.items():
        found[suffix] = folder / f"a.{suffix}"
        found[suffix].write_bytes(content)
    found |= archives(folder, data) | papers(folder, data)
    found["html"] = folder / "pages"
    found["html"].mkdir()
    for number, page in enumerate(html):
        (found["html"] / f"{number}.html").write_bytes(page)
    found["mediawiki (xml.bz2)"] = natural.DATA.joinpath(
        "natural", "encyclopedic_enwiki_dump", "enwiki-pages-articles-shortened.xml.bz2"
    )
    return found


def archives(folder: Path, texts: Sequence[str]) -> dict[str, Path]:
    """A tar and a zip file of text files."""
    found = {"tar": folder / "a.tar", "zip": folder / "a.zip"}
    with (
        tarfile.open(found["tar"], "w") as tar,
        zipfile.ZipFile(found["zip"], "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for number, text in enumerate(texts):
            content = text.encode()
            entry = tarfile.TarInfo(f"texts/{number}.txt")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
            packed.writestr(entry.name, content)
    return found


def papers(folder: Path, texts: Sequence[str]) -> dict[str, Path]:
    """Folders of PDF, EPUB and DOCX files, each with some of the texts as sections of about a page."""
    from fpdf import FPDF

    found = {}
    for kind in ("pdf", "epub", "docx"):
        found[kind] = folder / kind
        found[kind].mkdir()
    sizes = itertools.accumulate(len(text) for text in texts)
    some = [
        text[:SECTION] for text, size in zip(texts, sizes, strict=False) if size < PAPER_MEGABYTES * 10**6
    ]
    for number in range(0, len(some), SECTIONS):
        sections = [
            section.encode("latin-1", "ignore").decode("latin-1")
            for section in some[number : number + SECTIONS]
        ]
        out = FPDF()
        out.set_font("Times", size=11)
        for section in sections:
            out.add_page()
            out.multi_cell(0, 5, section)
        (found["pdf"] / f"{number}.pdf").write_bytes(bytes(out.output()))
        paragraphs = [
            [escape(_XML_ILLEGAL.sub("", line)) for line in section.split("\n")] for section in sections
        ]
        pages = ["".join(f"<p>{line}</p>" for line in lines) for lines in paragraphs]
        (found["epub"] / f"{number}.epub").write_bytes(epub_of(pages))
        (found["docx"] / f"{number}.docx").write_bytes(docx_of(itertools.chain.from_iterable(paragraphs)))
    return found


def _csv(rows: list[dict[str, str]], delimiter: str) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["id", "url", "text"], delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: value.replace("\r", "") for name, value in row.items()} for row in rows)
    return out.getvalue().encode()


def _response(number: int, page: bytes) -> bytes:
    content = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + page
    return warc_record(
        "response",
        number,
        content,
        [f"WARC-Target-URI: http://a.example/{number}", "Content-Type: application/http"],
    )
