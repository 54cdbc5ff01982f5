"""JSON Lines: one object a line, plain or compressed."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from corpusmill.pipeline.ingest.decoding import Undecodable, decode
from corpusmill.pipeline.ingest.encodings import unmarked_utf
from corpusmill.pipeline.ingest.fields import document, kind_of
from corpusmill.pipeline.ingest.lines import lines, pieces
from corpusmill.pipeline.ingest.readers.json_lines import Columns
from corpusmill.pipeline.ingest.records import Batch, Event, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged, Stream
from corpusmill.pipeline.ingest.text_cleaning import scrub_surrogates
from corpusmill.pipeline.text.buffers import I64

# After so many lines in a row that are no JSON the file is something else: the rest becomes one record.
GIVE_UP_AFTER = 100
_BRACKET = re.compile(rb"(?P<le>[{\[]\0)|(?P<be>\0[{\[])")  # that JSON begins with, in UTF-16
_ORDERS = {"le": "utf-16-le", "be": "utf-16-be", None: None}
HEAD_BYTES = 4_096  # of a file, that show in what encoding it is


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`. Behind damage of a compressed file it goes on at the next member."""
    stream = reading.stream()
    text = as_utf8(stream) if reading.file.begins else stream
    after_damage = False
    while True:
        try:
            yield from _records(text, reading, after_damage)
            return
        except Damaged as damage:
            gap = stream.resume() if text is stream else None
            if gap is None:
                raise
            number, (begin, end) = reading.next(), gap
            passed = f"{end - begin} stored bytes from byte {begin} on are passed over"
            yield Rejected(number, damage.rule, f"record {number}: {damage.detail}; {passed}", float(begin))
            after_damage = True


def _records(stream: Stream, reading: Reading, after_damage: bool) -> Iterator[Event]:
    single = _Lines(reading, stream.position if after_damage else None)
    columns = Columns.of(reading)
    if columns is None:
        for offset, line, size in lines(stream, reading.max_bytes):
            yield from single.take(offset, line, size)
            if single.ended:
                return
        return
    for offset, data, size, many in pieces(stream, reading.max_bytes):
        if not many or data is None:
            yield from single.take(offset, data, size)
        else:
            for begin, end, table, sizes in columns.runs(data):
                if table is None or single.at_the_end:
                    yield from single.take(offset + begin, data[begin:end], end - begin)
                else:
                    single.bad_in_a_row = 0
                    yield _batch(table, sizes, reading)
                if single.ended:
                    return
        if single.ended:
            return


def _batch(table: pa.Table, sizes: I64 | None, reading: Reading) -> Batch:
    first = reading.records
    reading.records += len(table)
    numbers = pa.array(np.arange(first, reading.records)).cast(pa.string())
    return Batch(table.append_column("record", numbers), sizes=sizes)


class _Lines:
    """Lines one by one, and what is kept from one to the next. `first`: where the first line behind damage begins."""

    def __init__(self, reading: Reading, first: int | None) -> None:
        self.reading, self.first = reading, first
        self.bad_in_a_row = 0
        self.ended = False  # the rest of the file is no JSON Lines

    @property
    def at_the_end(self) -> bool:
        """Whether the next line that is not blank, whatever it is, ends the reading."""
        return self.bad_in_a_row == GIVE_UP_AFTER

    def take(self, offset: int, line: bytes | None, size: int) -> Iterator[Event]:
        """The event of a line of `size` bytes at `offset`, if it is not blank."""
        reading, limit = self.reading, self.reading.max_bytes
        if line is None or size > limit:
            detail = f"line of {size} bytes at byte {offset}; allowed are {limit}"
            yield reading.too_large(reading.next(), detail, size)
            return
        line = line.strip(b" \t\r\n")
        if not offset:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line:
            return
        if self.at_the_end:
            self.ended = True
            left = reading.file.stored - reading.consumed + size
            detail = f"{GIVE_UP_AFTER} lines in a row are no JSON; the rest ({left} stored bytes) is not read"
            yield Rejected(reading.next(), "ingest.not_jsonl", detail, float(left), float(GIVE_UP_AFTER))
            return
        record = parse(line, reading)
        if isinstance(record, Bad):
            self.bad_in_a_row += 1
            rule, _, detail = record.partition(" ")
            if offset == self.first:
                rule, detail = (
                    "ingest.damaged",
                    f"the end of a line that began in the damaged part ({size} bytes)",
                )
            yield Rejected(reading.next(), rule, f"{detail}; line at byte {offset}", float(offset))
            return
        self.bad_in_a_row = 0
        if not isinstance(record, dict):
            detail = f"a JSON {kind_of(record)} in place of an object, at byte {offset}"
            yield Rejected(reading.next(), "ingest.not_an_object", detail, float(offset))
            return
        yield document(record, f"at byte {offset}", float(offset), reading)


