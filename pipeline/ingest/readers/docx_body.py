"""The parts of a DOCX (WordprocessingML, ECMA-376) as text: the body, its styles, its notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from corpusmill.pipeline.ingest.readers.zip_parts import TooLarge

_WORD = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main ",
    "http://purl.oclc.org/ooxml/wordprocessingml/main ",  # of the strict form
)
_MATH = (
    "http://schemas.openxmlformats.org/officeDocument/2006/math ",
    "http://purl.oclc.org/ooxml/officeDocument/math ",
)
_FALLBACK = (
    "http://schemas.openxmlformats.org/markup-compatibility/2006 Fallback"  # the same content once more
)
# Deleted text, the properties that text had before, codes of fields, readings above characters.
_SKIPPED = frozenset(
    (
        "del", "moveFrom", "delText", "instrText", "delInstrText", "rt", "numberingChange",
        "pPrChange", "rPrChange", "tblPrChange", "trPrChange", "tcPrChange", "sectPrChange",
    )
)  # fmt: skip
_PROPERTIES = ("pPr", "rPr", "tcPr", "trPr", "tblPr", "sectPr")
_OFF = ("0", "false", "off")
MAX_STYLES = 32  # of which one is based on the next
MAX_LEVEL = 8
PARAGRAPH, ITEM, ROW = "\n\n", "\n", "\n"


class Style(NamedTuple):
    """What of a style shows in the text; None where it is as in the style that it is based on."""

    based_on: str | None = None
    listed: bool | None = None
    heading: bool | None = None
    vanish: bool | None = None


class Styles:
    """Reads `styles.xml` by the handlers of expat."""

    def __init__(self) -> None:
        self.found: dict[str, Style] = {}
        self._id: str | None = None
        self._style = Style()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name, values = word(tag), values_of(attributes)
        if name == "style":
            self._id, self._style = values.get("styleId", ""), Style()
        elif self._id is None:
            return
        elif name == "basedOn":
            self._style = self._style._replace(based_on=values.get("val"))
        elif name == "name":
            title = values.get("val", "").lower()
            if title.startswith(("heading", "title")):
                self._style = self._style._replace(heading=True)
        elif name == "outlineLvl":
            self._style = self._style._replace(heading=True)
        elif name == "numId":
            self._style = self._style._replace(listed=values.get("val") != "0")
        elif name == "vanish":
            self._style = self._style._replace(vanish=values.get("val") not in _OFF)

    def end(self, tag: str) -> None:
        if word(tag) == "style" and self._id is not None:
            self.found[self._id] = self._style
            self._id = None

    def of(self, name: str | None) -> Style:
        """A style with what it takes over from those that it is based on."""
        style = Style()
        for _ in range(MAX_STYLES):
            found = self.found.get(name or "")
            if found is None:
                break
            style = Style(
                None,
                found.listed if style.listed is None else style.listed,
                found.heading if style.heading is None else style.heading,
                found.vanish if style.vanish is None else style.vanish,
            )
            name = found.based_on
        return style


class _Paragraph:
    def __init__(self) -> None:
        self.text: list[str] = []
        self.style = Style()
        self.level = 0
        self.number: str | None = None  # of its list; "0" takes it out of the list of its style


class _Table:
    def __init__(self) -> None:
        self.rows: list[list[list[str]]] = []  # of cells, of paragraphs


class Body:
    """Reads `document.xml`, or notes, by the handlers of expat. Raises `TooLarge` behind `limit` bytes of text.

    Tracked insertions are text, deletions are not. Of a content control that shows its placeholder nothing is text.
    """

    def __init__(self, styles: Styles, limit: int, marks: bool) -> None:
        self.styles, self.limit, self.marks = styles, limit, marks
        self.hidden = 0  # characters left out
        self.notes: list[tuple[str, str]] = []  # (kind, id), in the order of their marks
        self.parts: dict[str, str] = {}  # id -> text, of a file of notes
        self._blocks: list[str] = []
        self._after_item = False
        self._size = 0
        self._skip = 0  # elements open in what is skipped
        self._properties: list[str] = []  # elements of properties that are open
        self._paragraphs: list[_Paragraph] = []
        self._tables: list[_Table] = []
        self._runs: list[bool] = []  # whether each open run is hidden
        self._in_text = False
        self._placeholders: list[bool] = []
        self._note: str | None = None

    @property
    def text(self) -> str:
        return "".join(self._blocks).strip("\n")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skip:
            self._skip += 1
            return
        name = word(tag)
        if name in _SKIPPED or tag == _FALLBACK:
            self._skip = 1
        elif name in _PROPERTIES:
            self._properties.append(name)
        elif self._properties:
            self._property(name, values_of(attributes))
        elif name == "p":
            self._paragraphs.append(_Paragraph())
        elif name == "r":
            self._runs.append(bool(self._paragraphs and self._paragraphs[-1].style.vanish))
        elif name == "t" or (tag.startswith(_MATH) and tag.endswith(" t")):
            self._in_text = True
        elif name == "tbl":
            self._tables.append(_Table())
        elif name == "tr" and self._tables:
            self._tables[-1].rows.append([])
        elif name == "tc" and self._tables and self._tables[-1].rows:
            self._tables[-1].rows[-1].append([])
        elif name == "sdt":
            self._placeholders.append(False)
        elif name == "showingPlcHdr" and self._placeholders:
            self._placeholders[-1] = values_of(attributes).get("val") not in _OFF
        elif name == "sdtContent" and self._placeholders and self._placeholders[-1]:
            self._skip = 1
        else:
            self._mark(name, values_of(attributes))

    def _property(self, name: str, values: Mapping[str, str]) -> None:
        value, of = values.get("val", ""), self._properties[0]
        if of == "pPr" and self._paragraphs:
            paragraph = self._paragraphs[-1]
            if name == "pStyle":
                paragraph.style = self.styles.of(value)
            elif name == "numId":
                paragraph.number = value
            elif name == "ilvl" and value.isdecimal():
                paragraph.level = min(int(value[:3]), MAX_LEVEL)
        elif of == "rPr" and self._runs:
            vanish = self.styles.of(value).vanish if name == "rStyle" else None
            if name == "vanish":
                self._runs[-1] = value not in _OFF
            elif vanish is not None:
                self._runs[-1] = vanish

    def _mark(self, name: str, values: Mapping[str, str]) -> None:
        """What stands for characters in a run, and references to notes."""
        if name in ("footnote", "endnote"):
            self._note = None if "type" in values else values.get("id")
            self._blocks, self._after_item = [], False
        elif not self._runs:
            return
        elif name in ("footnoteReference", "endnoteReference") and self.marks and not self._runs[-1]:
            self.notes.append((name.removesuffix("Reference"), values.get("id", "")))
            self._add(f"[{len(self.notes)}]")
        elif name == "tab":
            self._add("\t")
        elif name in ("br", "cr"):
            self._add("\n")
        elif name == "noBreakHyphen":
            self._add("\u2011")

    def end(self, tag: str) -> None:
        if self._skip:
            self._skip -= 1
            return
        name = word(tag)
        if name in _PROPERTIES:
            self._properties.pop()
        elif name == "t" or tag.startswith(_MATH):
            self._in_text = False
        elif self._properties:
            return
        elif name == "r" and self._runs:
            self._runs.pop()
        elif name == "p" and self._paragraphs:
            self._end_of_paragraph(self._paragraphs.pop())
        elif name == "tbl" and self._tables:
            self._end_of_table(self._tables.pop())
        elif name == "sdt" and self._placeholders:
            self._placeholders.pop()
        elif name in ("footnote", "endnote") and self._note is not None:
            self.parts[self._note] = self.text
            self._note = None

    def characters(self, data: str) -> None:
        if self._in_text and not self._skip:
            self._add(data)

    def _add(self, text: str) -> None:
        if not self._paragraphs:
            return
        if self._runs and self._runs[-1]:
            self.hidden += len(text)
            return
        self._size += len(text.encode("utf-8", "replace"))
        if self._size > self.limit:
            raise TooLarge(self._size)
        self._paragraphs[-1].text.append(text)

    def _end_of_paragraph(self, paragraph: _Paragraph) -> None:
        text = "".join(paragraph.text).strip()
        if not text:
            return
        listed = paragraph.number != "0" if paragraph.number is not None else bool(paragraph.style.listed)
        item = listed and not paragraph.style.heading
        if item:
            text = "  " * paragraph.level + "- " + text
        if self._tables and self._tables[-1].rows and self._tables[-1].rows[-1]:
            self._tables[-1].rows[-1][-1].append(text)
            return
        self._block(text, ITEM if item and self._after_item else PARAGRAPH)
        self._after_item = item

    def _end_of_table(self, table: _Table) -> None:
        lines = []
        for row in table.rows:
            if len(row) == 1:
                line = "\n".join(row[0])
            else:
                line = "\t".join(" ".join(" ".join(cell).split()) for cell in row).rstrip()
            if line.strip():
                lines.append(line)
        text = ROW.join(lines)
        if not text:
            return
        if self._tables and self._tables[-1].rows and self._tables[-1].rows[-1]:
            self._tables[-1].rows[-1][-1].append(text)
        else:
            self._block(text, PARAGRAPH)
            self._after_item = False

    def _block(self, text: str, before: str) -> None:
        self._blocks += [before, text]


def word(tag: str) -> str:
    """The local name of an element of WordprocessingML; "" for one of another vocabulary."""
    return tag.rpartition(" ")[2] if tag.startswith(_WORD) else ""


def values_of(attributes: Mapping[str, str]) -> dict[str, str]:
    """Attributes by their local names."""
    return {name.rpartition(" ")[2]: value for name, value in attributes.items()}
