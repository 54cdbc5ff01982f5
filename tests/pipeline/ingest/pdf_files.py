"""PDF files for tests, made by fpdf2, and a writer of raw objects for files that no library makes."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable
from typing import Any

WORDS = re.findall(
    r"\w+",
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one"
    " you were all her she there would their we him been has when who will no more if out so up said what its about than"
    " into them can only other time new some could these two may first then do any like my now over such our man me even"
    " most made after also did many off before must well back through years where much your way down should because long",
)
Draw = Callable[[Any], None]


def sentence(seed: int, words: int) -> str:
    """Words that are the same for a seed."""
    draw = random.Random(seed)
    return " ".join([f"S{seed}", *(draw.choice(WORDS) for _ in range(words))]) + "."


def pdf(*pages: Draw, compress: bool = True, **about: str) -> bytes:
    """A PDF with one page for each function, which draws on it with 11-point Times."""
    from fpdf import FPDF

    out = FPDF()
    out.set_compression(compress)
    out.set_auto_page_break(False)
    out.set_creation_date(datetime.datetime(2021, 5, 6, 7, 8, 9))
    for name, value in about.items():
        getattr(out, f"set_{name}")(value)
    for draw in pages:
        out.add_page()
        out.set_font("Times", size=11)
        draw(out)
    return bytes(out.output())


def lines(*texts: str, x: float = 20, y: float = 30, step: float = 5) -> Draw:
    """Each text on a line of its own."""

    def draw(out: Any) -> None:
        for number, text in enumerate(texts):
            out.text(x, y + number * step, text)

    return draw


def paragraph(text: str, x: float = 20, y: float = 30, width: float = 170) -> Draw:
    """A justified paragraph."""

    def draw(out: Any) -> None:
        out.set_xy(x, y)
        out.multi_cell(width, 5, text, align="J")

    return draw


def both(*draws: Draw) -> Draw:
    """All of them on one page."""

    def draw(out: Any) -> None:
        for one in draws:
            one(out)

    return draw


def raw_pdf(*objects: bytes, root: int = 1) -> bytes:
    """A PDF of these objects, numbered from 1, with a table of their places."""
    out = b"%PDF-1.7\n"
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root %d 0 R >>\n" % (len(objects) + 1, root)
    return out + b"startxref\n%d\n%%%%EOF\n" % start


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """A stream object."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


def simple(content: bytes, entries: bytes = b"", kids: bytes = b"3 0 R", count: int = 1) -> bytes:
    """A PDF with one page of that content, or the same page many times."""
    return raw_pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count),
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 5 0 R"
        b" /Resources << /Font << /F 4 0 R >> >> >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>",
        stream(content, entries),
    )
