"""Real text of many kinds for `parity`, read in place from ../shared/data: pages of the web, prose, references, lists."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

from bench.natural import DATA, sources
from pipeline.ingest.html import decode_html, extract_text

PIECE = 20_000  # characters of one document out of a book
EVERY = 8  # of the pieces of books, so that long prose does not outweigh the rest
SENTENCES = 20  # in one language, joined to a document
LONGEST = 30_000  # characters: the peer splits words at 0.4 MB/s


def texts() -> Iterator[tuple[str, str]]:
    """(kind, text), in a fixed order; no text is empty or longer than `LONGEST` characters."""
    for kind, own in sources().items():
        found = _pieces(own()) if kind == "books" else own()
        yield from ((kind, text[:LONGEST]) for text in found if text.strip())
    yield from (("web", text[:LONGEST]) for text in _pages() if text.strip())
    yield from (("75 languages", text) for text in _languages())


def _pieces(books: Iterator[str]) -> Iterator[str]:
    for book in books:
        yield from islice((book[at : at + PIECE] for at in range(0, len(book), PIECE)), 0, None, EVERY)


def _pages() -> Iterator[str]:
    """Each page as its main text and as all of its text, menus and lists of links included."""
    for file in _html():
        page = decode_html(gzip.decompress(file.read_bytes()), None).text
        yield extract_text(page, "resiliparse")[0]
        yield extract_text(page, "all_text")[0]


def _html() -> list[Path]:
    web = DATA / "web"
    return sorted(
        [
            *(web / "readability_test_pages").glob("*/source.html.gz"),
            *(web / "trafilatura_eval/html").glob("*.gz"),
        ]
    )


def _languages() -> Iterator[str]:
    """Sentences of one language, some a line and some in a row."""
    file = next((DATA / "langid/lingua_testdata").glob("*.jsonl.gz"))
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    rows = sorted((row for row in rows if row["kind"] == "sentences"), key=lambda row: str(row["lang"]))
    for _, group in groupby(rows, key=lambda row: row["lang"]):
        sentences = [row["text"] for row in group]
        for number, at in enumerate(range(0, len(sentences), SENTENCES)):
            yield ("\n" if number % 2 else " ").join(sentences[at : at + SENTENCES])
