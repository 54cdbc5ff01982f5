"""Running headers, footers and page numbers: lines at the edge of most pages that differ in their numbers alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from corpusmill.pipeline.ingest.pdf.layout import PARAGRAPH, Line

MIN_PAGES = 3  # on which a line must stand
SHARE = 0.5  # of the pages that it is looked for on, at least
MAX_CHARS = 200
_NUMBER = re.compile(r"\d+")
_ROMAN = re.compile(r"\W*[ivxlc]+\W*")
Form = tuple[str, str, int]  # edge, text without its numbers, height


def without_running_lines(pages: Sequence[Sequence[Line]]) -> tuple[list[list[Line]], int]:
    """(pages without their running lines, how many lines that were).

    A line counts as running if it stands at the same edge (top or bottom) in the same size on more than `SHARE` of the pages,
    its numbers aside. Left and right pages often differ, so that pages with odd and with even numbers are looked at by
    themselves too. Of a line with a number (`Chapter 2 ... 17`) only the pages from its first to its last one count.
    """
    found: dict[Form, list[int]] = {}
    for number, page in enumerate(pages):
        for form in {_form(line) for line in page if line.edge}:
            found.setdefault(form, []).append(number)
    running: set[tuple[Form, int]] = set()  # with 0 for pages of even, 1 for those of odd number
    for form, places in found.items():
        span = range(places[0], places[-1] + 1) if "#" in form[1] else range(len(pages))
        if len(places) >= MIN_PAGES and len(places) > SHARE * len(span):
            running |= {(form, 0), (form, 1)}
        for side in (0, 1):
            here = sum(place % 2 == side for place in places)
            if here >= MIN_PAGES and here > SHARE * sum(place % 2 == side for place in span):
                running.add((form, side))
    removed = 0
    cleaned = []
    for number, page in enumerate(pages):
        kept: list[Line] = []
        gap = False
        for line in page:
            if line.edge and (_form(line), number % 2) in running:
                removed += 1
                gap = True
            else:
                kept.append(line._replace(before=PARAGRAPH) if gap else line)
                gap = False
        cleaned.append(kept)
    return cleaned, removed


def _form(line: Line) -> Form:
    text = " ".join(line.text.casefold().split())[:MAX_CHARS]
    return line.edge, "#" if _ROMAN.fullmatch(text) else _NUMBER.sub("#", text), line.size


def text_of(page: Sequence[Line]) -> str:
    """The text of a page."""
    return "".join(line.before + line.text for line in page).strip("\n ")
