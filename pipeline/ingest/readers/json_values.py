"""JSON that is not one object a line: an array of objects, or objects one after the other over any number of lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from corpusmill.pipeline.ingest.decoding import Undecodable
from corpusmill.pipeline.ingest.fields import document, kind_of
from corpusmill.pipeline.ingest.readers.jsonl import as_utf8, without_surrogates
from corpusmill.pipeline.ingest.records import Event, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Stream

_BETWEEN = re.compile(r"[\s,\x1e]*")  # also the record separator of RFC 7464
# Where the next object probably begins behind one that cannot be read.
_NEXT = re.compile(r"(?:\}\s*,\s*|\n\s*,?\s*)(?=\{)")
_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`. Holds one block, or one value of at most `max_record_mb`."""
    text = _Text(as_utf8(reading.stream()))
    decoder = json.JSONDecoder()
    inside, number = False, 0
    while True:
        text.skip_between()
        if text.ended:
            break
        sign = text.data[text.at]
        if (sign == "[" and not inside) or (sign == "]" and inside):
            inside = not inside
            reading.recognised = True
            text.at += 1
            continue
        try:
            value = text.value(decoder, reading.max_bytes)
        except TooLong:
            detail = f"value {number} has more than {reading.max_bytes} characters; the rest of the file is not read"
            yield reading.too_large(reading.next(), detail, reading.max_bytes + 1)
            return
        except ValueError as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            passed, cut = text.skip_to_next()
            rule = "ingest.truncated" if cut and "Unterminated" in reason else "ingest.malformed_json"
            detail = f"value {number}: {reason}; {passed} characters are passed over"
            yield Rejected(reading.next(), rule, detail, float(passed))
            number += 1
            continue
        if isinstance(value, dict):
            try:
                yield document(_decoded(value, reading), f"value {number}", float(number), reading)
            except Undecodable as error:
                yield Rejected(
                    reading.next(), "ingest.undecodable", f"value {number}: {error.reason}", float(number)
                )
        else:
            detail = f"value {number} is a JSON {kind_of(value)} in place of an object"
            yield Rejected(reading.next(), "ingest.not_an_object", detail, float(number))
        number += 1
    if inside:
        yield Rejected(
            reading.next(), "ingest.truncated", f"the array does not end behind value {number - 1}"
        )


class TooLong(Exception):
    """A value is longer than a record may be."""


class _Text:
    """The file as text, as far as it was needed; bytes that are not UTF-8 are escaped as lone surrogates."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.data, self.at, self._over = "", 0, False
        self.more()
        self.data = self.data.removeprefix("\ufeff")

    @property
    def ended(self) -> bool:
        return self._over and self.at >= len(self.data)

    def more(self) -> bool:
        """Read on; False at the end."""
        if not self._over:
            block = self.stream.read()
            self._over = not block
            self.data = self.data[self.at :] + self.decoder.decode(block, self._over)
            self.at = 0
        return not self._over

    def skip_between(self) -> None:
        while True:
            found = _BETWEEN.match(self.data, self.at)
            assert found is not None
            self.at = found.end()
            if self.at < len(self.data) or not self.more():
                return

    def value(self, decoder: json.JSONDecoder, limit: int) -> Any:
        """The value that begins here; raises `ValueError` for none, `TooLong` for one of more than `limit` characters."""
        while True:
            try:
                value, end = decoder.raw_decode(self.data, self.at)
                whole = end < len(self.data) or self._over or isinstance(value, dict | list | str)
            except RecursionError:
                raise ValueError("values nest too deep") from None
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self.data) - 16
                if not cut or self._over:
                    raise
                whole = False
            if whole:
                if end - self.at > limit:
                    raise TooLong
                self.at = end
                return value
            if len(self.data) - self.at > limit:
                raise TooLong
            for _ in range(
                1 + (len(self.data) - self.at) // (1 << 18)
            ):  # twice as much, so that no value is read often
                self.more()

    def skip_to_next(self) -> tuple[int, bool]:
        """Pass over what is no value: (characters, whether the file ends there)."""
        passed = 0
        begin = self.at + 1
        while True:
            brace = (
                self.data.find("{", begin) >= 0
            )  # far faster than the pattern, which finds nothing without one
            if brace and (found := _NEXT.search(self.data, begin)):
                passed += found.end() - self.at
                self.at = found.end()
                return passed, False
            passed += len(self.data) - self.at
            self.at = begin = len(self.data)
            if not self.more():
                return passed + len(self.data) - self.at, True
            begin = 0


def _decoded(value: dict[str, Any], reading: Reading) -> dict[str, Any]:
    """The object with escaped bytes decoded by whatever encoding they are in. Raises `Undecodable`."""
    for name, item in value.items():
        if isinstance(item, str) and _ESCAPED.search(item):
            value[name] = reading.decode(item.encode("utf-8", "surrogateescape"), reading.source.encoding)
    clean: dict[str, Any] = without_surrogates(value, reading)
    return clean
