"""Events that readers yield to the partition builder, and the file being read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.decoding import Decoded, decode
from corpusmill.pipeline.ingest.discover import InputFile
from corpusmill.pipeline.ingest.raw_file import RawFile, named_by_content
from corpusmill.pipeline.ingest.streams import Stream
from corpusmill.pipeline.ingest.text_cleaning import scrub_surrogates
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from corpusmill.schemas.tables import QUARANTINED

NAME_CHARS, NAME_WORDS = 40, 3  # of a field's name; what is longer may be text that damage put there


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

    Without `doc_id`, a column `record` gives what follows `#` in each locator. With `sizes`, the rows are as so many `Document`s, of which each
    counts as so much: of its text 1 for a character, 3 if it has any beyond ASCII, and 1 for a character of its metadata.
    """

    table: pa.Table
    notes: dict[int, str] = {}  # row -> what was repaired in its text  # noqa: RUF012 (a NamedTuple default, never written to)
    sizes: npt.NDArray[np.int64] | None = None


Event = Document | Rejected | Batch
Reader = Callable[["Reading"], Iterator[Event]]


def shown_name(name: str) -> str:
    """A field's name for the reason of a rejected record; of one that may be text, its length."""
    if len(name) > NAME_CHARS or len(name.split()) > NAME_WORDS:
        return f"<{len(name)} characters>"
    return scrub_surrogates(name)


@dataclass
class Reading:
    """One file, or part of one, being read: its settings, the record count so far, what to count.

    `content` opens the bytes of a file that is a member of an archive, inside `depth` archives.
    """

    file: InputFile
    source: Source
    params: IngestParams
    counters: Counter[str] = field(default_factory=Counter)
    records: int = 0  # records seen so far, good and bad: the number of the next one
    recognised: bool = False  # something of the format was there, even if it held no document
    content: Callable[[], BinaryIO] | None = None
    depth: int = 0
    member: str = ""  # of an archive: the member whose records come now
    _raw: RawFile | None = None
    _notes: list[str] = field(default_factory=list)  # repairs of the record that is read now

    def __post_init__(self) -> None:
        if self.file.part:
            self.records = self.file.part.record

    @property
    def max_bytes(self) -> int:
        """The longest record taken, bytes."""
        return max(1, int(self.params.max_record_mb * 2**20))

    @property
    def consumed(self) -> int:
        """Bytes as stored that were read so far."""
        return min(self._raw.consumed, self.file.stored) if self._raw else 0

    def next(self) -> str:
        """The number of the next record, which counts from now on."""
        self.records += 1
        return str(self.records - 1)

    def decode(self, data: bytes, declared: str | None = None) -> str:
        """`data` as text, as `corpusmill.pipeline.ingest.decoding.decode` has it. Raises `Undecodable`."""
        return self.repaired(decode(data, declared, self.params.max_replaced)).text

    def repaired(self, decoded: Decoded) -> Decoded:
        """Count what had to be repaired, and keep it in words for the record that is read now."""
        if decoded.repaired:
            self.counters["encoding_repaired"] += 1
            self.counters[f"encoding_repaired/{decoded.repaired}"] += 1
            self._notes.append(decoded.note or decoded.repaired)
        return decoded

    def take_note(self) -> str | None:
        """What was repaired in the record read last; None if nothing was. The next record begins without."""
        note = "; ".join(self._notes) or None
        self._notes.clear()
        return note

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
        begin, end = (self.file.part.begin, self.file.part.end) if self.file.part else (0, None)
        self._raw = RawFile(Folder(self.file.url), self.file.size, self.file.tag, begin, end, self.content)
        return self._raw

    @property
    def path(self) -> str:
        """What precedes `#` in the locator of the record that comes now: the file, or `archive!member`."""
        return f"{self.file.path}!{self.member}" if self.member else self.file.path

    @property
    def local(self) -> bool:
        """Whether any part of the file can be read without a request."""
        return self.content is not None or Folder(self.file.url).local

    def open(self) -> BinaryIO:
        """The file's bytes once more, from the beginning; they are not counted."""
        return self.content() if self.content else Folder(self.file.url).open(size=self.file.size)

    def read_as_member(self, file: InputFile, source: Source, content: Callable[[], BinaryIO]) -> Reading:
        """The reading of a file inside this one. What it counts and repairs is counted here."""
        return Reading(
            file,
            source,
            self.params,
            self.counters,
            content=content,
            depth=self.depth + 1,
            _notes=self._notes,
        )

    def stream(self) -> Stream:
        """The file decompressed (codec by its first bytes), or the part of it as it is, in bounded memory."""
        return Stream(self.raw(), self.file.path)

    def unchanged(self, planned: str) -> bool:
        """Whether the file that was read is the one that was planned, by its content hash.

        Of a remote object that was not read from front to back (Parquet) the store's change tag is compared; a file of the
        Hub is of one commit, which does not change, and of its parts there are no hashes.
        """
        if self.file.problem or self._raw is None:
            return True
        of_commit = named_by_content(self.file.tag)
        if self._raw.hashed == self.file.stored and not (of_commit and self.file.part):
            return self._raw.hexdigest() == planned
        if of_commit:
            return True
        place = Folder(self.file.url)
        if not place.local and self.file.tag:
            return place.entry().tag == self.file.tag
        return self._raw.digest() == planned

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()
