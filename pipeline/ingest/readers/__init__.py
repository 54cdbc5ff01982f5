"""Input file formats: one reader per format, chosen by `read_file`, which turns any failure into a rejected record.

To add a format: a module here that defines a `Reader`, its line in `_READERS`, its name in `corpusmill.schemas.input_options`,
and what identifies it: suffixes in `discover.py`, first bytes in `_SIGNS`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.http_files import Unseekable
from corpusmill.pipeline.ingest.conversations import other_format
from corpusmill.pipeline.ingest.discover import ARCHIVES, UNKNOWN
from corpusmill.pipeline.ingest.records import Event, Reader, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged

HEAD_BYTES = 4_096
MAX_NESTED = 1  # archives around an archive that is read
VALUE_BYTES = 1 << 16  # of a first value, to see whether it takes one line
_PRINTED = re.compile(r"\{\s*\n\s*[\"}]")
# Zip files by their bytes, and documents or programs by their names.
_PACKED = (".jar", ".npz", ".odp", ".ods", ".odt", ".pptx", ".pt", ".whl", ".xlsx")
_SIGNS = (
    (re.compile(rb"(?s:.{257})ustar[\0 ]"), "tar"),
    (re.compile(rb"PAR1"), "parquet"),
    (re.compile(rb"ARROW1\0\0"), "arrow"),
    (re.compile(rb"WARC/[01]\.\d"), "warc"),
    (re.compile(rb"filedesc:[^\r\n]* \d{8,14} [^\r\n]* \d+\r?\n"), "arc"),
    (re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<mediawiki\b"), "mediawiki"),
    (re.compile(rb"\s*(?:<!doctype\s+html|<html\b)", re.I), "html"),
    (re.compile(rb"\s*\{\s*\""), "jsonl"),
    (re.compile(rb"(?s:PK\x03\x04.{26}mimetype.{0,64}?application/epub\+zip)"), "epub"),
    (
        re.compile(rb"(?s:PK\x03\x04.{26}(?:\[Content_Types\]\.xml|_rels/|docProps/).*PK\x03\x04.{26})word/"),
        "docx",
    ),
    (re.compile(rb"(?s:PK\x03\x04.{26})word/"), "docx"),
    # Packages of other programs (office documents, Java) are no archives of documents.
    (
        re.compile(
            rb"(?s:PK\x03\x04.{26})(?:\[Content_Types\]\.xml|_rels/|docProps/|mimetypeapplication/|META-INF/)"
        ),
        UNKNOWN,
    ),
    (re.compile(rb"PK\x03\x04|PK\x05\x06|PK\x06\x06"), "zip"),
    (re.compile(rb"(?s:.{0,1019})%PDF-"), "pdf"),
    (re.compile(rb"\s*\[\s*\{|\x1e\s*\{"), "json"),
)


def sniff(reading: Reading) -> str:
    """A format that the first bytes show beyond doubt, or `UNKNOWN`."""
    try:
        head = reading.stream().peek(HEAD_BYTES)
    except Damaged:
        return UNKNOWN
    head = head.removeprefix(b"\xef\xbb\xbf")
    found = next((name for sign, name in _SIGNS if sign.match(head)), UNKNOWN)
    return UNKNOWN if found == "zip" and reading.file.path.lower().endswith(_PACKED) else found


def format_of_file(reading: Reading) -> str:
    """The format of a file: as the recipe or its name says, else by its first bytes; `UNKNOWN` if they do not show it."""
    format = sniff(reading) if reading.file.format == UNKNOWN else reading.file.format
    by_name = reading.file.format == "json"
    if reading.source.format == "auto" and (by_name or (reading.file.format, format) == (UNKNOWN, "jsonl")):
        return "jsonl" if _one_a_line(reading) else "json"
    return format


def _one_a_line(reading: Reading) -> bool:
    """Whether a file named as JSON, or that begins as it, has one value a line, and is no array and no values side by side.

    In doubt it is: a damaged first line is no reason to take the whole file for something else.
    """
    try:
        head = reading.stream().peek(VALUE_BYTES).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    except Damaged:
        return True
    if head[:1] in ("[", "\x1e"):
        return False
    try:
        _, end = json.JSONDecoder().raw_decode(head)
    except (ValueError, RecursionError):
        return _PRINTED.match(head) is None
    return "\n" not in head[:end] and head[end:].lstrip(" \t\r")[:1] in ("", "\n")


# format -> module below this one, and its `corpusmill.pipeline.ingest.records.Reader`.
_READERS = {
    "jsonl": ("jsonl", "read"), "json": ("json_values", "read"), "csv": ("csv_rows", "read"),
    "tsv": ("csv_rows", "read_tsv"), "arrow": ("arrow", "read"), "parquet": ("parquet", "read"), "documents": ("parquet", "read"),
    "text": ("html", "read_text"), "markdown": ("html", "read_text"), "html": ("html", "read"),
    "warc": ("warc", "read"), "arc": ("warc", "read"), "wet": ("warc", "read_wet"), "mediawiki": ("mediawiki", "read"),
    "pdf": ("pdf", "read"), "epub": ("epub", "read"), "docx": ("docx", "read"),
    "tar": ("archive_members", "read_tar"), "zip": ("archive_members", "read_zip"),
}  # fmt: skip


def reader_of(format: str) -> Reader:
    """The reader of a format, imported only now."""
    module, name = _READERS[format]
    reader: Reader = getattr(import_module(f"{__name__}.{module}"), name)
    return reader


def read_file(reading: Reading) -> Iterator[Event]:
    """Every record of a file. Nothing that the file holds raises; `UserError` and `WorkError` (a store that
    fails) pass."""
    file = reading.file
    try:
        if file.problem:
            yield Rejected(reading.next(), "ingest.unreadable_file", file.problem)
            return
        if not file.size:
            yield Rejected(reading.next(), "ingest.empty_file", "the file has no bytes", 0.0)
            return
        format = format_of_file(reading)
        if format == UNKNOWN:
            detail = f"neither name nor first bytes tell a supported format ({file.size} bytes)"
            yield Rejected(reading.next(), "ingest.unsupported_format", detail, float(file.size))
            return
        if format in ARCHIVES and reading.depth > MAX_NESTED:
            detail = f"an archive inside {reading.depth} others; archives are read inside {MAX_NESTED} other"
            yield Rejected(
                reading.next(), "ingest.nested_archive", detail, float(reading.depth), float(MAX_NESTED)
            )
            return
        if rejected := other_format(reading, format):
            yield rejected
            return
        reading.counters[f"files/{format}"] += file.begins
        yield from reader_of(format)(reading)
        if not (reading.records or reading.recognised or file.part):
            detail = f"no record in {file.size} bytes"
            yield Rejected(reading.next(), "ingest.empty_file", detail, float(file.size))
    except Damaged as damage:
        record = reading.next()
        rest = f"; {max(file.size - damage.position, 0)} of {file.size} stored bytes are left"
        yield Rejected(record, damage.rule, f"record {record}: {damage.detail}{rest}", float(damage.position))
    except Unseekable as error:
        yield Rejected(reading.next(), "ingest.unreadable_file", str(error), float(file.size))
    except (UserError, WorkError, MemoryError):
        raise
    except Exception as error:  # a library that gave up on this file must not stop the others
        record = reading.next()
        after = f"{reading.consumed} of {file.size} stored bytes"
        detail = f"record {record}: {type(error).__name__} after {after}"
        yield Rejected(record, "ingest.unreadable", detail, float(reading.consumed))
    finally:
        reading.close()
