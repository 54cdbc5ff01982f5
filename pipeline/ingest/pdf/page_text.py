"""The visible text of one PDF page, as pieces of lines with their boxes. Runs in the worker process only.

PDFium gives a page's characters in the order of its content stream, with spaces and line ends put in where their positions
ask for them. The boxes are asked for once per run of characters of one text object, not once per character.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium

HYPHEN = "\ufffe"  # PDFium's mark for a hyphen at the end of a line, which it takes for a part of the word
_INVISIBLE = (pdfium.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium.FPDF_TEXTRENDERMODE_CLIP)
_STROKED = pdfium.FPDF_TEXTRENDERMODE_STROKE
WHITE = 250  # of 255: a colour whose parts are all as much cannot be seen on white
TINY = 0.5  # points: text lower than this cannot be seen
# Of the height of a line: a wider gap ends a piece (it may be the space between columns).
GAP = 0.7
OCR_IMAGE = 0.5  # share of a page that its images cover if it is a scan
OCR_VISIBLE = 0.1  # visible characters for each invisible one, at most, on a scanned page
MAX_DEPTH = 8  # of form objects in form objects
MAX_OBJECTS = 100_000  # looked at for what lies behind white text


class Box(NamedTuple):
    """A rectangle on the page as shown, in points; y grows upwards."""

    x0: float
    y0: float
    x1: float
    y1: float

    def union(self, other: Box) -> Box:
        return Box(
            min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1)
        )


class Piece(NamedTuple):
    """A line of text, or the part of it before a wide gap. `hyphen`: it ends with one that PDFium takes for a line end's."""

    text: str
    box: Box
    height: float  # of its characters, points
    hyphen: bool = False
    vertical: bool = False


class PageText(NamedTuple):
    """`counts`: `hidden` characters left out, and `ocr` (1) for a scanned page."""

    pieces: list[Piece]
    width: float
    height: float
    counts: Counter[str]


class TooLong(Exception):
    """The page has more characters than a record may have bytes."""

    def __init__(self, characters: int) -> None:
        super().__init__(characters)
        self.characters = characters


class _Run(NamedTuple):
    """Characters of one text object. `hidden`: why they cannot be seen, or ""."""

    start: int
    end: int
    box: Box
    height: float
    vertical: bool
    hidden: str


def page_text(page: Any, keep_hidden: bool, limit: int) -> PageText:
    """The text of a `pypdfium2.PdfPage`. Raises `TooLong` if it has more than `limit` characters."""
    textpage = page.get_textpage()
    try:
        return _Page(page, textpage, limit).text(keep_hidden)
    finally:
        textpage.close()


