"""Pieces of lines in reading order: columns one after the other, lines of a paragraph marked as belonging together.

A page is cut as in the recursive XY-cut (Nagy & Seth 1984), but at a gutter alone: a strip that few pieces cross, with prose on
both sides of it. Pieces that cross it (titles, wide figures' captions) divide the columns into bands, read from top to bottom.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from corpusmill.pipeline.ingest.pdf.page_text import Piece

JOINED, SAME_WORD, LINE, PARAGRAPH = " ", "", "\n", "\n\n"  # what stands between a line and the one before it

STRIPS = 200  # places across a region at which a gutter is looked for
MAX_CROSSING = 0.5  # share of a region's pieces that cross a gutter
MIN_LINES = 3  # of a column
PROSE_CHARS = 15  # median length of a column's pieces; those of a table's are shorter
PROSE_WIDTH = 0.5  # of the column's width, the median piece
MAX_COLUMNS = 16
MAX_PIECES = 20_000  # more are left in the order of the content stream
PARAGRAPH_WIDTH = 0.3  # of the page: what is narrower and no column is no paragraph whose lines are full
# In heights of a line.
INDENT = 0.6
CELL_GAP = 1.5
FULL = 0.6  # what a line that is full may lack, besides the next word
NEW_SIZE = 1.15  # a height larger or smaller by this factor begins a paragraph
NEW_GAP = 1.35  # so does a distance larger than the usual one by this factor
FEW, FEW_PITCH = 3, 1.3  # the usual distance of so few lines is at most that
EDGE = 0.15  # share of the page's height at its top and bottom in which headers and footers stand
EDGE_ROWS = 2

_MARKER = re.compile(r"(?:[•‣▪▫●○◦∙·–—*\-]|\(?(?:\d{1,2}|[a-zA-Z])[.)])\s+\S")
_RTL = ("R", "AL")
_ENDS = tuple(".!?:;。！？”\"'")


class Line(NamedTuple):
    """A line of text. `before` stands between it and the line before; `edge`: whether it is at the page's `top` or `bottom`;
    `size`: the height of its characters, points."""

    text: str
    before: str
    edge: str = ""
    size: int = 0


class _Row(NamedTuple):
    """Pieces side by side."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    height: float
    hyphen: bool
    cells: int


class _Region(NamedTuple):
    """Pieces that are read row by row. `column`: they are one of several columns."""

    pieces: list[Piece]
    column: bool


def arrange(pieces: Sequence[Piece], width: float, height: float) -> list[Line]:
    """The lines of a page of `width` times `height` points, in reading order; text that runs up or down comes last."""
    upright = [piece for piece in pieces if not piece.vertical]
    vertical = [Line(piece.text, PARAGRAPH) for piece in pieces if piece.vertical]
    if len(upright) > MAX_PIECES:
        return [*(Line(piece.text, LINE) for piece in upright), *vertical]
    lines: list[Line] = []
    before: list[_Row] = []
    edges = _edges(upright, height)
    for region in _regions(upright, MAX_COLUMNS):
        rows = _rows(region.pieces)
        right = max(row.x1 for row in rows)
        if not region.column:
            right = max(right, min(row.x0 for row in rows) + PARAGRAPH_WIDTH * width)
        if before and _goes_on(before, rows[0]):
            first = SAME_WORD if before[-1].hyphen else JOINED
        else:
            first = PARAGRAPH
        separators = [first, *_separators(rows, right)]
        for row, separator in zip(rows, separators, strict=True):
            if separator == SAME_WORD and lines:
                separator = _unhyphenate(lines, row.text)
            lines.append(Line(row.text, separator, _edge(row, edges), round(row.height)))
        before = rows
    return [*lines, *vertical]


def _unhyphenate(lines: list[Line], following: str) -> str:
    """Take the hyphen off the last line if the word goes on in small letters; what then stands between the two."""
    last = lines[-1]
    if following[:1].islower() and last.text.endswith("-") and last.text[-2:-1].isalpha():
        lines[-1] = last._replace(text=last.text[:-1])
    return SAME_WORD