class Bad(str):
    """Why a line is no record: "<rule> <reason>"."""


def parse(line: bytes, reading: Reading) -> Any:
    """The JSON value of a line, or why there is none."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return _parse_leniently(line, reading)


def _parse_leniently(line: bytes, reading: Reading) -> Any:
    """Lines that orjson refuses: other encodings, lone surrogates, NaN. Anything else is malformed."""
    try:
        decoded = decode(line, None, reading.params.max_replaced)
    except Undecodable as error:
        return Bad(f"ingest.undecodable {error.reason} of the line")
    if decoded.repaired or b"\\ud" in line or b"\\uD" in line or b"NaN" in line or b"Infinity" in line:
        try:
            value = json.loads(decoded.text)
        except RecursionError:
            return Bad("ingest.malformed_json values nest too deep")
        except ValueError as error:
            return Bad(f"ingest.malformed_json {_reason(error)}")
        reading.repaired(decoded)
        return without_surrogates(value, reading)
    try:
        orjson.loads(decoded.text)
    except orjson.JSONDecodeError as error:
        return Bad(f"ingest.malformed_json {_reason(error)}")
    return Bad("ingest.malformed_json no JSON value")


def without_surrogates(value: Any, reading: Reading) -> Any:
    """The text fields of an object with lone surrogates replaced; counted once a record."""
    if not isinstance(value, dict):
        return value
    clean = {
        scrub_surrogates(key): scrub_surrogates(item) if isinstance(item, str) else item
        for key, item in value.items()
    }
    if clean != value:
        reading.counters["surrogates_replaced"] += 1
    return clean


def _reason(error: ValueError) -> str:
    """The parser's complaint with its place; it never quotes the line."""
    if isinstance(error, json.JSONDecodeError):  # orjson's is one, too
        return f"{error.msg} at character {error.pos}".replace(" is too deep", " nests too deep")
    return "a number is too long"


def as_utf8(stream: Stream) -> Stream:
    """The stream, or one that gives a UTF-16 file (as some shells write), with a mark or without, as UTF-8."""
    head = stream.peek(HEAD_BYTES)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and head[2:4] != b"\x00\x00":
        if b"\0" in head or unmarked_utf(head[2:]):
            return _Transcoded(stream, "utf-16")
        stream.read(2)  # the mark is wrong: what follows has no character of ASCII as UTF-16 has it
    elif b"\0" in head:
        by_bracket = _BRACKET.match(head)
        encoding = unmarked_utf(head) if by_bracket is None else _ORDERS[by_bracket.lastgroup]
        if encoding is not None:
            return _Transcoded(stream, encoding)
    return stream


class _Transcoded(Stream):
    def __init__(self, stream: Stream, encoding: str) -> None:
        self.raw, self.position, self._rest = stream.raw, 0, memoryview(b"")
        self._encoding = encoding
        self._blocks = self._transcode(stream)

    def _transcode(self, stream: Stream) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(self._encoding)()
        try:
            while block := stream.read():
                yield decoder.decode(block).encode("utf-8")
            yield decoder.decode(b"", True).encode("utf-8")
        except UnicodeError:
            at = stream.raw.consumed
            detail = f"begins as {self._encoding.upper()} and is none before byte {at}"
            raise Damaged("ingest.undecodable", detail, at) from None
