"""Second readers of the fuzz bench: which records the readers that people would use find whole in a mutant.

Each gives texts by their marks. A reader that gives up gives what it had until then.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import logging
import lzma
import re
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from bench._fuzz_mutants import Mutant
from bench._fuzz_words import MARK

MOST = 64 << 20  # bytes that a second reader may decompress
PDF_SECONDS = 10.0
_UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    RuntimeError,  # zipfile: encrypted; and what it has not implemented, such as other compressions
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def texts(mutant: Mutant) -> dict[str, dict[str, str]]:
    """reader -> mark -> text, of each second reader of the mutant's format."""
    data = mutant.plain if mutant.plain is not None else _decompressed(mutant.data, mutant.codec)
    found = {}
    for name, read in PEERS.get(mutant.format, {}).items():
        seen: dict[str, str] = {}
        try:
            for text in read(data):
                for mark in set(MARK.findall(text)):
                    seen.setdefault(mark, text)
        except Exception:  # each library has its own way to give up
            pass
        found[name] = seen
    return found


def _decompressed(data: bytes, codec: str) -> bytes:
    if not codec:
        return data
    opened: dict[str, Callable[[io.BytesIO], Any]] = {
        "gz": lambda file: gzip.GzipFile(fileobj=file), "bz2": bz2.BZ2File, "xz": lzma.LZMAFile,
        "zst": lambda file: zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True),
        "lz4": lambda file: pa.CompressedInputStream(pa.PythonFile(file, "r"), "lz4"),
    }  # fmt: skip
    parts, have = [], 0
    try:
        stream = opened[codec](io.BytesIO(data))
        while have < MOST and (block := stream.read(4096)):
            parts.append(bytes(block))
            have += len(block)
    except Exception:
        pass
    return b"".join(parts)


def _jsonl(data: bytes) -> Iterator[str]:
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("text"), str):
            yield value["text"]


def _json(data: bytes) -> Iterator[str]:
    values = json.loads(data)
    for value in values if isinstance(values, list) else [values]:
        if isinstance(value, dict) and isinstance(value.get("text"), str):
            yield value["text"]


def _csv(delimiter: str) -> Callable[[bytes], Iterator[str]]:
    def read(data: bytes) -> Iterator[str]:
        csv.field_size_limit(1 << 30)
        for row in csv.DictReader(
            io.StringIO(data.decode("utf-8"), newline=""), delimiter=delimiter, strict=True
        ):
            if None not in row and None not in row.values():
                yield row["text"].replace("\r\n", "\n")

    return read


def _parquet(data: bytes) -> Iterator[str]:
    file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    for group in range(file.num_row_groups):
        try:
            yield from filter(None, file.read_row_group(group, columns=["text"])["text"].to_pylist())
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue


def _arrow(data: bytes) -> Iterator[str]:
    if data.startswith(b"ARROW1"):
        file = pa.ipc.open_file(pa.BufferReader(data))
        batches = (file.get_batch(n) for n in range(file.num_record_batches))
    else:
        batches = iter(pa.ipc.open_stream(pa.BufferReader(data)))
    for batch in batches:
        batch.validate(full=True)
        yield from filter(None, batch["text"].to_pylist())


def _fastwarc(kind: str) -> Callable[[bytes], Iterator[str]]:
    def read(data: bytes) -> Iterator[str]:
        from fastwarc.warc import ArchiveIterator, WarcRecordType

        wanted = getattr(WarcRecordType, kind)
        for record in ArchiveIterator(io.BytesIO(data), record_types=wanted, auto_decode="all"):
            yield _page(record.reader.read())

    return read


def _warcio(kind: str) -> Callable[[bytes], Iterator[str]]:
    def read(data: bytes) -> Iterator[str]:
        from warcio.archiveiterator import ArchiveIterator

        logging.getLogger("warcio").setLevel(logging.CRITICAL)
        with redirect_stderr(io.StringIO()):  # it warns of every record that is damaged
            found = [
                _page(record.content_stream().read())
                for record in ArchiveIterator(io.BytesIO(data), arc2warc=True)
                if record.rec_type == kind
            ]
        yield from found

    return read


