"""What passes between a reader and the partition builder, and what a reader is given to work with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.discover import InputFile
from corpusmill.pipeline.ingest.streams import RawFile, Stream
from corpusmill.schemas.ledger import QUARANTINED
from corpusmill.schemas.recipe import Source
from corpusmill.schemas.stages import IngestParams


class Document(NamedTuple):
    """One record whose text was found. `record` is what follows `#` in the locator."""

    record: str
    text: str
    source_id: str | None = None
    url: str | None = None
    date: str | None = None
    metadata: str | None = None


class Rejected(NamedTuple):
    """One record (or the unreadable rest of a file) that gives no document. `detail` holds no text of it."""

    record: str
    rule: str
    detail: str
    value: float | None = None
    threshold: float | None = None
    outcome: str = QUARANTINED
    source_id: str | None = None
    url: str | None = None


class Batch(NamedTuple):
    """Records of a columnar file: any of the columns of `corpusmill.schemas.documents.DOCUMENTS`, `text` at least.

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

    def raw(self) -> RawFile:
        """The file as stored."""
        self.close()
        self._raw = RawFile(Folder(self.file.url))
        return self._raw

    def stream(self) -> Stream:
        """The file decompressed, as its first bytes say, in bounded memory."""
        return Stream(self.raw(), self.file.path)

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()