class _Page:
    def __init__(self, page: Any, textpage: Any, limit: int) -> None:
        self.raw = page.raw
        self.count = max(pdfium.FPDFText_CountChars(textpage.raw), 0)
        if self.count > limit:
            raise TooLong(self.count)
        self.textpage = ctypes.cast(textpage.raw, ctypes.c_void_p).value
        self.turns = pdfium.FPDFPage_GetRotation(self.raw) % 4
        bounds = pdfium.FS_RECTF()
        pdfium.FPDF_GetPageBoundingBox(self.raw, bounds)
        self.origin = (bounds.left, bounds.bottom)
        self.size = (bounds.right - bounds.left, bounds.top - bounds.bottom)
        shown = self._shown(bounds.left, bounds.bottom, bounds.right, bounds.top)
        self.width, self.height = shown.x1, shown.y1
        self._seen: dict[int, str] = {}
        self._backgrounds: list[Box] | None = None
        self._images = 0.0

    def text(self, keep_hidden: bool) -> PageText:
        chars = self._characters()
        lines = [list(self._runs(chars, start, end)) for start, end in _lines(chars)]
        characters: Counter[str] = Counter()
        for line in lines:
            for run in line:
                characters[run.hidden] += run.end - run.start
        hidden = {name: n for name, n in characters.items() if name}
        counts: Counter[str] = Counter()
        keep = set(hidden) if keep_hidden else set[str]()
        if characters["invisible"] > 0 and characters[""] < OCR_VISIBLE * characters["invisible"]:
            self._look()
            if self._images >= OCR_IMAGE * self.size[0] * self.size[1]:
                keep.add("invisible")
                counts["ocr"] = 1
        counts["hidden"] = sum(n for name, n in hidden.items() if name not in keep)
        pieces = [
            piece
            for line in lines
            for piece in _pieces(chars, [run for run in line if not run.hidden or run.hidden in keep])
        ]
        return PageText(pieces, self.width, self.height, counts)

    def _characters(self) -> str:
        """All characters, one for each index of PDFium's."""
        buffer = (ctypes.c_ushort * (self.count + 1))()
        taken = _TEXT(self.textpage, 0, self.count, ctypes.addressof(buffer))
        if taken == self.count + 1:
            text = bytes(buffer)[: 2 * self.count].decode("utf-16-le", "surrogatepass")
            if len(text) != self.count:  # pairs of surrogates, which are two characters to PDFium
                text = "".join(map(chr, buffer[: self.count]))
        else:  # characters without a Unicode value are left out of that buffer, and others take two places in it
            text = "".join(_character(_UNICODE(self.textpage, index)) for index in range(self.count))
        return text.replace("\x02", HYPHEN)

    def _runs(self, chars: str, start: int, end: int) -> Iterator[_Run]:
        """Runs of a line of PDFium's."""
        while start < end:
            if chars[start].isspace():
                start += 1
                continue
            owner = _OBJECT(self.textpage, start)
            stop = self._end_of_run(owner, start, end)
            last = stop - 1
            while chars[last].isspace():
                last -= 1
            first_box, last_box = self._box(start), self._box(last)
            box = first_box.union(last_box)
            across = abs(first_box.x0 + first_box.x1 - last_box.x0 - last_box.x1)
            along = abs(first_box.y0 + first_box.y1 - last_box.y0 - last_box.y1)
            vertical = last > start and along > across
            height = min(
                first_box.x1 - first_box.x0 if vertical else first_box.y1 - first_box.y0, box.y1 - box.y0
            )
            yield _Run(start, last + 1, box, height, vertical, self._hidden(owner, box, start, chars))
            start = stop

    def _end_of_run(self, owner: int | None, start: int, end: int) -> int:
        """Behind the last character of the same text object: by doubling steps, then by halving them."""
        low, step = start, 8  # `low` has the owner
        while low + step < end and _OBJECT(self.textpage, low + step) == owner:
            low += step
            step *= 2
        high = min(low + step, end)  # nothing from here on has it
        while high - low > 1:
            middle = (low + high) // 2
            if _OBJECT(self.textpage, middle) == owner:
                low = middle
            else:
                high = middle
        return high

    def _box(self, index: int) -> Box:
        """The box of a character from the font's descent to its ascent, as shown."""
        found = pdfium.FS_RECTF()
        _LOOSE_BOX(self.textpage, index, ctypes.addressof(found))
        return self._shown(found.left, found.bottom, found.right, found.top)

    def _shown(self, left: float, bottom: float, right: float, top: float) -> Box:
        """A box of the page's own coordinates, on the page as shown: turned, and its corner at the origin."""
        x0, x1 = sorted((left - self.origin[0], right - self.origin[0]))
        y0, y1 = sorted((bottom - self.origin[1], top - self.origin[1]))
        width, height = self.size
        if self.turns == 1:
            return Box(y0, width - x1, y1, width - x0)
        if self.turns == 2:
            return Box(width - x1, height - y1, width - x0, height - y0)
        if self.turns == 3:
            return Box(height - y1, x0, height - y0, x1)
        return Box(x0, y0, x1, y1)

    def _hidden(self, owner: int | None, box: Box, index: int, chars: str) -> str:
        if owner:
            if owner not in self._seen:
                self._seen[owner] = _paint(owner)
            paint = self._seen[owner]
            if paint == "invisible" or (paint == "white" and not self._behind(box)):
                return paint
        if box.x1 < 0 or box.y1 < 0 or box.x0 > self.width or box.y0 > self.height:
            return "outside"
        if box.y1 - box.y0 < TINY and chars[index].isalnum():
            tight = (ctypes.c_double * 4)()
            at = ctypes.addressof(tight)
            _TIGHT_BOX(self.textpage, index, at, at + 8, at + 16, at + 24)  # left, right, bottom, top
            if abs(tight[3] - tight[2]) < TINY and abs(tight[1] - tight[0]) < TINY:
                return "tiny"
        return ""

    def _behind(self, box: Box) -> bool:
        """Whether something that is not white is painted where the middle of the box is."""
        x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        return any(b.x0 <= x <= b.x1 and b.y0 <= y <= b.y1 for b in self._look())

    def _look(self) -> list[Box]:
        """Boxes of all painted objects but text and what is white; measures the images."""
        if self._backgrounds is None:
            self._backgrounds = []
            count = min(pdfium.FPDFPage_CountObjects(self.raw), MAX_OBJECTS)
            for index in range(count):
                found = pdfium.FPDFPage_GetObject(self.raw, index)
                kinds = _painted(found, 0)
                if not kinds:
                    continue
                left, bottom, right, top = (ctypes.c_float() for _ in range(4))
                if pdfium.FPDFPageObj_GetBounds(found, left, bottom, right, top):
                    box = self._shown(left.value, bottom.value, right.value, top.value)
                    self._backgrounds.append(box)
                    if "image" in kinds:
                        width = min(box.x1, self.width) - max(box.x0, 0)
                        height = min(box.y1, self.height) - max(box.y0, 0)
                        self._images += max(width, 0) * max(height, 0)
        return self._backgrounds


