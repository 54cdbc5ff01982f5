"""Real text for the benches, read in place from ../shared/data: never copied into the project.

Twelve sources of `natural/`: books, Wikipedia's markup as it is written, questions and answers, speeches,
documentation, blog posts, reference, abstracts. HTML is reduced to its main text as `ingest` does it.
"""

from __future__ import annotations

import bz2
import gzip
import html
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from corpusmill.pipeline.ingest.readers.html import decode_html, extract_text

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
_TAG = re.compile(r"<[^>]{1,200}>")
_WIKITEXT = re.compile(rb"<text[^>]*>(.*?)</text>", re.DOTALL)


def available() -> bool:
    """Is the real text beside this checkout?"""
    return (DATA / "natural").is_dir()


def sources() -> dict[str, Callable[[], Iterator[str]]]:
    """Source name -> its texts, in a fixed order."""
    place = DATA / "natural"
    return {
        "books": lambda: (
            file.read_text("utf-8") for file in sorted((place / "books_gutenberg").glob("*.md"))
        ),
        "moby_dick": lambda: (row["text"] for row in rows(place / "books_moby_dick")),
        "wiki": lambda: _wikitext(place / "encyclopedic_enwiki_dump/enwiki-pages-articles-shortened.xml.bz2"),
        "qa": lambda: (_plain(row["Body"]) for row in rows(place / "qa_stackexchange")),
        "speeches": lambda: (row["text"] for row in rows(place / "speeches_sotu")),
        "docs_sqlite": lambda: _pages(place / "docs_sqlite"),
        "docs_postgresql": lambda: _pages(place / "docs_postgresql"),
        "docs_debian": lambda: _pages(place / "docs_debian_handbook"),
        "blog": lambda: _posts(place / "blog_18f/posts.tar.gz"),
        "factbook": lambda: (_flat(row["data"]) for row in rows(place / "encyclopedic_factbook")),
        "abstracts": lambda: (row["abstract"] for row in rows(place / "science_scitldr")),
        "medicine": lambda: (row["context"] for row in rows(place / "science_pubmedqa")),
    }


def read_only(name: str) -> list[str]:
    """All texts of one source."""
    return list(sources()[name]())


def sentences() -> Iterator[tuple[str, str]]:
    """(language, sentence): 9,000 sentences of news in 75 languages."""
    found = rows(DATA / "langid/lingua_testdata")
    return ((row["lang"], row["text"]) for row in found if row["kind"] == "sentences")


def web_pages() -> Iterator[str]:
    """HTML of the pages of ../shared/data/web, decoded as `ingest` does it."""
    web = DATA / "web"
    places = (
        (web / "readability_test_pages").glob("*/source.html.gz"),
        (web / "trafilatura_eval/html").glob("*.gz"),
    )
    for file in (file for place in places for file in sorted(place)):
        yield decode_html(gzip.decompress(file.read_bytes()), None).text


def table(values: list[str]) -> pa.Table:
    """A document table of texts."""
    from corpusmill.common.ids import doc_id, text_hash
    from corpusmill.schemas.tables import DOCUMENTS

    count = len(values)
    columns: dict[str, Any] = {field.name: pa.nulls(count, field.type) for field in DOCUMENTS}
    columns |= {
        "doc_id": [doc_id("bench", str(i)) for i in range(count)], "source": ["bench"] * count,
        "locator": [str(i) for i in range(count)], "text": values, "text_hash": [text_hash(v) for v in values],
    }  # fmt: skip
    return pa.table(columns, schema=DOCUMENTS)


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Records of the JSON lines in a folder, gzipped or not."""
    for file in sorted(folder.glob("*.jsonl*")):
        data = file.read_bytes()
        yield from map(json.loads, (gzip.decompress(data) if file.suffix == ".gz" else data).splitlines())


def _plain(markup: str) -> str:
    return html.unescape(_TAG.sub(" ", markup))


def _pages(folder: Path) -> Iterator[str]:
    return (extract_text(row["html"], "resiliparse") for row in rows(folder))


def _posts(archive: Path) -> Iterator[str]:
    with tarfile.open(archive) as tar:
        for member in sorted((m for m in tar if m.isfile() and m.name.endswith(".md")), key=lambda m: m.name):
            file = tar.extractfile(member)
            if file is not None:
                yield file.read().decode("utf-8").rpartition("\n---\n")[2]


def _wikitext(dump: Path) -> Iterator[str]:
    """Articles' wikitext; the dump is cut short, so it is read as far as it goes."""
    data = bz2.BZ2Decompressor().decompress(dump.read_bytes())
    return (html.unescape(found.decode("utf-8", "replace")) for found in _WIKITEXT.findall(data))


def _flat(data: dict[str, Any]) -> str:
    """The factbook's nested sections as text, a field a line."""
    lines: list[str] = []

    def walk(node: dict[str, Any], path: str) -> None:
        for name, value in node.items():
            if isinstance(value, dict):
                walk(value, name if name != "text" else path)
            else:
                lines.append(f"{path}: {_plain(str(value))}")

    walk(data, "")
    return "\n".join(lines)
