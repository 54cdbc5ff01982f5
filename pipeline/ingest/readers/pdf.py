"""PDF: text in reading order, one document a file or a page. PDFium reads in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import orjson

from corpusmill.common.errors import UserError
from corpusmill.pipeline.ingest.pdf.layout import Line
from corpusmill.pipeline.ingest.pdf.process import Crashed, PdfProcess, pdf_process
from corpusmill.pipeline.ingest.pdf.running_lines import text_of, without_running_lines
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected

LIBRARY = "pypdfium2"
WHOLE = "0"  # the record that is the file; its pages are records 1, 2, ...
MAX_PAGES = 50_000
MAX_CRASHES = 3  # of one file
WINDOW = 256  # pages of which headers are looked for together, where each page is a document
_NEEDS_PASSWORD = (4, 5)  # FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY


def require(file: str) -> None:
    """Raise `UserError` if PDFium is not installed. `file`: what it is needed for."""
    if find_spec(LIBRARY) is None:
        raise UserError(
            f"{file}: reading PDF needs {LIBRARY}, which is not installed: pip install 'corpusmill[pdf]', or leave out the"
            " PDF files"
        )


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`. Holds the text of one file, or of `WINDOW` pages, no longer than a record."""
    if find_spec(LIBRARY) is None:
        detail = f"a PDF, and {LIBRARY} is not installed: pip install 'corpusmill[pdf]'"
        yield Rejected(reading.next(), "ingest.unsupported_format", detail, float(reading.file.size))
        return
    for event in _File(reading).events():
        reading.records += 1
        yield event


class _TooLarge(Exception):
    """The file is larger than `pdf.max_file_mb`."""


