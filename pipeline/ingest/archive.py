"""Records of a web archive, whole or known to be damaged. Parsing by fastwarc (https://resiliparse.chatnoir.eu).

fastwarc ends silently where a file is cut short, so each record's bytes are compared with its Content-Length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.ingest.records import Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged, RawFile, Stream

HTTP_HEADERS = 64 << 10  # allowed beyond the payload's limit
_LZ4 = b"\x04\x22\x4d\x18"


class ArchiveRecord(NamedTuple):
    """One record, its content in memory: `record` is fastwarc's, `name` what follows `#` in the locator."""

    name: str
    record: Any
    url: str | None
    date: str | None
    content: bytes


def records(reading: Reading, kind: str) -> Iterator[ArchiveRecord | Rejected]:
    """The records of type `kind` (`response`, `conversion`); others are counted as `skipped/<type>`.

    Names are WARC record ids; a second record with the same id has its number appended. Raises `Damaged`.
    """
    from fastwarc.warc import ArchiveIterator

    source = _source(reading)
    seen: set[str] = set()
    limit = reading.max_bytes + HTTP_HEADERS
    walk = _Guarded(source, lambda: ArchiveIterator(source, parse_http=False))
    for record in walk:
        reading.recognised = True
        type_ = str(record.record_type).rpartition(".")[2]
        identity = record.record_id
        url = record.headers.get("WARC-Target-URI")
        expected = max(record.content_length, 0)
        if not (record.headers.get("Content-Length") or "").strip().isdigit():
            detail = "a record's header is cut short, or has no Content-Length"
            raise source.damage or Damaged("ingest.truncated", detail, reading.consumed)
        if type_ != kind:
            reading.counters[f"skipped/{type_}"] += 1
            got = walk.call(record.reader.consume)
        elif expected > limit:
            name = _name(identity, seen, reading)
            detail = f"record of {expected} bytes; allowed are {reading.max_bytes} (ingest.max_record_mb)"
            yield Rejected(
                name,
                "ingest.record_too_large",
                detail,
                float(expected),
                float(reading.max_bytes),
                url=_clean(url),
            )
            got = walk.call(record.reader.consume)
        else:
            content = walk.call(record.reader.read) or b""
            got = len(content)
            if got >= expected:
                name = _name(identity, seen, reading)
                yield ArchiveRecord(
                    name, record, _clean(url), _clean(record.headers.get("WARC-Date")), content
                )
        if (got or 0) < expected:
            position = reading.consumed
            detail = f"{type_} record cut short: {got or 0} of {expected} bytes"
            raise source.damage or Damaged("ingest.truncated", detail, position)
    if source.damage:
        raise source.damage
    if walk.error:
        rule = "ingest.damaged" if reading.recognised else "ingest.not_warc"
        raise Damaged(rule, f"no WARC record where one should begin ({walk.error})", reading.consumed)


def _clean(value: str | None) -> str | None:
    value = (value or "").strip().strip("<>")
    return value or None


def _name(identity: str | None, seen: set[str], reading: Reading) -> str:
    number = reading.next()
    if not identity:
        return number
    name = identity.strip().strip("<>").removeprefix("urn:uuid:") or number
    name = name.replace("#", "%23")
    if name in seen or name.isdigit():  # a bare number stands for a record without an id
        name = f"{name}~{number}"
    while name in seen:
        name += "~"
    seen.add(name)
    return name


def _source(reading: Reading) -> _Source:
    stream = reading.stream()
    if stream.peek(4) == _LZ4:
        return _Source(reading.raw())  # fastwarc reads LZ4 frames itself
    return _Source(stream)


class _Source:
    """The file object given to fastwarc: ends where the bytes are damaged, and remembers why.

    Our exceptions must not pass through its native code, and it needs a `tell` method.
    """

    def __init__(self, stream: Stream | RawFile) -> None:
        self.stream = stream
        self.position = 0
        self.damage: Damaged | None = None
        self.failure: WorkError | None = None

    def read(self, size: int = -1) -> bytes:
        if self.damage or self.failure:
            return b""
        try:
            data = self.stream.read(size)
        except Damaged as damage:
            self.damage = damage
            return b""
        except WorkError as failure:
            self.failure = failure
            return b""
        self.position += len(data)
        return data

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = 0) -> int:
        raise OSError("a stream is read from front to back")

    def close(self) -> None:
        """The reading closes its file."""


class _Guarded:
    """Iterates over an archive; whatever the native parser raises (its panics too) ends the iteration."""

    def __init__(self, source: _Source, start: Any) -> None:
        self.source, self._start = source, start
        self.error: str | None = None

    def __iter__(self) -> Iterator[Any]:
        iterator = self.call(self._start)
        while iterator is not None and (record := self.call(lambda: next(iterator, None))) is not None:
            yield record

    def call(self, function: Any) -> Any:
        """The function's result, or None with `error` set. A failing store raises `WorkError`."""
        result = None
        try:
            result = function()
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # pyo3's PanicException is no Exception
            self.error = (
                str(error).splitlines()[0][:80] if isinstance(error, OSError) else type(error).__name__
            )
        if self.source.failure:
            raise self.source.failure
        return result
