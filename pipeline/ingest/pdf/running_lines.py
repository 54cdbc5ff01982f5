"""Running headers, footers and page numbers: lines at the edge of most pages that differ in their numbers alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from corpusmill.pipeline.ingest.pdf.layout import PARAGRAPH, Line

MIN_PAGES = 3  # on which a line must stand
SHARE = 0.5  # of all pages, or of those with odd or with even numbers, at least
MAX_CHARS = 200
_NUMBER = re.compile(r"\d+")
_ROMAN = re.compile(r"\W*[ivxlc]+\W*")


def without_running_lines(pages: Sequence[Sequence[Line]]) -> tuple[list[list[Line]], int]:
    """(pages without their running lines, how many lines that were).

    A line counts as running if it stands at the same edge (top or bottom) of more than `SHARE` of the pages, its numbers aside.
    Left and right pages often differ, so that pages with odd and with even numbers are looked at by themselves too.
    """
    counts: Counter[tuple[str, str, int]] = Counter()
    for number, page in enumerate(pages):
        for edge, form in {(line.edge, _form(line)) for line in page if line.edge}:
            counts[edge, form, number % 2] += 1
    sides = ((len(pages) + 1) // 2, len(pages) // 2)
    running: set[tuple[str, str, int]] = set()
    for edge, form, side in counts:
        here, there = counts[edge, form, side], counts.get((edge, form, 1 - side), 0)
        if here + there >= MIN_PAGES and (
            here + there > SHARE * len(pages) or (here >= MIN_PAGES and here > SHARE * sides[side])
        ):
            running.add((edge, form, side))
    removed = 0
    cleaned = []
    for number, page in enumerate(pages):
        kept: list[Line] = []
        gap = False
        for line in page:
            if line.edge and (line.edge, _form(line), number % 2) in running:
                removed += 1
                gap = True
            else:
                kept.append(line._replace(before=PARAGRAPH) if gap else line)
                gap = False
        cleaned.append(kept)
    return cleaned, removed


def _form(line: Line) -> str:
    text = " ".join(line.text.casefold().split())[:MAX_CHARS]
    return "#" if _ROMAN.fullmatch(text) else _NUMBER.sub("#", text)


def text_of(page: Sequence[Line]) -> str:
    """The text of a page."""
    return "".join(line.before + line.text for line in page).strip("\n ")
