"""DOCX: paragraphs, lists, tables, notes, tracked changes, hidden text, properties, damage."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.ingest.discover import discover
from corpusmill.pipeline.ingest.reread import RawFile
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from tests.pipeline.ingest.helpers import Result, ingest
from tests.pipeline.ingest.zip_files import WORD, docx_parts, p, packed

STYLES = (
    '<w:style w:styleId="H1"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr></w:style>'
    '<w:style w:styleId="Bullet"><w:name w:val="List Bullet"/><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
    '<w:style w:styleId="Sub"><w:name w:val="Mine"/><w:basedOn w:val="Bullet"/></w:style>'
    '<w:style w:styleId="Loop"><w:basedOn w:val="Loop"/></w:style>'
    '<w:style w:styleId="Gone"><w:name w:val="Hidden"/><w:rPr><w:vanish/></w:rPr></w:style>'
)
CORE = (
    '<c:coreProperties xmlns:c="http://schemas.openxmlformats.org/package/2006/metadata/core-properties"'
    ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:t="http://purl.org/dc/terms/"><dc:title>A &amp; B</dc:title>'
    "<dc:creator>Someone</dc:creator><dc:language>de</dc:language><t:created>2020-01-02T03:04:05Z</t:created>"
    "<t:modified>2021-01-01T00:00:00Z</t:modified></c:coreProperties>"
)


def style(name: str) -> str:
    return f'<w:pStyle w:val="{name}"/>'


def write(folder: Path, data: bytes, name: str = "a.docx") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def rows(result: Result) -> list[tuple[str, str]]:
    return [(row["locator"], row["rule"]) for row in result.decisions]


def text_of(folder: Path, body: str, options: dict[str, Any] | None = None, **parts: str) -> str:
    result = ingest(write(folder, packed(docx_parts(body, **parts))), docx=options or {})
    assert not result.decisions
    (text,) = result.texts
    return text


def test_a_file_of_python_docx(tmp_path: Path) -> None:
    """Its text in order, with lists, a table and properties."""
    import docx

    made = docx.Document()
    made.add_heading("The Heading", 1)
    made.add_paragraph("First ").add_run("bold").bold = True
    for item in ("one", "two"):
        made.add_paragraph(item, style="List Bullet")
    made.add_paragraph("three", style="List Number")
    table = made.add_table(rows=2, cols=2)
    for row in range(2):
        for column in range(2):
            table.cell(row, column).text = f"cell {row}{column}"
    made.add_paragraph("Last\tparagraph\nwith a break")
    made.core_properties.title, made.core_properties.author = "Its title", "Its author"
    made.core_properties.created = datetime.datetime(2020, 5, 6, 7, 8, 9)
    out = io.BytesIO()
    made.save(out)
    for name in ("a.docx", "noname"):
        (doc,) = ingest(write(tmp_path, out.getvalue(), name)).docs
        assert doc["text"] == (
            "The Heading\n\nFirst bold\n\n- one\n- two\n- three\n\ncell 00\tcell 01\ncell 10\tcell 11\n\n"
            "Last\tparagraph\nwith a break"
        )
        assert doc["date"] == "2020-05-06T07:08:09Z" and doc["locator"] == f"{name}#0"
        about = json.loads(doc["metadata"])
        assert about["title"] == "Its title" and about["creator"] == "Its author"


def test_properties(tmp_path: Path) -> None:
    (doc,) = ingest(write(tmp_path, packed(docx_parts(p("text"), core=CORE)))).docs
    assert doc["date"] == "2020-01-02T03:04:05Z" and json.loads(doc["metadata"]) == {
        "title": "A & B", "creator": "Someone", "language": "de", "modified": "2021-01-01T00:00:00Z",
    }  # fmt: skip


def test_lists_by_style_and_by_number(tmp_path: Path) -> None:
    def number(level: int, list_: int = 2) -> str:
        return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{list_}"/></w:numPr>'

    body = (
        p("Heading", properties=style("H1")) + p("a", properties=style("Bullet")) + p("b", properties=style("Sub"))
        + p("c", properties=number(0)) + p("d", properties=number(2)) + p("e", properties=style("Bullet") + number(0, 0))
        + p("f", properties=style("Loop")) + p("g", properties=style("Unknown"))
    )  # fmt: skip
    assert text_of(tmp_path, body, styles=STYLES) == "Heading\n\n- a\n- b\n- c\n    - d\n\ne\n\nf\n\ng"


def test_tables_have_a_line_for_each_row(tmp_path: Path) -> None:
    def table(*rows: tuple[str, ...]) -> str:
        cells = ("".join(f"<w:tc><w:tcPr/>{cell}</w:tc>" for cell in row) for row in rows)
        return f"<w:tbl><w:tblPr/>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"

    inner = table((p("x"), p("y")))
    body = p("before") + table((p("a") + p("b"), p("c")), (p(""), p("")), (inner, p("d"))) + p("after")
    assert text_of(tmp_path, body) == "before\n\na b\tc\nx y\td\n\nafter"
    assert text_of(tmp_path, table((p("one") + p("two"),))) == "one\ntwo"


def test_tracked_changes_fields_and_hidden_text(tmp_path: Path) -> None:
    body = f"""<w:p xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"
     xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">
    <w:pPr><w:tabs><w:tab w:val="left"/></w:tabs><w:pPrChange><w:pPr>{style("Bullet")}</w:pPr></w:pPrChange>
     <w:rPr><w:vanish/></w:rPr></w:pPr>
    <w:r><w:t xml:space="preserve">Kept </w:t></w:r><w:ins><w:r><w:t xml:space="preserve">inserted </w:t></w:r></w:ins>
    <w:del><w:r><w:delText>DELETED</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>MOVED</w:t></w:r></w:moveFrom>
    <w:r><w:fldChar/><w:instrText>PAGE</w:instrText></w:r><w:fldSimple><w:r><w:t xml:space="preserve">field </w:t></w:r></w:fldSimple>
    <w:r><w:rPr><w:vanish/></w:rPr><w:t>HIDDEN</w:t></w:r><w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>seen</w:t></w:r>
    <w:r><w:rPr><w:rStyle w:val="Gone"/></w:rPr><w:t>STYLED</w:t></w:r><w:r><w:noBreakHyphen/><w:tab/></w:r>
    <m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath>
    <w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent><w:r><w:t>Click here</w:t></w:r></w:sdtContent></w:sdt>
    <w:sdt><w:sdtPr/><w:sdtContent><w:r><w:t xml:space="preserve"> control</w:t></w:r></w:sdtContent></w:sdt>
    <w:r><mc:AlternateContent><mc:Choice><w:txbxContent>{p("In a box.")}</w:txbxContent></mc:Choice>
    <mc:Fallback><w:txbxContent>{p("In a box.")}</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>"""
    result = ingest(
        write(tmp_path, packed(docx_parts(body + p("HIDE", properties=style("Gone")), styles=STYLES)))
    )
    assert result.texts == ["In a box.\n\nKept inserted field seen\u2011\tx=1 control"]
    assert result.counters["docx_hidden_characters"] == len("HIDDENSTYLEDHIDE")


NOTE = '<w:r><w:footnoteReference w:id="{}"/></w:r>'
FOOTNOTES = (
    f'<w:footnote w:type="separator" w:id="0">{p("")}</w:footnote>'
    f'<w:footnote w:id="5">{p("Fifth.")}</w:footnote><w:footnote w:id="2">{p("Second,")}{p("longer.")}</w:footnote>'
)


def test_notes_stand_at_the_end(tmp_path: Path) -> None:
    body = (
        f"<w:p><w:r><w:t>One</w:t></w:r>{NOTE.format(2)}<w:r><w:t xml:space='preserve"
        f"'> two</w:t></w:r>{NOTE.format(5)}<w:r><w:endnoteReference w:id='5'/></w:r></w:p>"
    )
    endnotes = f'<w:endnote w:id="5">{p("At the end.")}</w:endnote>'
    text = text_of(tmp_path, body, footnotes=FOOTNOTES, endnotes=endnotes)
    assert text == "One[1] two[2][3]\n\n[1] Second,\n\nlonger.\n\n[2] Fifth.\n\n[3] At the end."
    assert text_of(tmp_path, body, {"notes": "drop"}, footnotes=FOOTNOTES) == "One two"


def test_the_strict_form_and_other_places(tmp_path: Path) -> None:
    parts = docx_parts(p("Strict text."))
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    relations = str(parts["_rels/.rels"]).replace("word/document.xml", "/doc/main.xml")
    body = str(parts["word/document.xml"]).replace(WORD, strict)
    data = packed({"[Content_Types].xml": "<x/>", "_rels/.rels": relations, "doc/main.xml": body})
    assert ingest(write(tmp_path, data)).texts == ["Strict text."]
    del parts["_rels/.rels"]
    assert ingest(write(tmp_path, packed(parts))).texts == ["Strict text."]


def test_a_damaged_part_costs_that_part(tmp_path: Path) -> None:
    parts = docx_parts(
        f"<w:p><w:r><w:t>One</w:t></w:r>{NOTE.format(2)}</w:p>", footnotes=FOOTNOTES, styles="", core=CORE
    )
    del parts["word/styles.xml"]
    parts["word/footnotes.xml"] = parts["docProps/core.xml"] = "<a>"
    result = ingest(write(tmp_path, packed(parts)))
    assert result.texts == ["One[1]"]
    assert rows(result) == [
        ("a.docx#styles", "ingest.missing_part"), ("a.docx#core-properties", "ingest.malformed_xml"),
        ("a.docx#footnotes", "ingest.malformed_xml"),
    ]  # fmt: skip


def test_encrypted_files_and_those_of_old_versions(tmp_path: Path) -> None:
    compound = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600
    assert rows(ingest(write(tmp_path, compound))) == [("a.docx#0", "ingest.encrypted")]
    data = bytearray(packed(docx_parts(p("text")), 0))
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = -1
        while (at := data.find(signature, at + 1)) >= 0:
            data[at + offset] |= 1
    assert rows(ingest(write(tmp_path, bytes(data)))) == [("a.docx#0", "ingest.encrypted")]


def test_archives_that_zipfile_has_not_implemented(tmp_path: Path) -> None:
    """A version of the format that it does not know, and a part that is stored as a patch of another or strongly encrypted."""
    whole = packed(docx_parts(p("text"), core=CORE))
    first = whole.index(b"PK\1\2")
    later = bytearray(whole)
    later[first + 6] = 99
    result = ingest(write(tmp_path, bytes(later)))
    assert rows(result) == [("a.docx#0", "ingest.damaged")]
    at = whole.index(b"docProps/core.xml", first) - 46
    assert whole[at : at + 4] == b"PK\1\2"
    for bit, outcome in ((5, "ingest.damaged"), (6, "ingest.encrypted")):
        flagged = bytearray(whole)
        flagged[at + 8] |= 1 << bit
        result = ingest(write(tmp_path, bytes(flagged)))
        assert result.texts == ["text"] and rows(result) == [("a.docx#core-properties", outcome)]


LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
    "<w:document xmlns:w='x'>&c;</w:document>"
)
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><document>&a;</document>'
REMOTE = '<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd"><document>&a;</document>'


@pytest.mark.parametrize("document", [LAUGHS, EXTERNAL, "<x>", "", "<a>" * 5000, b"\xff\xfe\0"])
def test_hostile_and_broken_xml(tmp_path: Path, document: str | bytes) -> None:
    result = ingest(write(tmp_path, packed(docx_parts("") | {"word/document.xml": document})))
    assert rows(result) == [("a.docx#0", "ingest.malformed_xml")]


def test_nothing_is_fetched_for_a_file(tmp_path: Path) -> None:
    result = ingest(write(tmp_path, packed(docx_parts("") | {"word/document.xml": REMOTE})))
    assert not result.docs and len(result.decisions) == 1


def test_bombs_are_stopped_by_what_they_inflate_to(tmp_path: Path) -> None:
    limit = {"max_record_mb": 0.5}
    long = packed(docx_parts(p("x" * 600_000)))
    assert rows(ingest(write(tmp_path, long), params=limit)) == [("a.docx#0", "ingest.record_too_large")]
    markup = packed(docx_parts("<w:p/>" * 1_000_000))
    assert len(markup) < 60_000
    assert rows(ingest(write(tmp_path, markup), params=limit)) == [("a.docx#0", "ingest.record_too_large")]
    notes = "".join(f'<w:footnote w:id="{n}">{p("y" * 100_000)}</w:footnote>' for n in range(4))
    body = f"<w:p><w:r><w:t>{'x' * 200_000}</w:t></w:r>{''.join(NOTE.format(n) for n in range(4))}</w:p>"
    both = packed(docx_parts(body, footnotes=notes))
    assert rows(ingest(write(tmp_path, both), params=limit)) == [("a.docx#0", "ingest.record_too_large")]


@pytest.mark.parametrize(
    "data", [b"no archive", b"PK\3\4" + b"\0" * 100, b"PK\5\6" + b"\0" * 18, b"PK\5\6" + b"\xff" * 18]
)
def test_what_is_no_archive_has_one_row(tmp_path: Path, data: bytes) -> None:
    result = ingest(write(tmp_path, data))
    assert not result.docs and len(result.decisions) == 1


def test_a_file_without_text(tmp_path: Path) -> None:
    assert rows(ingest(write(tmp_path, packed(docx_parts(p("")))))) == [("a.docx#0", "ingest.empty_text")]


def test_compressed_files_and_reading_again(tmp_path: Path) -> None:
    data = packed(docx_parts(p("Some text.")))
    path = write(tmp_path, gzip.compress(data), "a.docx.gz")
    assert ingest(path).texts == ["Some text."]
    source = Source(paths=[str(path)])
    (file,) = discover("s", source)
    assert RawFile(file, source, IngestParams()).text("0") == "Some text."


def test_other_office_files_are_not_taken_for_it(tmp_path: Path) -> None:
    data = packed({"[Content_Types].xml": "<x/>", "_rels/.rels": "<x/>", "xl/workbook.xml": "<x/>"})
    assert [rule for _, rule in rows(ingest(write(tmp_path, data, "noname")))] == [
        "ingest.unsupported_format"
    ]


def test_mutants_never_end_a_run(tmp_path: Path) -> None:
    draw = random.Random(3)
    parts = docx_parts(p("One.") + p("Two.", properties=style("Bullet")), styles=STYLES, core=CORE)
    seeds = [packed(parts), packed(parts, 0)]
    for number in range(300):
        data = bytearray(draw.choice(seeds))
        for _ in range(draw.choice([1, 2, 10])):
            at = draw.randrange(len(data))
            if draw.random() < 0.7:
                data[at] = draw.randrange(256)
            else:
                del data[at : at + draw.randrange(1, 30)]
        (tmp_path / f"{number:03}.docx").write_bytes(bytes(data))
    result = ingest(tmp_path)
    named = {row["locator"].split("#")[0] for row in [*result.docs, *result.decisions]}
    assert len(named) == 300 and "ingest.unreadable" not in result.rules


TAGS = re.findall(
    r"\w+",
    "p r t tbl tr tc pPr rPr numPr sdt sdtPr sdtContent showingPlcHdr del footnoteReference tab br vanish pStyle",
)


@st.composite
def elements(draw: st.DrawFn, depth: int = 4) -> str:
    """Elements of the vocabulary, nested as no valid file nests them."""
    tag = draw(st.sampled_from(TAGS))
    inner = (
        "".join(draw(st.lists(elements(depth - 1), max_size=3)))
        if depth
        else draw(st.sampled_from(["", "text"]))
    )
    return f'<w:{tag} w:val="{draw(st.sampled_from(["0", "x", "9"]))}">{inner}</w:{tag}>'


@settings(max_examples=200, deadline=None)
@given(st.lists(elements(), max_size=5).map("".join), st.binary(max_size=40))
def test_any_nesting_of_elements(tmp_path_factory: pytest.TempPathFactory, body: str, end: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp(), packed(docx_parts(body, styles=STYLES)) + end, "fuzz.docx")
    result = ingest(path)
    assert (result.docs or result.decisions) and "ingest.unreadable" not in result.rules
