"""Damaged and hostile PDF: what can be read is read, the rest has its row, and no file ends a run or another file."""

from __future__ import annotations

import os
import random
import signal
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.ingest.pdf import process
from corpusmill.pipeline.ingest.pdf.process import Crashed, PdfProcess, pdf_process
from corpusmill.pipeline.ingest.pdf.worker import MEMORY, iso_date
from tests.pipeline.ingest.helpers import Result, ingest
from tests.pipeline.ingest.pdf_files import both, lines, paragraph, pdf, raw_pdf, sentence, simple, stream

TEXTS = [sentence(n, 40) for n in range(4)]
WHOLE = pdf(*map(paragraph, TEXTS), title="A title")
PLAIN = pdf(*map(paragraph, TEXTS), compress=False)
SLOW = b"BT /F 11 Tf 50 700 Td " + b"(busy words) Tj 0 1 Td " * 1_000_000 + b"ET"
OPTIONS = {"limit": 1 << 20, "seconds": 5.0, "hidden": False}


def write(folder: Path, data: bytes, name: str = "a.pdf") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def rows(result: Result) -> list[tuple[str, str]]:
    return [(row["locator"], row["rule"]) for row in result.decisions]


def test_a_damaged_table_of_objects_is_built_again(tmp_path: Path) -> None:
    start = WHOLE.rindex(b"xref\n0")
    for damaged in (
        WHOLE[:start],
        WHOLE.replace(b"startxref\n", b"startxref\n9"),
        WHOLE[:start] + b"\0" * 200,
    ):
        result = ingest(write(tmp_path, damaged))
        assert result.texts == ["\n\n".join(TEXTS)] and not result.decisions
        assert result.counters["pdf_repaired"] == (b"trailer" not in damaged)


def test_of_a_file_cut_short_the_pages_that_are_there_are_read(tmp_path: Path) -> None:
    """Its pages come first here, and the tree that names them all."""
    kids = 4
    head = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>"
        % (b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(kids)), kids),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>",
    ]
    for n in range(kids):
        head.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R"
            b" /Resources << /Font << /F 3 0 R >> >> >>" % (5 + 2 * n)
        )
        head.append(stream(b"BT /F 11 Tf 50 400 Td (Page number %d.) Tj ET" % n))
    data = raw_pdf(*head)
    cut = data[: data.index(b"10 0 obj") - 3]
    result = ingest(write(tmp_path, cut))
    assert result.texts == ["Page number 0.\n\nPage number 1.\n\nPage number 2."]
    assert rows(result) == [("a.pdf#4", "ingest.damaged_page")]
    nothing = ingest(write(tmp_path, data[: len(b"%PDF-1.7\n") + 40]))
    assert not nothing.docs and rows(nothing) == [("a.pdf#0", "ingest.damaged")]


@pytest.mark.parametrize(
    "data", [b"no PDF at all", b"%PDF-1.7\n", b"%PDF-1.7\n" + b"\0" * 5000, b"PK\3\4" + b"%PDF-" * 9]
)
def test_what_is_no_pdf_has_one_row(tmp_path: Path, data: bytes) -> None:
    result = ingest(write(tmp_path, data))
    assert not result.docs and rows(result) == [("a.pdf#0", "ingest.damaged")]


