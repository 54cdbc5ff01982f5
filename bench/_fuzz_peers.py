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
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from bench._fuzz_formats import MARK
from bench._fuzz_mutants import Mutant

MOST = 64 << 20  # bytes that a second reader may decompress


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


def _text(data: bytes) -> Iterator[str]:
    yield data.decode("utf-8")


PEERS: dict[str, dict[str, Callable[[bytes], Iterator[str]]]] = {
    "jsonl": {"json": _jsonl}, "json": {"json": _json}, "csv": {"csv": _csv(",")}, "tsv": {"csv": _csv("\t")},
    "parquet": {"pyarrow": _parquet}, "arrow": {"pyarrow": _arrow},
    "warc": {"fastwarc": _fastwarc("response"), "warcio": _warcio("response")}, "arc": {"warcio": _warcio("response")},
    "wet": {"fastwarc": _fastwarc("conversion"), "warcio": _warcio("conversion")}, "mediawiki": {"ElementTree": _mediawiki},
    "text": {"utf-8": _text}, "markdown": {"utf-8": _text},
}  # fmt: skip
