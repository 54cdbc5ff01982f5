"""Real text of many kinds for `parity`, read in place from ../shared/data: pages of the web, prose, references, lists."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter

from bench.natural import sentences, sources, web_pages
from corpusmill.pipeline.ingest.readers.html import extract_text

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
    for page in web_pages():
        yield extract_text(page, "resiliparse")
        yield extract_text(page, "all_text")


def _languages() -> Iterator[str]:
    """Sentences of one language, some a line and some in a row."""
    for _, group in groupby(sorted(sentences(), key=itemgetter(0)), key=itemgetter(0)):
        own = [text for _, text in group]
        for number, at in enumerate(range(0, len(own), SENTENCES)):
            yield ("\n" if number % 2 else " ").join(own[at : at + SENTENCES])
