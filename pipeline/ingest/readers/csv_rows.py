"""CSV and TSV: one row a record, with the dialect of the recipe, or the delimiter that the first line shows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from corpusmill.pipeline.ingest.conversations import RULE, missing_fields
from corpusmill.pipeline.ingest.decoding import Undecodable
from corpusmill.pipeline.ingest.fields import document, suggest
from corpusmill.pipeline.ingest.lines import lines
from corpusmill.pipeline.ingest.readers.jsonl import GIVE_UP_AFTER, as_utf8
from corpusmill.pipeline.ingest.records import Event, Reading, Rejected, shown_name
from corpusmill.schemas.conversation_lines import FIELDS

DELIMITERS = ",;\t|"
MAX_COLUMNS = 10_000
_ESCAPED = re.compile("[\udc80-\udcff]")


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`; the delimiter of `.csv` files is detected."""
    yield from _read(reading, None)


def read_tsv(reading: Reading) -> Iterator[Event]:
    """The reader of files whose delimiter is a tab."""
    yield from _read(reading, "\t")


def _read(reading: Reading, delimiter: str | None) -> Iterator[Event]:
    options = reading.source.csv
    source = _Lines(reading)
    delimiter = options.delimiter or delimiter or _delimiter(source.peek())
    rows = _Rows(source, _dialect(options.quote, options.escape, delimiter), reading.max_bytes)
    names: list[str] | None = None if options.header is True else options.header or []
    numbers: Iterator[tuple[int, list[str] | str]] = iter(rows)
    bad_in_a_row = 0
    keep = FIELDS if reading.source.conversations else (reading.source.text_column,)  # also where empty
    for line, row in numbers:
        if bad_in_a_row == GIVE_UP_AFTER:
            left = reading.file.size - reading.consumed
            detail = f"{GIVE_UP_AFTER} rows in a row cannot be read; from line {line} on nothing is ({left} stored bytes)"
            yield Rejected(reading.next(), "ingest.malformed_csv", detail, float(left), float(GIVE_UP_AFTER))
            return
        bad_in_a_row = bad_in_a_row + 1 if isinstance(row, str) else 0
        if isinstance(row, str):
            rule, _, reason = row.partition(" ")
            if rule == "ingest.record_too_large":
                yield reading.too_large(reading.next(), f"line {line}: {reason}", reading.max_bytes + 1)
            else:
                yield Rejected(reading.next(), rule, f"line {line}: {reason}", float(line))
            continue
        if not names:
            named = options.header is True
            names = row if named else [str(n) for n in range(len(row))]
            problem = _wrong_header(names, reading)
            if problem:
                rest = sum(1 for _ in numbers) + (not named)
                rule, detail = problem
                detail = f"line {line}, the header: {detail}; {rest} rows behind it"
                yield Rejected(reading.next(), rule, detail, float(rest))
                reading.records += max(rest - 1, 0)
                return
            reading.recognised = True
            if named:
                continue
        if len(row) != len(names):
            detail = f"line {line}: {len(row)} fields, the header has {len(names)}"
            yield Rejected(reading.next(), "ingest.csv_fields", detail, float(len(row)), float(len(names)))
            continue
        try:
            values = [_decoded(value, reading) for value in row]
        except Undecodable as error:
            yield Rejected(reading.next(), "ingest.undecodable", f"line {line}: {error.reason}", float(line))
            continue
        record: dict[str, Any] = {
            name: value for name, value in zip(names, values, strict=True) if value or name in keep
        }
        yield document(record, f"line {line}", float(line), reading)


