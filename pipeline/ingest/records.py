"""Events that readers yield to the partition builder, the file being read, and fields of structured records.

`scalar`, `columns_of`, `take` and `metadata` map a structured record (JSON object, Parquet row) to the columns beside its text."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.discover import InputFile
from corpusmill.pipeline.ingest.streams import RawFile, Stream
from corpusmill.schemas.recipe import Source
from corpusmill.schemas.stages import IngestParams
from corpusmill.schemas.tables import QUARANTINED


class Document(NamedTuple):
    """One record whose text was found. `record` is what follows `#` in the locator."""

    record: str
    text: str
    source_id: str | None = None
    url: str | None = None
    date: str | None = None
    metadata: str | None = None


class Rejected(NamedTuple):
    """One record (or the unreadable rest of a file) that gives no document. `detail` contains none of its text."""

    record: str
    rule: str
    detail: str
    value: float | None = None
    threshold: float | None = None
    outcome: str = QUARANTINED
    source_id: str | None = None
    url: str | None = None


class Batch(NamedTuple):
    """Records of a columnar file: any of the columns of `corpusmill.schemas.tables.DOCUMENTS`, `text` at least.

    Without `doc_id`, a column `record` gives what follows `#` in each locator.
    """

    table: pa.Table


Event = Document | Rejected | Batch
Reader = Callable[["Reading"], Iterator[Event]]


@dataclass
class Reading:
    """One file being read: its settings, the record count so far, what to count."""

    file: InputFile
    source: Source
    params: IngestParams
    counters: Counter[str] = field(default_factory=Counter)
    records: int = 0  # records seen so far, good and bad: the number of the next one
    recognised: bool = False  # something of the format was there, even if it held no document
    _raw: RawFile | None = None

    @property
    def max_bytes(self) -> int:
        """The longest record taken, bytes."""
        return max(1, int(self.params.max_record_mb * 2**20))

    @property
    def consumed(self) -> int:
        """Bytes of the file as stored that were read so far."""
        return min(self._raw.consumed, self.file.size) if self._raw else 0

    def next(self) -> str:
        """The number of the next record, which counts from now on."""
        self.records += 1
        return str(self.records - 1)

    def count_repair(self, encoding: str | None) -> None:
        """Count a record whose text was repaired: in this encoding, in place of the one expected."""
        if encoding:
            self.counters["encoding_repaired"] += 1
            self.counters[f"encoding_repaired/{encoding}"] += 1

    def too_large(
        self, record: str, detail: str, size: int, *, source_id: str | None = None, url: str | None = None
    ) -> Rejected:
        """A record of `size` bytes, which is more than one may have."""
        return Rejected(
            record, "ingest.record_too_large", f"{detail} (ingest.max_record_mb)", float(size), float(self.max_bytes),
            source_id=source_id, url=url,
        )  # fmt: skip

    def raw(self) -> RawFile:
        """The file as stored."""
        self.close()
        self._raw = RawFile(Folder(self.file.url))
        return self._raw

    def stream(self) -> Stream:
        """The file decompressed (codec by its first bytes), in bounded memory."""
        return Stream(self.raw(), self.file.path)

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()


METADATA_BYTES = 16 << 10  # more is dropped, and counted


def scalar(value: Any) -> str | None:
    """A value as an id, URL or date; None for what is none."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return str(value)
    return str(value.isoformat()) if hasattr(value, "isoformat") else None


def columns_of(source: Source) -> dict[str, str]:
    """Our column -> the field of the record that fills it."""
    return {
        "source_id": source.id_column or "id",
        "url": source.url_column or "url",
        "date": source.date_column or "date",
    }


def suggest(wanted: str, texts: Mapping[str, int]) -> str:
    """`"; did you mean 'x'?"` for the field of text that `wanted` may be: one named nearly so, else the one with most text.

    `texts`: fields that hold strings, with how much text they hold. `""` when there is none.
    """
    close = difflib.get_close_matches(wanted, texts, n=1, cutoff=0.75)
    best = close[0] if close else max(texts, key=lambda name: (texts[name], name), default=None)
    return f"; did you mean '{best}'?" if best is not None else ""


def take(record: dict[str, Any], columns: dict[str, str]) -> dict[str, str | None]:
    """Remove and return the fields that have a column of their own."""
    taken: dict[str, str | None] = {}
    for column, name in columns.items():
        value = scalar(record.get(name))
        if value is not None:
            del record[name]
        taken[column] = value
    return taken


def metadata(record: dict[str, Any], counters: Counter[str]) -> str | None:
    """What is left of a record as JSON; None, counted, if that is more than `METADATA_BYTES`."""
    if not record:
        return None
    try:
        dumped = orjson.dumps(record, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):
        try:
            dumped = json.dumps(record, default=_plain).encode("ascii")
        except (TypeError, ValueError, RecursionError):
            counters["metadata_dropped"] += 1
            return None
    if len(dumped) > METADATA_BYTES:
        counters["metadata_dropped"] += 1
        return None
    return dumped.decode("utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        raise TypeError("binary values are no metadata")
    return str(value)
