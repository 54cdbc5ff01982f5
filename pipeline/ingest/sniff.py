"""The format of a file whose name tells none, by its first bytes."""

from __future__ import annotations

import re

from corpusmill.pipeline.ingest.discover import UNKNOWN
from corpusmill.pipeline.ingest.records import Reading
from corpusmill.pipeline.ingest.streams import Damaged

HEAD_BYTES = 4_096
_SIGNS = (
    (re.compile(rb"PAR1"), "parquet"),
    (re.compile(rb"WARC/[01]\.\d"), "warc"),
    (re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<mediawiki\b"), "mediawiki"),
    (re.compile(rb"\s*(?:<!doctype\s+html|<html\b)", re.I), "html"),
    (re.compile(rb"\s*\{\s*\""), "jsonl"),
)


def sniff(reading: Reading) -> str:
    """A format that the first bytes show beyond doubt, or `UNKNOWN`."""
    try:
        head = reading.stream().peek(HEAD_BYTES)
    except Damaged:
        return UNKNOWN
    head = head.removeprefix(b"\xef\xbb\xbf")
    return next((name for sign, name in _SIGNS if sign.match(head)), UNKNOWN)