def _wrong_header(names: list[str], reading: Reading) -> tuple[str, str] | None:
    """(rule, reason) of a header that cannot be the one that was meant."""
    text = reading.source.text_column
    if len(names) > MAX_COLUMNS:
        return "ingest.csv_header", f"{len(names)} columns; allowed are {MAX_COLUMNS}"
    twice = [name for name, times in Counter(names).items() if times > 1]
    shown = ", ".join(map(shown_name, names[:50]))[:300]
    if twice:
        return "ingest.csv_header", f"the column '{shown_name(twice[0])}' is there twice (columns: {shown})"
    if reading.source.conversations:
        wrong = missing_fields(names)
        return (RULE, wrong) if wrong else None
    if text not in names:
        return (
            "ingest.no_text",
            f"no field '{text}'{suggest(text, dict.fromkeys(names, 0))} (fields: {shown})",
        )
    return None


def _dialect(quote: str | None, escape: str | None, delimiter: str) -> type[csv.Dialect]:
    settings: dict[str, Any] = {
        "delimiter": delimiter, "quotechar": quote or None, "escapechar": escape, "doublequote": escape is None,
        "quoting": csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE, "strict": True, "lineterminator": "\n",
    }  # fmt: skip
    return type("Dialect", (csv.Dialect,), settings)


def _delimiter(first: str) -> str:
    """Of the usual ones, what the first line has most of outside quotes; a comma if it has none."""
    plain = re.sub(r'"[^"]*"', "", first)
    return max(DELIMITERS, key=lambda sign: (plain.count(sign), -DELIMITERS.index(sign)))


class _Lines:
    """The lines of a file with their numbers from 1, some of which may be given back."""

    def __init__(self, reading: Reading) -> None:
        self._lines = lines(as_utf8(reading.stream()), reading.max_bytes)
        self._again: list[str | None] = []
        self.number = 0

    def peek(self) -> str:
        line = self.next()
        if isinstance(line, str) or line is None:
            self.give_back([line])
        return line if isinstance(line, str) else ""

    def next(self) -> str | object | None:
        """The next line with its end; None for one that is too long, `_END` behind the last."""
        if self._again:
            line = self._again.pop()
        else:
            found = next(self._lines, None)
            if found is None:
                return _END
            line = None if found[1] is None else found[1].decode("utf-8", "surrogateescape") + "\n"
            if not self.number and line is not None:
                line = line.removeprefix("\ufeff")
        self.number += 1
        return line

    def give_back(self, taken: list[str | None]) -> None:
        self._again += reversed(taken)
        self.number -= len(taken)


_END = object()


class _Rows:
    """(line, fields or "<rule> <reason>") of every row. Behind a row that cannot be read it goes on with the next line."""

    def __init__(self, source: _Lines, dialect: type[csv.Dialect], limit: int) -> None:
        self.source, self.dialect, self.limit = source, dialect, limit
        csv.field_size_limit(max(limit, csv.field_size_limit()))
        self._held = 0  # characters of the row so far

    def __iter__(self) -> Iterator[tuple[int, list[str] | str]]:
        while True:
            begin = self.source.number + 1
            taken: list[str] = []
            try:
                row = next(csv.reader(iter(partial(self._line, taken), None), self.dialect), None)
            except _TooLong:
                self.source.give_back(list(taken[1:]))
                yield begin, f"ingest.record_too_large more than {self.limit} bytes; is a quote missing?"
                continue
            except csv.Error as error:
                self.source.give_back(list(taken[1:]))
                reason = str(error).replace("unexpected end of data", "a quoted field does not end")
                yield begin, f"ingest.malformed_csv {reason}"
                continue
            if row is None:
                return
            if row:
                yield begin, row

    def _line(self, taken: list[str]) -> str | None:
        line = self.source.next()
        if line is _END:
            return None
        if line is None:
            if not taken:
                taken.append("")
            raise _TooLong
        assert isinstance(line, str)
        taken.append(line)
        self._held = len(line) if len(taken) == 1 else self._held + len(line)
        if len(taken) > 1 and self._held > self.limit:
            raise _TooLong
        return line.replace("\0", "\ufffd")


class _TooLong(Exception):
    pass


def _decoded(value: str, reading: Reading) -> str:
    if not _ESCAPED.search(value):
        return value
    return reading.decode(value.encode("utf-8", "surrogateescape"), reading.source.encoding)
