"""Web pages cut in two for the quality model: the main text, and what is beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import detect_encoding
from resiliparse.parse.html import HTMLTree

from tools.labelled_sources import _lines as lines_of

__all__ = ["beside", "english", "lines_of", "parts_of", "saved_pages", "silver"]

# What Sphinx, DocBook and hand-written manuals mark as navigation, contents and index.
BESIDE: Final = (
    "nav", "header", "footer", ".related", ".sphinxsidebar", ".navheader", ".navfooter", ".toc", ".toctree-wrapper",
    ".index", ".genindextable", ".footer", ".indextable", "#menubar", ".menu", ".menubar", ".nosearch", ".contents",
    "ul.docnav", "p#title", ".modindextable", ".local",
)  # fmt: skip


def english(text: str) -> bool:
    """Whether a hundredth of the words is "the"."""
    words = f" {text} ".lower()
    return words.count(" the ") >= words.count(" ") / 100


def beside(lines: Sequence[str], wanted: Sequence[str], unwanted: Sequence[str]) -> list[tuple[str, bool]]:
    """(text, whether it is the article) of a page of which some segments are known. A line between two known segments of one
    kind is of that kind, and so are lines before the first and after the last segment where that is unwanted; what lies between
    two kinds is in neither text. Empty where the article is not English, and where it or the rest has less than 100 characters."""
    marks: list[tuple[int, bool]] = [(-1, False)]
    for place, line in enumerate(lines):
        for segments, label in ((wanted, True), (unwanted, False)):
            if any(" ".join(segment.split()) in line for segment in segments if segment.strip()):
                marks.append((place, label))
    marks.append((len(lines), False))
    sides: dict[bool, dict[int, str]] = {True: {}, False: {}}
    for (first, one), (last, other) in pairwise(marks):
        if one == other:
            sides[one].update(
                (place, lines[place]) for place in range(max(first, 0), min(last + 1, len(lines)))
            )
    texts = {label: "\n".join(line for _, line in sorted(own.items())) for label, own in sides.items()}
    if not english(texts[True]) or min(map(len, texts.values())) < 100:
        return []
    return [(text, label) for label, text in texts.items()]


def decoded(page: bytes) -> str:
    """A page's text: UTF-8 where it is that, else by resiliparse's guess."""
    try:
        return page.decode("utf-8")
    except UnicodeDecodeError:
        return page.decode(detect_encoding(page) or "utf-8", "replace")


def silver(page: bytes) -> tuple[list[str], list[str]]:
    """(lines of the main text by resiliparse, the other lines); empty where the main text is not English."""
    text = decoded(page)
    main = extract_plain_text(text, main_content=True, alt_texts=False, links=False).split("\n")
    main = [" ".join(line.split()).lstrip("• ") for line in main if line.strip()]
    if not english(" ".join(main)):
        return [], []
    known = set(main)
    rest = [line for line in lines_of(text.encode()) if line not in known]
    return main, rest


def parts_of(page: bytes, wrapped: bool) -> tuple[list[str], list[str]]:
    """(lines of a manual's page, lines of its navigation, contents and index) by the marks of `BESIDE`. `wrapped`: lines end
    where they do in the file; else a block is one line, as an extractor gives it."""
    text = decoded(page)
    tree = HTMLTree.parse(text if wrapped else re.sub(r"\s+", " ", text))
    rest: list[str] = []
    if tree.body is None:
        return [], []
    for node in tree.body.query_selector_all(", ".join(BESIDE)):
        if node.parent is not None:
            rest += lines_of(node.html.encode())
            node.parent.remove_child(node)
    return lines_of(tree.body.html.encode()), rest


def saved_pages(folder: Path) -> list[bytes]:
    """The distinct HTML pages of a folder's WARC files, in a fixed order."""
    found: dict[bytes, None] = {}
    for path in sorted(
        [
            *folder.glob("dolma*.warc.gz"),
            folder / "aut-example.warc.gz",
            folder / "resiliparse-warcfile.warc.gz",
        ]
    ):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=True):
                kind = record.http_content_type if record.http_headers is not None else None
                if kind and "html" in kind:
                    body = record.reader.read()
                    if re.search(rb"<body|<p\b|<td", body, re.IGNORECASE):
                        found[body] = None
    return list(found)
