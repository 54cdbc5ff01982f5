"""The process in which PDFium reads: `python -m corpusmill.pipeline.ingest.pdf.worker`, started by `process.py`.

PDFium is C++ that parses hostile bytes. Here a crash, an endless loop or a hunger for memory ends this process and nothing else:
its memory and its processor time per page are limited by the operating system, and it can write no file.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import sys
import time
from typing import Any, BinaryIO

import pypdfium2
import pypdfium2.raw as pdfium

from corpusmill.pipeline.ingest.pdf.frames import read_frame, read_message, write_message
from corpusmill.pipeline.ingest.pdf.layout import arrange
from corpusmill.pipeline.ingest.pdf.page_text import TooLong, page_text

MEMORY = 1 << 30  # bytes of address space
FILE_SHARE = 20  # a file may take as long as so many pages at their limit
META_CHARS = 1_000
CATALOG_BYTES = 4_096  # from the beginning of a catalog to its type, at most
_CATALOG = re.compile(rb"/Type\s*/Catalog\b")
_OBJECT = re.compile(rb"(?<!\d)(\d{1,10})\s+(\d{1,5})\s+obj\b")
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(?:(\d\d)(\d\d)(\d\d)?)?(?:(Z)|([+-]\d\d)'?(\d\d)?)?")


def main() -> None:
    """Answer messages until the other side closes the pipe."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    write_message(out, {"ready": True})
    reader = _Reader(source)
    while (message := read_message(source)) is not None:
        try:
            answer = reader.answer(message)
        except MemoryError:
            answer = {"failed": "it needs more memory than there is for one file"}
        except Exception as error:  # of bindings and layout, at values that no valid page has
            answer = {"failed": f"{type(error).__name__} while it was read"}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        write_message(out, answer)


class _Reader:
    """One file at a time."""

    def __init__(self, source: BinaryIO) -> None:
        self.source = source
        self.document: Any = None
        self.data: Any = None
        self.limit, self.seconds, self.until, self.keep_hidden = 0, 0.0, 0.0, False

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if "open" in message:
            return self.open(message["open"])
        if "page" in message:
            self._limit_time()
            return self.page(message["page"])
        self.close()
        return {}

    def open(self, options: dict[str, Any]) -> dict[str, Any]:
        """Take the bytes of a file: its pages and metadata, or why it has none."""
        self.close()
        self.limit, self.seconds, self.keep_hidden = options["limit"], options["seconds"], options["hidden"]
        data = bytearray()
        while frame := read_frame(self.source):
            data += frame
        self.until = time.process_time() + FILE_SHARE * self.seconds
        self._limit_time()
        error = self._load(data)
        repaired = error == pdfium.FPDF_ERR_FORMAT and _add_trailer(data)
        if repaired:
            error = self._load(data)
        if error:
            return {"error": error}
        return {
            "pages": len(self.document),
            "title": self._about("Title"),
            "author": self._about("Author"),
            "date": iso_date(self._about("CreationDate")),
            "protected": pdfium.FPDF_GetSecurityHandlerRevision(self.document.raw) >= 0,
            "repaired": repaired,
        }

    def _load(self, data: bytearray) -> int:
        """PDFium's error code, or 0."""
        self.data = (ctypes.c_ubyte * len(data)).from_buffer(data)
        try:
            self.document = pypdfium2.PdfDocument(self.data)
        except pypdfium2.PdfiumError as error:
            self.data = None
            return int(error.err_code or pdfium.FPDF_ERR_UNKNOWN)
        return 0

    def _about(self, name: str) -> str:
        """An entry of the file's information dictionary, on one line."""
        buffer = (ctypes.c_char * (2 * META_CHARS))()
        taken = pdfium.FPDF_GetMetaText(self.document.raw, name.encode(), buffer, len(buffer))
        text = bytes(buffer)[: taken - 2].decode("utf-16-le", "replace") if 2 < taken <= len(buffer) else ""
        return " ".join(text.split())

    def page(self, index: int) -> dict[str, Any]:
        """The lines of a page."""
        try:
            page = self.document[index]
        except pypdfium2.PdfiumError:
            return {"failed": "PDFium cannot load it"}
        try:
            found = page_text(page, self.keep_hidden, self.limit)
            lines = arrange(found.pieces, found.width, found.height)
        except TooLong as error:
            return {"too_long": error.characters}
        finally:
            page.close()
        return {"lines": lines, "counts": dict(found.counts)}

    def close(self) -> None:
        if self.document is not None:
            self.document.close()
        self.document = self.data = None

    def _limit_time(self) -> None:
        """End this process after so much processor time, in whatever it is busy with then."""
        left = max(min(self.seconds, self.until - time.process_time()), 0.01)
        signal.setitimer(signal.ITIMER_PROF, left)


def _add_trailer(data: bytearray) -> bool:
    """Name the catalog of a file whose end is lost, if the catalog is there; PDFium then finds the other objects itself."""
    place = max((found.start() for found in _CATALOG.finditer(data)), default=-1)
    objects = list(_OBJECT.finditer(data, max(place - CATALOG_BYTES, 0), place)) if place >= 0 else []
    if not objects:
        return False
    number, generation = objects[-1].groups()
    data += b"\ntrailer\n<< /Root %s %s R >>\nstartxref\n0\n%%%%EOF\n" % (number, generation)
    return True


def iso_date(text: str) -> str:
    """A date of PDF (ISO 32000, 7.9.4: `D:YYYYMMDDHHmmSSOHH'mm'`) in the form of ISO 8601; "" for anything else."""
    found = _DATE.match(text)
    if found is None:
        return ""
    year, month, day, hour, minute, second, utc, offset_hour, offset_minute = found.groups()
    date = "-".join(filter(None, (year, month, day)))
    if not (1 <= int(month or 1) <= 12 and 1 <= int(day or 1) <= 31 and int(year)):
        return ""
    if hour is None or day is None:
        return date
    zone = "Z" if utc else f"{offset_hour}:{offset_minute or '00'}" if offset_hour else ""
    return f"{date}T{hour}:{minute}:{second or '00'}{zone}"


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