class _File:
    def __init__(self, reading: Reading) -> None:
        self.reading, self.options = reading, reading.source.pdf
        self.about: dict[str, Any] = {}
        self.date: str | None = None
        self.largest = max(1, int(self.options.max_file_mb * 2**20))

    def events(self) -> Iterator[Event]:
        """All of the file's: its document, or those of its pages; why any of them is missing."""
        first, crashes = 1, 0
        pages: dict[int, list[Line]] = {}
        held, last = 0, 1
        while first <= last:
            with pdf_process() as process:
                number = 0  # the page that it is asked for
                try:
                    opened = self._open(process)
                    if isinstance(opened, Rejected):
                        yield opened
                        return
                    last = min(opened, MAX_PAGES)
                    for number in range(first, last + 1):
                        found = self._page(process, number)
                        if isinstance(found, Rejected):
                            yield found
                            continue
                        held += sum(len(line.text.encode("utf-8", "replace")) + 2 for line in found)
                        if self.options.pages == "join" and held > self.reading.max_bytes:
                            yield self._too_large(
                                WHOLE, held, f"more than {self.reading.max_bytes} bytes of text"
                            )
                            return
                        if self.options.pages == "each" and held > self.reading.max_bytes and pages:
                            yield from self._each(pages)
                            pages, held = {}, 0
                        pages[number] = found
                        if self.options.pages == "each" and len(pages) == WINDOW:
                            yield from self._each(pages)
                            pages, held = {}, 0
                    process.ask(close=True)
                    first = last + 1
                except Crashed as crash:
                    crashes += 1
                    if number == 0:
                        yield Rejected(WHOLE, "ingest.pdf_crashed", f"the file: {crash}")
                        return
                    yield Rejected(
                        str(number), "ingest.pdf_crashed", f"page {number}: {crash}", float(number)
                    )
                    first = number + 1
                    if crashes == MAX_CRASHES and first <= last:
                        detail = f"pages {first} to {last} are not read: {crashes} pages before them crashed"
                        yield Rejected(str(first), "ingest.pdf_crashed", detail, float(last - number))
                        break
        if self.about.get("pages", 0) > MAX_PAGES:
            more = self.about["pages"] - MAX_PAGES
            detail = f"{more} pages after page {MAX_PAGES} are not read"
            record = str(MAX_PAGES + 1)
            yield Rejected(
                record, "ingest.record_too_large", detail, float(self.about["pages"]), float(MAX_PAGES)
            )
        if self.options.pages == "each":
            yield from self._each(pages)
        else:
            yield self._joined(list(pages.values()))

    def _open(self, process: PdfProcess) -> int | Rejected:
        """Send the file: the number of its pages, or why it cannot be read."""
        options = {
            "limit": self.reading.max_bytes,
            "seconds": self.options.timeout,
            "hidden": self.options.hidden_text == "keep",
        }
        try:
            answer = process.open(self._blocks(), options)
        except _TooLarge:
            detail = f"a file of more than {self.largest} bytes, the largest allowed (pdf.max_file_mb)"
            return Rejected(
                WHOLE, "ingest.record_too_large", detail, float(self.reading.file.size), float(self.largest)
            )
        if answer.get("error") in _NEEDS_PASSWORD:
            return Rejected(WHOLE, "ingest.encrypted", "the file opens with a password only")
        if not answer.get("pages"):
            why = answer.get("failed") or "PDFium finds no pages in it"
            return Rejected(WHOLE, "ingest.damaged", f"the file: {why}", float(self.reading.file.size))
        if not self.about:
            self.about = {key: answer[key] for key in ("title", "author", "pages") if answer[key]}
            self.date = answer["date"] or None
            self.reading.counters["pdf_protected"] += bool(answer["protected"])
            self.reading.counters["pdf_repaired"] += bool(answer["repaired"])
        return int(answer["pages"])

    def _blocks(self) -> Iterator[bytes]:
        stream = self.reading.stream()
        while block := stream.read():
            if stream.position > self.largest:
                raise _TooLarge
            yield block

    def _page(self, process: PdfProcess, number: int) -> list[Line] | Rejected:
        answer = process.ask(page=number - 1)
        if "too_long" in answer:
            return self._too_large(
                str(number), answer["too_long"], f"page {number} of {answer['too_long']} characters"
            )
        if "lines" not in answer:
            detail = f"page {number}: {answer.get('failed', 'no answer')}"
            return Rejected(str(number), "ingest.damaged_page", detail, float(number))
        counters = self.reading.counters
        counters["pdf_pages"] += 1
        counters["pdf_hidden_characters"] += int(answer["counts"].get("hidden", 0))
        counters["pdf_ocr_pages"] += int(answer["counts"].get("ocr", 0))
        return [Line(*line) for line in answer["lines"]]

    def _too_large(self, record: str, size: int, what: str) -> Rejected:
        return self.reading.too_large(
            record, f"{what}; the longest allowed is {self.reading.max_bytes}", size
        )

    def _each(self, pages: dict[int, list[Line]]) -> Iterator[Event]:
        """Each page as a document."""
        texts = self._texts(list(pages.values()))
        for number, text in zip(pages, texts, strict=True):
            yield Document(str(number), text, date=self.date, metadata=_json({**self.about, "page": number}))

    def _joined(self, pages: list[list[Line]]) -> Event:
        """The file as a document."""
        text = "\n\n".join(filter(None, self._texts(pages)))
        if not text:
            detail = (
                f"no text on {len(pages)} pages that can be read; scanned pages have to go through OCR first"
            )
            return Rejected(WHOLE, "ingest.empty_text", detail, 0.0, float(self.reading.params.min_chars))
        return Document(WHOLE, text, date=self.date, metadata=_json(self.about))

    def _texts(self, pages: Sequence[Sequence[Line]]) -> list[str]:
        cleaned, removed = without_running_lines(pages)
        self.reading.counters["pdf_running_lines"] += removed
        return [text_of(page) for page in cleaned]


def _json(about: dict[str, Any]) -> str:
    return orjson.dumps(about, option=orjson.OPT_SORT_KEYS).decode()