def _regions(pieces: list[Piece], depth: int, column: bool = False) -> Iterator[_Region]:
    """Columns, and what stands across them, in reading order."""
    gutter = _gutter(pieces) if depth > 1 else None
    if gutter is None:
        if pieces:
            yield _Region(pieces, column)
        return
    across = sorted((p for p in pieces if p.box.x0 < gutter < p.box.x1), key=lambda p: -p.box.y1)
    columns = sorted((p for p in pieces if not p.box.x0 < gutter < p.box.x1), key=lambda p: -p.box.y1)
    # Bands: what stands across, and the columns between two such, as their middles lie one above the other.
    bands: list[tuple[bool, list[Piece]]] = []
    taken = 0
    for piece in across:
        middle = (piece.box.y0 + piece.box.y1) / 2
        start = taken
        while taken < len(columns) and (columns[taken].box.y0 + columns[taken].box.y1) / 2 > middle:
            taken += 1
        if taken > start:
            bands.append((False, columns[start:taken]))
        if bands and bands[-1][0]:
            bands[-1][1].append(piece)
        else:
            bands.append((True, [piece]))
    if columns[taken:]:
        bands.append((False, columns[taken:]))
    for wide, band in bands:
        if wide:
            yield _Region(band, column)
            continue
        left = [p for p in band if p.box.x1 <= gutter]
        right = [p for p in band if p.box.x1 > gutter]
        if _is_beside(left, right):
            yield from _regions(left, depth - 1, True)
            yield from _regions(right, depth - 1, True)
        else:
            yield _Region(band, column)


def _is_beside(left: list[Piece], right: list[Piece]) -> bool:
    """Whether both hold enough lines to be read one after the other; else they are two halves of a few rows."""
    return len(left) >= MIN_LINES or len(right) >= MIN_LINES


def _gutter(pieces: list[Piece]) -> float | None:
    """The middle of the emptiest and then leftmost strip between two columns of prose; None without one."""
    if len(pieces) < 2 * MIN_LINES:
        return None
    x0, x1 = min(p.box.x0 for p in pieces), max(p.box.x1 for p in pieces)
    if x1 - x0 < 1:
        return None
    scale = STRIPS / (x1 - x0)
    changes = [0] * (STRIPS + 2)
    for piece in pieces:
        changes[max(int((piece.box.x0 - x0) * scale), 0)] += 1
        changes[min(int((piece.box.x1 - x0) * scale) + 1, STRIPS + 1)] -= 1
    crossing, now = [], 0
    for change in changes[:STRIPS]:
        now += change
        crossing.append(now)
    most = MAX_CROSSING * len(pieces)
    candidates: list[tuple[int, float]] = []
    start = 0
    for at in range(1, STRIPS + 1):
        if at == STRIPS or crossing[at] != crossing[start]:
            lower = (start == 0 or crossing[start - 1] > crossing[start]) and (
                at == STRIPS or crossing[at] > crossing[start]
            )
            if lower and crossing[start] <= most:
                candidates.append((crossing[start], x0 + (start + at) / 2 / scale))
            start = at
    for _, place in sorted(candidates)[:MAX_COLUMNS]:
        left = [p for p in pieces if p.box.x1 <= place]
        right = [p for p in pieces if p.box.x0 >= place]
        if _is_prose(left) and _is_prose(_first_column(right)) and _overlap(left, right):
            return place
    return None


def _first_column(pieces: list[Piece]) -> list[Piece]:
    """Those that begin on the left."""
    if not pieces:
        return []
    edge = min(p.box.x0 for p in pieces) + 3 * median(p.height for p in pieces)
    return [p for p in pieces if p.box.x0 <= edge]


def _is_prose(column: list[Piece]) -> bool:
    """Whether these are lines of text rather than cells of a table, numbers or labels."""
    if len(column) < MIN_LINES:
        return False
    width = max(p.box.x1 for p in column) - min(p.box.x0 for p in column)
    wide = median(p.box.x1 - p.box.x0 for p in column) >= PROSE_WIDTH * width
    # A character of Chinese or Japanese is as wide as two.
    chars = median(len(p.text) + sum(char > "\u2e80" for char in p.text) for p in column)
    return wide and chars >= PROSE_CHARS


def _overlap(left: list[Piece], right: list[Piece]) -> bool:
    """Whether two columns stand beside each other, not one below the other."""
    top = min(max(p.box.y1 for p in left), max(p.box.y1 for p in right))
    bottom = max(min(p.box.y0 for p in left), min(p.box.y0 for p in right))
    return top - bottom > MIN_LINES * median(p.height for p in left) * 0.8


def _rows(region: list[Piece]) -> list[_Row]:
    """Pieces of a region in lines, from top to bottom."""
    rows: list[list[Piece]] = []
    for piece in sorted(region, key=lambda p: (-(p.box.y0 + p.box.y1), p.box.x0)):
        if rows:
            first = rows[-1][0].box
            overlap = min(first.y1, piece.box.y1) - max(first.y0, piece.box.y0)
            if overlap > 0.5 * min(first.y1 - first.y0, piece.box.y1 - piece.box.y0):
                rows[-1].append(piece)
                continue
        rows.append([piece])
    return [_row(row) for row in rows]