def _page(content: bytes) -> str:
    """The paragraph of a page (or of a WET record) that has the mark."""
    text = content.decode("utf-8", "replace")
    found = MARK.search(text)
    if found is None:
        return ""
    begin = max(text.rfind("<p>", 0, found.start()) + 3, text.rfind("\n", 0, found.start()) + 1, 0)
    ends = [at for at in (text.find("</p>", found.end()), text.find("\n", found.end())) if at >= 0]
    return text[begin : min(ends, default=len(text))]


def _mediawiki(data: bytes) -> Iterator[str]:
    for _, element in ElementTree.iterparse(io.BytesIO(data)):
        if element.tag.endswith("}text") and element.text:
            yield element.text


def _phrases(text: str) -> Iterator[str]:
    """The words around each mark."""
    for found in re.finditer(rf"(?:\S+\s+)?{MARK.pattern}(?:\s+\S+)?", text):
        yield found[0]


_PDF_TEXT = """
import sys, pypdfium2
document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
for number in range(min(len(document), 50)):
    try:
        text = document[number].get_textpage().get_text_range()
    except pypdfium2.PdfiumError:
        continue
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\\n")
    sys.stdout.flush()
"""


def _pdf(data: bytes) -> Iterator[str]:
    """In a process of its own, which a damaged file may bring down."""
    command = [sys.executable, "-c", _PDF_TEXT]
    with suppress(subprocess.TimeoutExpired):
        out = subprocess.run(
            command, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PDF_SECONDS
        ).stdout
        yield from _phrases(out.decode("utf-8", "replace"))


def _epub(data: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if info.filename.endswith(".xhtml") and info.file_size < MOST:
                try:
                    tree = ElementTree.fromstring(archive.read(info))
                except (*_UNREADABLE, ElementTree.ParseError):
                    continue
                yield from _phrases(
                    "\n".join(
                        "".join(element.itertext()) for element in tree.iter() if element.tag.endswith("}p")
                    )
                )


def _docx(data: bytes) -> Iterator[str]:
    import docx

    document = docx.Document(io.BytesIO(data))
    cells = [cell.text for table in document.tables for row in table.rows for cell in row.cells]
    yield from _phrases("\n".join([*(paragraph.text for paragraph in document.paragraphs), *cells]))


def _contents(name: str, data: bytes) -> Iterator[str]:
    """Of a member, by the end of its name."""
    if name.endswith(".gz"):
        name, data = name[:-3], gzip.decompress(data)
    yield from _text(data) if name.endswith(".txt") else _jsonl(data)


def _tar(data: bytes) -> Iterator[str]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            if member.isreg() and member.size <= len(data) and (file := archive.extractfile(member)):
                with suppress(*_UNREADABLE):
                    yield from _contents(member.name, file.read())


def _zip(data: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if info.file_size <= MOST:
                with suppress(*_UNREADABLE):
                    yield from _contents(info.filename, archive.read(info))


def _text(data: bytes) -> Iterator[str]:
    yield data.decode("utf-8")


PEERS: dict[str, dict[str, Callable[[bytes], Iterator[str]]]] = {
    "jsonl": {"json": _jsonl}, "json": {"json": _json}, "csv": {"csv": _csv(",")}, "tsv": {"csv": _csv("\t")},
    "parquet": {"pyarrow": _parquet}, "arrow": {"pyarrow": _arrow},
    "warc": {"fastwarc": _fastwarc("response"), "warcio": _warcio("response")}, "arc": {"warcio": _warcio("response")},
    "wet": {"fastwarc": _fastwarc("conversion"), "warcio": _warcio("conversion")}, "mediawiki": {"ElementTree": _mediawiki},
    "pdf": {"pypdfium2": _pdf}, "epub": {"zipfile and ElementTree": _epub}, "docx": {"python-docx": _docx},
    "tar": {"tarfile": _tar}, "zip": {"zipfile": _zip}, "text": {"utf-8": _text}, "markdown": {"utf-8": _text},
}  # fmt: skip
