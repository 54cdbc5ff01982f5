"""Small files of plain text, of which a source may have millions: what most of them hold is read without a stream.

A file that is anything else than expected gives None, and is then read as every other (`corpusmill.pipeline.ingest.readers.read_file`).
"""

from __future__ import annotations

import os

import xxhash

from corpusmill.common.task_progress import advance
from corpusmill.common.traffic import TRAFFIC
from corpusmill.pipeline.ingest.decoding import Undecodable, decode
from corpusmill.pipeline.ingest.discover import InputFile
from corpusmill.pipeline.ingest.raw_file import READ_BYTES, named_by_content
from corpusmill.pipeline.ingest.records import Document
from corpusmill.pipeline.ingest.streams import COMPRESSED_SUFFIXES, codec_of
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams

_FORMATS = ("text", "markdown")
_PACKED = tuple(COMPRESSED_SUFFIXES)


def eligible(source: Source) -> bool:
    """Whether files of a source may be read so."""
    return source.encoding is None and not source.conversations


def document(file: InputFile, params: IngestParams, planned: str) -> Document | None:
    """The one document of a local file of valid UTF-8 whose bytes have the hash `planned`."""
    if (
        file.format not in _FORMATS
        or not file.url.startswith("/")
        or not 0 < file.size <= min(READ_BYTES, params.max_record_mb * 2**20)
        or file.problem
        or file.metadata
        or file.member
        or file.part is not None
        or named_by_content(file.tag)
        or file.path.lower().endswith(_PACKED)
    ):
        return None
    data = _read(file.url, file.size)
    if len(data) != file.size or xxhash.xxh3_128_hexdigest(data) != planned or codec_of(data):
        return None
    try:
        decoded = decode(data, None, params.max_replaced)
    except Undecodable:
        return None
    if decoded.repaired:
        return None
    TRAFFIC.add(gets=1)
    advance(len(data))
    return Document("0", decoded.text)


def _read(path: str, size: int) -> bytes:
    """The file's bytes, one more than `size` at most; b"" if it cannot be read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(opened, size + 1)
    except OSError:
        return b""
    finally:
        os.close(opened)