def test_mutants_never_end_a_run(tmp_path: Path) -> None:
    """Hundreds of files with bytes changed, cut out or doubled; conservation is checked by `ingest`."""
    draw = random.Random(1)
    seeds = [WHOLE, PLAIN, simple(b"BT /F 11 Tf 50 700 Td (One.) Tj ET")]
    for number in range(400):
        data = bytearray(draw.choice(seeds))
        for _ in range(draw.choice([1, 3, 30])):
            at = draw.randrange(len(data))
            kind = draw.randrange(4)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                del data[at : at + draw.randrange(1, 60)]
            elif kind == 2:
                data[at:at] = data[max(at - 40, 0) : at]
            else:
                data[at : at + 1] = str(draw.choice([-1, 0, 2**31, 2**63, 99999])).encode()
        (tmp_path / f"{number:03}.pdf").write_bytes(bytes(data))
    (tmp_path / "intact.pdf").write_bytes(WHOLE)
    result = ingest(tmp_path)
    assert "\n\n".join(TEXTS) in result.texts
    assert {row["locator"].split("#")[0] for row in [*result.docs, *result.decisions]} == {
        path.name for path in tmp_path.iterdir()
    }
    assert "ingest.unreadable" not in result.rules
    again = ingest(tmp_path)
    assert again.docs == result.docs and again.decisions == result.decisions


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300), st.binary(max_size=60).map(lambda noise: PLAIN[:900] + noise + PLAIN[900:])
    )
)
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp(), data, "fuzz.pdf")
    result = ingest(path)
    assert result.docs or result.decisions
    assert "ingest.unreadable" not in result.rules and "ingest.pdf_crashed" not in result.rules


def test_a_page_that_takes_too_long_costs_that_page(tmp_path: Path) -> None:
    """The process is ended by the system, whatever it is busy with, and another reads the pages after it."""
    data = slow_page(SLOW)
    result = ingest(write(tmp_path, data), pdf={"timeout": 0.3})
    assert result.texts == ["Page before.\n\nPage after."]
    assert rows(result) == [("a.pdf#2", "ingest.pdf_crashed")]
    assert "processor time" in result.decisions[0]["detail"]
    each = ingest(tmp_path / "a.pdf", pdf={"timeout": 0.3, "pages": "each"})
    assert each.locators() == ["a.pdf#1", "a.pdf#3"]


def slow_page(content: bytes) -> bytes:
    """Three pages, of which the second has that content."""
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F 3 0 R >> >> /Contents %d 0 R >>"
    packed = zlib.compress(content)
    return raw_pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R 6 0 R 8 0 R] /Count 3 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>",
        page % 5, stream(b"BT /F 11 Tf 50 700 Td (Page before.) Tj ET"),
        page % 7, stream(packed, b"/Filter /FlateDecode"),
        page % 9, stream(b"BT /F 11 Tf 50 700 Td (Page after.) Tj ET"),
    )  # fmt: skip


def test_pages_after_three_crashes_are_one_row(tmp_path: Path) -> None:
    data = simple(zlib.compress(SLOW), b"/Filter /FlateDecode", kids=b"3 0 R " * 9, count=9)
    result = ingest(write(tmp_path, data), pdf={"timeout": 0.1})
    crashed = [(f"a.pdf#{n}", "ingest.pdf_crashed") for n in (1, 2, 3, 4)]
    assert rows(result) == [*crashed, ("a.pdf#0", "ingest.empty_text")]
    assert result.decisions[3]["value"] == 6 and "pages 4 to 9" in result.decisions[3]["detail"]


def test_a_page_that_inflates_without_end_is_stopped(tmp_path: Path) -> None:
    """640 MiB of spaces, packed twice."""
    inner = zlib.compressobj(9)
    packed = b"".join(inner.compress(b" " * (1 << 24)) for _ in range(40)) + inner.flush()
    result = ingest(write(tmp_path, bomb(zlib.compress(packed, 9))), pdf={"timeout": 5})
    assert result.texts == ["Page before.\n\nPage after."]
    assert [row for row in rows(result) if row[1] in ("ingest.pdf_crashed", "ingest.damaged_page")] == rows(
        result
    )


def bomb(packed: bytes) -> bytes:
    data = slow_page(b"")
    start, end = data.index(b"7 0 obj"), data.index(b"8 0 obj")
    object_ = stream(packed, b"/Filter [/FlateDecode /FlateDecode]")
    return data[:start] + b"7 0 obj\n" + object_ + b"\nendobj\n" + data[end:]


