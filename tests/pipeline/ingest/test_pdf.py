"""PDF: pages and their text, what cannot be seen, headers, metadata, options."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pypdfium2
import pytest

from corpusmill.common.errors import UserError
from corpusmill.pipeline.ingest.discover import discover
from corpusmill.pipeline.ingest.reread import RawFile
from corpusmill.pipeline.ingest.stage import Ingest
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from tests.pipeline.ingest.helpers import Result, ingest
from tests.pipeline.ingest.pdf_files import both, lines, paragraph, pdf, sentence, simple


def write(folder: Path, data: bytes, name: str = "a.pdf") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def rows(result: Result) -> list[tuple[str, str]]:
    return [(row["locator"], row["rule"]) for row in result.decisions]


def test_a_simple_page_reads_as_in_pdfium(tmp_path: Path) -> None:
    texts = [f"Line {n} is one of many lines." for n in range(6)]
    path = write(tmp_path, pdf(lines(*texts)))
    with pypdfium2.PdfDocument(path) as document:
        theirs = document[0].get_textpage().get_text_bounded()
    (ours,) = ingest(path).texts
    assert ours.split() == theirs.split() and ours.split("\n") == texts


def test_lines_of_a_paragraph_are_joined_and_paragraphs_kept_apart(tmp_path: Path) -> None:
    first, second = sentence(1, 120), sentence(2, 90)
    result = ingest(write(tmp_path, pdf(both(paragraph(first), paragraph(second, y=90)))))
    assert result.texts == [f"{first}\n\n{second}"]


def test_pages_are_one_document_or_one_each(tmp_path: Path) -> None:
    texts = [sentence(n, 60) for n in range(4)]
    pages = [paragraph(text) for text in texts]
    path = write(tmp_path, pdf(*pages[:2], lambda out: None, *pages[2:], title="A title", author="Someone"))
    whole = ingest(path)
    assert whole.texts == ["\n\n".join(texts)] and whole.locators() == ["a.pdf#0"] and not whole.decisions
    assert whole.docs[0]["date"] == "2021-05-06T07:08:09Z"
    about = {"title": "A title", "author": "Someone", "pages": 5}
    assert json.loads(whole.docs[0]["metadata"]) == about and whole.counters["pdf_pages"] == 5
    each = ingest(path, pdf={"pages": "each"})
    assert each.texts == texts and each.locators() == [f"a.pdf#{n}" for n in (1, 2, 4, 5)]
    assert json.loads(each.docs[2]["metadata"]) == {**about, "page": 4}
    assert rows(each) == [("a.pdf#3", "ingest.empty_text")]


def test_two_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    """Whether the file holds them column by column or line by line."""
    title, foot = (
        "A title across both of the columns of this page",
        "A note below that is as wide as both columns are, or nearly",
    )
    left, right = (
        [f"{side} column line {n} with some words" for n in range(30)] for side in ("left", "right")
    )

    def by_column(out: Any) -> None:
        lines(title, x=40, y=20)(out)
        lines(*left, x=20, y=40)(out)
        lines(*right, x=110, y=40)(out)
        lines(foot, x=30, y=230)(out)

    def by_line(out: Any) -> None:
        lines(title, x=40, y=20)(out)
        for n, (one, other) in enumerate(zip(left, right, strict=True)):
            lines(one, x=20, y=40 + 5 * n)(out)
            lines(other, x=110, y=40 + 5 * n)(out)
        lines(foot, x=30, y=230)(out)

    for draw in (by_column, by_line):
        (text,) = ingest(write(tmp_path, pdf(draw))).texts
        assert text.replace("\n", " ").split() == " ".join([title, *left, *right, foot]).split()


def test_three_columns_and_a_heading_between(tmp_path: Path) -> None:
    def column(name: str, x: float, y: float) -> Any:
        return lines(*(f"{name}{n} column of few words" for n in range(12)), x=x, y=y)

    heading = "A heading that goes across all three of the columns on this page of the test"
    page = both(
        *(column(f"a{side}", 15 + 62 * side, 30) for side in range(3)),
        lines(heading, x=30, y=100),
        *(column(f"b{side}", 15 + 62 * side, 115) for side in range(3)),
    )
    (text,) = ingest(write(tmp_path, pdf(page))).texts
    words = [word for word in text.split() if word[0] in "ab" and word[-1].isdigit()]
    assert words == [f"{band}{side}{n}" for band in "ab" for side in range(3) for n in range(12)]
    assert text.index("a211") < text.index(heading) < text.index("b00")


def test_a_table_is_read_row_by_row(tmp_path: Path) -> None:
    cells = [[f"name {n}", f"{n * 37}", f"{n * 11}.5"] for n in range(12)]
    page = both(*(lines(*(row[c] for row in cells), x=20 + 60 * c) for c in range(3)))
    (text,) = ingest(write(tmp_path, pdf(page))).texts
    assert text.split("\n") == [" ".join(row) for row in cells]


def test_words_divided_at_line_ends_are_joined(tmp_path: Path) -> None:
    page = lines(
        "This is a line of the paragraph that ends in a divi-",
        "sion of a word, and this one ends in the name Anna-",
        "Maria, which has a hyphen of its own for all we see.",
    )
    (text,) = ingest(write(tmp_path, pdf(page))).texts
    assert "a division of a word" in text and "the name Anna-Maria, which" in text


def test_verse_keeps_its_lines(tmp_path: Path) -> None:
    verse = [
        "The woods are dark",
        "and deep,",
        "I say,",
        "and the long road before us goes on through all of them.",
    ]
    assert ingest(write(tmp_path, pdf(lines(*verse)))).texts == ["\n".join(verse)]


def test_lists_keep_their_items(tmp_path: Path) -> None:
    items = ["1. first thing to do.", "2. second thing to do.", "3. third thing to do."]
    assert ingest(write(tmp_path, pdf(lines("Do this:", *items)))).texts == ["\n".join(["Do this:", *items])]


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_turned_pages_read_like_others(tmp_path: Path, turn: int) -> None:
    """`/Rotate`, with text drawn so that it is upright when the page is shown."""
    matrix = {90: b"0 1 -1 0 600 0", 180: b"-1 0 0 -1 600 800", 270: b"0 -1 1 0 0 800"}[turn]
    content = (
        b"q %s cm BT /F 11 Tf 14 TL 50 500 Td (First line here,) Tj T* (and a second one.) Tj ET Q" % matrix
    )
    upright = simple(b"BT /F 11 Tf 14 TL 50 500 Td (First line here,) Tj T* (and a second one.) Tj ET")
    turned = simple(content).replace(b"/MediaBox", b"/Rotate %d /MediaBox" % turn)
    assert ingest(write(tmp_path, turned)).texts == ingest(write(tmp_path, upright)).texts
    assert ingest(write(tmp_path, upright)).texts == ["First line here,\nand a second one."]


def test_headers_footers_and_page_numbers_are_left_out(tmp_path: Path) -> None:
    """Those of left and right pages differ; what stands on one page only stays."""
    texts = [sentence(n, 100) for n in range(9)]
    pages = [
        both(
            lines(f"{n + 1}  The Book" if n % 2 else f"A Chapter  {n + 1}", y=12),
            paragraph(text),
            lines(f"- {n + 1} -", x=100, y=285),
            *([lines("Printed once", y=17)] if n == 4 else []),
        )
        for n, text in enumerate(texts)
    ]
    result = ingest(write(tmp_path, pdf(*pages)))
    texts[4] = "Printed once\n\n" + texts[4]
    assert result.texts == ["\n\n".join(texts)] and result.counters["pdf_running_lines"] == 18


def test_headers_with_a_chapter_and_a_number(tmp_path: Path) -> None:
    """They stand on the pages of their chapter only; the title of the book, which is larger, stays."""

    def title(out: Any) -> None:
        out.set_font("Times", size=20)
        out.text(20, 14, "The Book 1")

    texts = [sentence(n, 60) for n in range(12)]
    pages = [both(lines(f"Chapter {n // 4} {n + 1}", y=12), paragraph(text)) for n, text in enumerate(texts)]
    result = ingest(write(tmp_path, pdf(title, *pages)))
    assert (
        result.texts == ["\n\n".join(["The Book 1", *texts])] and result.counters["pdf_running_lines"] == 12
    )


def test_a_line_on_two_pages_is_no_header(tmp_path: Path) -> None:
    pages = [both(lines("Repeated", y=12), paragraph(sentence(n, 50))) for n in range(2)]
    result = ingest(write(tmp_path, pdf(*pages)))
    assert result.texts[0].count("Repeated") == 2 and not result.counters["pdf_running_lines"]


HIDDEN = {
    "invisible": b"3 Tr (gone) Tj 0 Tr",
    "clipped": b"7 Tr (gone) Tj 0 Tr",
    "white": b"1 1 1 rg (gone) Tj 0 0 0 rg",
    "nearly white": b"0.99 g (gone) Tj 0 g",
    "tiny": b"/F 0.1 Tf (gone) Tj /F 11 Tf",
    "outside": b"0 2000 Td (gone) Tj 0 -2000 Td",
}


@pytest.mark.parametrize("how", HIDDEN)
def test_hidden_text_is_left_out_and_counted(tmp_path: Path, how: str) -> None:
    content = (
        b"BT /F 11 Tf 50 700 Td (Seen before.) Tj 0 -40 Td %s 0 -40 Td (Seen after.) Tj ET" % HIDDEN[how]
    )
    path = write(tmp_path, simple(content))
    result = ingest(path)
    assert result.texts == ["Seen before.\n\nSeen after."]
    assert result.counters["pdf_hidden_characters"] == 4
    kept = ingest(path, pdf={"hidden_text": "keep"})
    assert sorted(kept.texts[0].split()) == ["Seen", "Seen", "after.", "before.", "gone"]
    assert not kept.counters["pdf_hidden_characters"]


def test_white_text_on_a_dark_ground_is_seen(tmp_path: Path) -> None:
    content = b"0 0 0.4 rg 40 600 400 150 re f BT 1 1 1 rg /F 11 Tf 50 700 Td (White on blue.) Tj 0 -400 Td (gone) Tj ET"
    result = ingest(write(tmp_path, simple(content)))
    assert result.texts == ["White on blue."] and result.counters["pdf_hidden_characters"] == 4


def scan(text: str, seen: str = "", wide: int = 600) -> bytes:
    """A page with an image and an invisible text layer, as scanners make it."""
    image = b"q %d 0 0 800 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q " % wide
    layer = b"BT /F 11 Tf 3 Tr 50 700 Td (%s) Tj 0 Tr 0 -500 Td (%s) Tj ET" % (text.encode(), seen.encode())
    return simple(image + layer)


def test_the_text_layer_of_a_scanned_page_is_kept(tmp_path: Path) -> None:
    text = sentence(1, 12)
    result = ingest(write(tmp_path, scan(text)))
    assert result.texts == [text] and result.counters["pdf_ocr_pages"] == 1
    stamped = ingest(write(tmp_path, scan(text, seen="Lib.")))
    assert stamped.texts == [f"{text}\n\nLib."]
    for data in (scan(text, seen=text), scan("hidden " * 3, wide=100)):
        other = ingest(write(tmp_path, data))
        assert not other.counters["pdf_ocr_pages"] and other.counters["pdf_hidden_characters"]


def test_a_file_without_text_names_what_to_do(tmp_path: Path) -> None:
    result = ingest(write(tmp_path, pdf(lambda out: None, lambda out: out.rect(20, 20, 50, 50, "F"))))
    (row,) = result.decisions
    assert row["rule"] == "ingest.empty_text" and "2 pages" in row["detail"] and "OCR" in row["detail"]


@pytest.mark.parametrize("user", [True, False])
def test_a_file_with_a_password_is_quarantined(tmp_path: Path, user: bool) -> None:
    """One that only restricts what readers may do opens without it, and is read."""
    from fpdf import FPDF

    out = FPDF()
    out.set_encryption(owner_password="owner", user_password="user" if user else None)
    out.add_page()
    out.set_font("Times", size=11)
    out.text(20, 30, "Some secret text.")
    result = ingest(write(tmp_path, bytes(out.output())))
    assert rows(result) == ([("a.pdf#0", "ingest.encrypted")] if user else [])
    assert result.texts == ([] if user else ["Some secret text."])
    assert result.counters["pdf_protected"] == (not user)


def test_letters_beyond_the_first_plane_and_other_scripts(tmp_path: Path) -> None:
    """Of a font whose table gives them; characters that have no Unicode value leave the others in their places."""
    table = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /T def /CMapType 2 def"
        b" 1 begincodespacerange <00> <FF> endcodespacerange"
        b" 3 beginbfchar <41> <D835DC00> <42> <0416> <43> <6F22> endbfchar endcmap end end"
    )
    data = simple(b"BT /F 11 Tf 50 700 Td (ABC xyz) Tj 0 -40 Td (last line) Tj ET")
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman"
    data = data.replace(font, font + b" /ToUnicode 6 0 R")
    data = data.replace(
        b"xref\n0 6",
        b"6 0 obj\n<< /Length %d >>\nstream\n%s\nendstream\nendobj\nxref\n0 6" % (len(table), table),
    )
    (text,) = ingest(write(tmp_path, data)).texts
    assert text == "\U0001d400Ж漢 xyz\n\nlast line"


def test_compressed_and_nameless_files(tmp_path: Path) -> None:
    data = pdf(lines("Some text."))
    assert ingest(write(tmp_path, gzip.compress(data), "a.pdf.gz")).texts == ["Some text."]
    assert ingest(write(tmp_path, b"junk before it\n" + data, "noname")).texts == ["Some text."]
    assert ingest(write(tmp_path, data, "b.bin"), format="pdf").texts == ["Some text."]


def test_a_page_is_read_again_by_its_locator(tmp_path: Path) -> None:
    texts = [sentence(n, 40) for n in range(3)]
    write(tmp_path, pdf(*map(paragraph, texts)))
    for options, wanted in (
        ({}, {"0": "\n\n".join(texts)}),
        ({"pages": "each"}, dict(zip("123", texts, strict=True))),
    ):
        source = Source.model_validate({"paths": [str(tmp_path)], "pdf": options})
        (file,) = discover("s", source)
        raw = RawFile(file, source, IngestParams())
        assert {record: raw.text(record) for record in wanted} == wanted and raw.text("9") is None


def test_without_pypdfium2_the_run_stops_before_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, pdf(lines("Some text.")))
    other = write(tmp_path, path.read_bytes(), "noname")
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(
        UserError, match=r"sources.s: a.pdf: reading PDF needs pypdfium2.*'corpusmill\[pdf\]'"
    ):
        ingest(path)
    (row,) = ingest(other).decisions
    assert row["rule"] == "ingest.unsupported_format" and "corpusmill[pdf]" in row["detail"]


def test_keys_have_the_version_where_a_pdf_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, pdf(lines("Some text.")))
    (tmp_path / "a.txt").write_text("plain")

    def keys(name: str, **options: Any) -> tuple[str, str]:
        config = {"name": "t", "sources": {"s": {"paths": [str(tmp_path / name)], **options}}}
        stage = Ingest(Recipe.model_validate(config))
        return json.dumps(stage.key_params()), stage.units()[0].key

    plain, with_pdf = keys("a.txt"), keys("a.pdf")
    assert "pypdfium2" not in plain[0] and "pypdfium2" in with_pdf[0]
    assert keys("a.txt", pdf={"pages": "join"}) == plain
    other = keys("a.pdf", pdf={"pages": "each"})
    assert other[0] != with_pdf[0] and other[1] != with_pdf[1]
    monkeypatch.setattr("corpusmill.pipeline.ingest.stage.version", lambda name: "0.0")
    assert keys("a.txt")[1] == plain[1] and keys("a.pdf")[1] != with_pdf[1]


@pytest.mark.parametrize(
    "options", [{"pages": "some"}, {"timeout": 0}, {"max_file_mb": -1}, {"page": "each"}]
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Source.model_validate({"paths": ["x"], "pdf": options})