def _lines(chars: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each of PDFium's lines; one that ends with a hyphen includes it."""
    return (found.span() for found in _LINE.finditer(chars))


def _pieces(chars: str, runs: list[_Run]) -> Iterator[Piece]:
    """Runs joined where they stand side by side on one line."""
    begin = 0
    for at in range(1, len(runs) + 1):
        if at == len(runs) or not _beside(runs[at - 1], runs[at]):
            group = runs[begin:at]
            begin = at
            text, box = "", group[0].box
            for number, run in enumerate(group):
                before = group[number - 1].end if number else run.start
                between = chars[before : run.start]
                # What was left out in between (hidden text) leaves a space.
                text += ("" if not between else " ") + chars[run.start : run.end]
                box = box.union(run.box)
            hyphen = text.endswith(HYPHEN)
            text = " ".join(_paired(text).replace(HYPHEN, "-").split())
            height = max(run.height for run in group)
            yield Piece(text, box, height, hyphen, any(run.vertical for run in group))


def _beside(one: _Run, other: _Run) -> bool:
    """Whether two runs stand on one line without a wide gap, in either direction of writing."""
    if one.vertical or other.vertical:
        return one.vertical and other.vertical
    height = max(one.height, other.height)
    apart = max(other.box.x0 - one.box.x1, one.box.x0 - other.box.x1)
    overlap = min(one.box.y1, other.box.y1) - max(one.box.y0, other.box.y0)
    return apart <= GAP * height and overlap >= 0.3 * min(one.height, other.height)


def _paint(text_object: int) -> str:
    """`invisible` (not painted at all), `white`, or ""."""
    owner = ctypes.cast(text_object, pdfium.FPDF_PAGEOBJECT)
    mode = pdfium.FPDFTextObj_GetTextRenderMode(owner)
    if mode in _INVISIBLE:
        return "invisible"
    return "white" if mode != _STROKED and _is_white(owner) else ""


def _is_white(owner: Any) -> bool:
    """Whether an object is filled with white, or with nothing at all."""
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    if not pdfium.FPDFPageObj_GetFillColor(owner, red, green, blue, alpha):
        return False
    return alpha.value == 0 or min(red.value, green.value, blue.value) >= WHITE


def _painted(found: Any, depth: int) -> set[str]:
    """What an object paints besides text and white: image, path."""
    kind = pdfium.FPDFPageObj_GetType(found)
    if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
        return {"image"}
    if kind == pdfium.FPDF_PAGEOBJ_SHADING:
        return {"path"}
    if kind == pdfium.FPDF_PAGEOBJ_PATH:
        mode, stroke = ctypes.c_int(), ctypes.c_int()
        filled = pdfium.FPDFPath_GetDrawMode(found, mode, stroke) and mode.value
        return {"path"} if filled and not _is_white(found) else set()
    if kind != pdfium.FPDF_PAGEOBJ_FORM or depth >= MAX_DEPTH:
        return set()
    kinds: set[str] = set()
    for index in range(min(pdfium.FPDFFormObj_CountObjects(found), 1000)):
        kinds |= _painted(pdfium.FPDFFormObj_GetObject(found, index), depth + 1)
    return kinds


def _character(code: int) -> str:
    return chr(code) if 0 < code < 0x110000 else "\ufffd"


def _paired(text: str) -> str:
    """Pairs of surrogates as characters, lone ones as U+FFFD."""
    return (
        text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


_LINE = re.compile(f"[^\r\n{HYPHEN}]*{HYPHEN}|[^\r\n{HYPHEN}]+")


def _plain(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of PDFium without the checks and wrappers of pypdfium2's types: a third of the time of a call."""
    address = ctypes.cast(getattr(pdfium, name), ctypes.c_void_p).value
    assert address is not None
    return ctypes.CFUNCTYPE(result, *arguments)(address)


_VOID = ctypes.c_void_p
_OBJECT = _plain("FPDFText_GetTextObject", _VOID, _VOID, ctypes.c_int)
_UNICODE = _plain("FPDFText_GetUnicode", ctypes.c_uint, _VOID, ctypes.c_int)
_TEXT = _plain("FPDFText_GetText", ctypes.c_int, _VOID, ctypes.c_int, ctypes.c_int, _VOID)
_LOOSE_BOX = _plain("FPDFText_GetLooseCharBox", ctypes.c_int, _VOID, ctypes.c_int, _VOID)
_TIGHT_BOX = _plain("FPDFText_GetCharBox", ctypes.c_int, _VOID, ctypes.c_int, *[_VOID] * 4)