def _row(pieces: list[Piece]) -> _Row:
    pieces.sort(key=lambda p: p.box.x0)
    if sum(map(_is_rtl, pieces)) * 2 > len(pieces):
        pieces.reverse()
    text = " ".join(piece.text for piece in pieces)
    box = pieces[0].box
    for piece in pieces[1:]:
        box = box.union(piece.box)
    height = max(p.height for p in pieces)
    cells = 1 + sum(b.box.x0 - a.box.x1 > CELL_GAP * height for a, b in pairwise(pieces))
    return _Row(text, *box, height, pieces[-1].hyphen, cells)


def _is_rtl(piece: Piece) -> bool:
    return any(char > "\u0590" and unicodedata.bidirectional(char) in _RTL for char in piece.text[:8])


def _separators(rows: list[_Row], right: float) -> Iterator[str]:
    """What stands before each row of a region but its first."""
    distances = [above.y0 - below.y0 for above, below in pairwise(rows)]
    usual = median(distances) if distances else 0.0
    if len(distances) < FEW:  # then it may well be a gap itself
        usual = min(usual, FEW_PITCH * median(row.height for row in rows))
    margin = _margin(rows)
    hanging = _is_hanging(rows, margin)
    for at, (above, below) in enumerate(pairwise(rows), 1):
        height = min(above.height, below.height)
        if hanging:
            begins = below.x0 < margin + INDENT * height and not above.hyphen
        else:
            begins = _begins(rows, at, margin, height)
        if distances[at - 1] > NEW_GAP * usual or _other_size(above, below):
            yield PARAGRAPH
        elif _is_item(above, below, right) or (above.cells > 1 and below.cells > 1):
            yield LINE
        elif begins:
            yield PARAGRAPH
        elif above.hyphen:
            yield SAME_WORD
        else:
            yield JOINED if _is_full(above, below, right) else LINE


def _other_size(above: _Row, below: _Row) -> bool:
    low, high = sorted((max(above.height, 0.1), max(below.height, 0.1)))
    return high > NEW_SIZE * low and not above.hyphen


def _is_item(above: _Row, below: _Row, right: float) -> bool:
    """Whether a row begins an item of a list."""
    if not _MARKER.match(below.text):
        return False
    return (
        _MARKER.match(above.text) is not None
        or above.text.endswith(_ENDS)
        or not _is_full(above, below, right)
    )


def _margin(rows: list[_Row]) -> float:
    """Where the lines of a region begin on the left, but for a few that stand out."""
    return sorted(row.x0 for row in rows)[len(rows) // 20]


def _is_hanging(rows: list[_Row], margin: float) -> bool:
    """Whether most lines are indented and the others begin an entry, as in a bibliography."""
    indented = sum(row.x0 > margin + INDENT * row.height for row in rows)
    return len(rows) > 3 and 0.55 * len(rows) < indented < len(rows) - 1


def _begins(rows: list[_Row], at: int, margin: float, height: float) -> bool:
    """Whether a row begins a paragraph by its indent, or by being the first behind indented rows."""
    above, below = rows[at - 1], rows[at]
    inside, over = below.x0 > margin + INDENT * height, above.x0 > margin + INDENT * height
    if inside and not over:
        return _MARKER.match(above.text) is None
    if over and not inside and at > 1:
        return abs(rows[at - 2].x0 - above.x0) < INDENT * height and _MARKER.match(rows[at - 2].text) is None
    return False


def _is_full(above: _Row, below: _Row, right: float) -> bool:
    """Whether a row ends only because the first word of the next did not fit."""
    word = len(below.text.split(" ", 1)[0]) + 1
    needs = word * (below.x1 - below.x0) / max(len(below.text), 1)
    return above.x1 + needs > right - FULL * above.height


def _goes_on(before: list[_Row], first: _Row) -> bool:
    """Whether a paragraph at the end of a region goes on in the next one."""
    last = before[-1]
    if _other_size(last, first) or first.y1 < last.y0:
        return False
    if last.hyphen:
        return first.text[:1].islower()
    full = _is_full(last, first, max(row.x1 for row in before))
    return full and not last.text.endswith(_ENDS) and first.text[:1].islower()


def _edges(pieces: Sequence[Piece], height: float) -> tuple[float, float]:
    """Of the first and last rows of a page those near its edges: what lies above the first value, or below the second."""
    rows = _rows(list(pieces))
    top = [row.y0 for row in rows[:EDGE_ROWS] if row.y0 > (1 - EDGE) * height]
    bottom = [row.y1 for row in rows[-EDGE_ROWS:] if row.y1 < EDGE * height]
    return min(top, default=height), max(bottom, default=0.0)


def _edge(row: _Row, edges: tuple[float, float]) -> str:
    middle = (row.y0 + row.y1) / 2
    return "top" if middle > edges[0] else "bottom" if middle < edges[1] else ""