def test_a_page_named_many_times_is_read_no_further_than_a_record(tmp_path: Path) -> None:
    page = b"BT /F 11 Tf 50 400 Td (%s) Tj ET" % (b"words " * 150)
    data = simple(page, kids=b"3 0 R " * 3000, count=3000)
    result = ingest(write(tmp_path, data), params={"max_record_mb": 0.1})
    assert not result.docs and rows(result) == [("a.pdf#0", "ingest.record_too_large")]
    assert 0.1 * 2**20 < result.decisions[0]["value"] < 0.11 * 2**20
    each = ingest(tmp_path / "a.pdf", params={"max_record_mb": 0.1}, pdf={"pages": "each"})
    assert len(each.docs) == 3000


def test_long_pages_and_large_files_are_quarantined(tmp_path: Path) -> None:
    page = b"BT /F 11 Tf 50 700 Td (%s) Tj ET" % (b"words " * 150)
    path = write(tmp_path, simple(page))
    assert rows(ingest(path, params={"max_record_mb": 0.0005}, pdf={"pages": "each"})) == [
        ("a.pdf#1", "ingest.record_too_large")
    ]
    result = ingest(path, pdf={"max_file_mb": 0.001})
    assert rows(result) == [("a.pdf#0", "ingest.record_too_large")]
    assert "pdf.max_file_mb" in result.decisions[0]["detail"]


@pytest.mark.parametrize("count", [b"-5", b"2147483647", b"99999999999999999999"])
def test_a_wrong_number_of_pages(tmp_path: Path, count: bytes) -> None:
    data = simple(b"BT /F 11 Tf 50 700 Td (One.) Tj ET").replace(b"/Count 1", b"/Count " + count)
    clock = time.monotonic()
    result = ingest(write(tmp_path, data))
    assert len(result.docs) + len(result.decisions) >= 1 and time.monotonic() - clock < 60
    loop = raw_pdf(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>")
    assert not ingest(write(tmp_path, loop)).docs


def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with pdf_process() as handle:
        assert handle.open([WHOLE], OPTIONS)["pages"] == 4
        os.kill(handle._process.pid, signal.SIGKILL)
        with pytest.raises(Crashed, match="signal 9"):
            handle.ask(page=0)
    with pdf_process() as other:
        assert other is not handle
        assert other.open([WHOLE[:500], WHOLE[500:]], OPTIONS)["title"] == "A title"
        assert other.ask(page=1)["lines"][0][0].startswith("S1 ")
    with pdf_process() as kept:
        assert kept is other
    process.end_idle()
    assert other._process.returncode is not None


def test_the_process_ends_with_the_one_that_started_it_and_is_limited() -> None:
    handle = PdfProcess()
    limits = Path(f"/proc/{handle._process.pid}/limits")
    if limits.exists():
        found = {line[:26].strip(): line[26:].split()[0] for line in limits.read_text().splitlines()}
        assert found["Max address space"] == str(MEMORY) and found["Max file size"] == "0"
    assert handle._process.stdin is not None
    handle._process.stdin.close()
    assert handle._process.wait(timeout=30) == 0
    handle.end()


@pytest.mark.parametrize(
    ("date", "iso"),
    [
        ("D:20210506070809Z", "2021-05-06T07:08:09Z"), ("D:20210506070809+02'00'", "2021-05-06T07:08:09+02:00"),
        ("D:20210506070809-05", "2021-05-06T07:08:09-05:00"), ("20210506", "2021-05-06"), ("D:2021", "2021"),
        ("D:202113", ""), ("yesterday", ""), ("", ""), ("D:0000", ""), ("D:202105060708", "2021-05-06T07:08:00"),
    ],
)  # fmt: skip
def test_dates(date: str, iso: str) -> None:
    assert iso_date(date) == iso


def test_titles_and_text_in_any_bytes(tmp_path: Path) -> None:
    """Half a pair of surrogates in a title, and in text, is no reason for an error."""
    data = pdf(both(lines("Some text.")), title="TITLE").replace(b"(TITLE)", b"<FEFFD83D0041>")
    result = ingest(write(tmp_path, data))
    assert result.texts == ["Some text."]
