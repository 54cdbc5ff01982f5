"""Records to partitions: identity, clean text, and a cut as soon as a partition is full."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import doc_id
from corpusmill.pipeline.engine.stage import Outcome
from corpusmill.pipeline.ingest.decoding import REPLACED
from corpusmill.pipeline.ingest.fields import joined
from corpusmill.pipeline.ingest.pending import Paths, Pending, doc_ids, hashes, locators
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.text_cleaning import clean, scrub_surrogates
from corpusmill.pipeline.ingest.text_marks import long_enough
from corpusmill.pipeline.text.buffers import I64, view
from corpusmill.pipeline.text.turns import BROKEN_TURNS, broken
from corpusmill.schemas.stages import IngestParams
from corpusmill.schemas.tables import DOCUMENTS, INGEST_DECISIONS, KEPT, QUARANTINED

BATCH_BYTES = 1 << 20  # text cleaned at a time
BATCH_ROWS = 4_096
MOJIBAKE = "mojibake repaired"
MAX_ROWS = 1 << 18  # of a partition, whatever their text comes to


class PartitionBuilder:
    """Takes the events of a unit in order, gives back each partition as it fills. All its files are of one source.

    Where a partition ends depends on the records alone. Never holds more text than `partition_mb` and one
    batch, where a batch is `BATCH_BYTES` or one record.
    """

    def __init__(self, params: IngestParams, source: str, conversations: bool = False) -> None:
        self.params, self.source, self.conversations = params, source, conversations
        self.limit = max(1, int(params.partition_mb * 2**20))
        self.batch_bytes = min(BATCH_BYTES, max(1, int(params.max_record_mb * 2**20)))
        self.counters: Counter[str] = Counter()
        self._pending = Pending()
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._rows = 0
        self._decisions: list[dict[str, Any]] = []
        self._repaired: dict[
            bytes, dict[str, Any]
        ] = {}  # doc_id -> decision, of documents not yet in a partition

    def add(self, event: Event, reading: Reading) -> Iterator[Outcome]:
        """Take one event; yields the partitions that it completes."""
        note = reading.take_note()
        if isinstance(event, Document):
            if reading.file.metadata:
                event = event._replace(metadata=self._with_listed(event.metadata, reading))
            yield from self.add_document(event, reading.path, note)
        elif isinstance(event, Rejected):
            self._reject(event, reading)
            if len(self._decisions) >= MAX_ROWS:
                yield from self.flush_batch()
                yield self.take()
        elif event.sizes is not None:
            yield from self._add_rows(event.table, event.sizes, reading.path)
        else:
            yield from self.flush_batch()
            table = event.table
            if reading.file.metadata:
                own = (
                    table["metadata"].to_pylist() if "metadata" in table.column_names else [None] * len(table)
                )
                both = pa.array([self._with_listed(one, reading) for one in own], pa.string())
                table = table.drop_columns(["metadata"] if "metadata" in table.column_names else [])
                table = table.append_column("metadata", both)
            yield from self._append(self._complete(table, [(reading.path, len(table))], event.notes))

    def add_document(self, document: Document, path: str, note: str | None = None) -> Iterator[Outcome]:
        """Take one document of a file; `note`: what was repaired in its text. Yields the partitions that it completes."""
        text = document.text
        # At most: counting UTF-8 bytes exactly would encode the text twice.
        size = len(text) * (1 if text.isascii() else 3) + len(document.metadata or "")
        if self._pending.rows and (
            self._pending.size + size > self.batch_bytes or self._pending.rows >= BATCH_ROWS
        ):
            yield from self.flush_batch()
        self._pending.add(document, size, path, note)

    def _add_rows(self, table: pa.Table, sizes: I64, path: str) -> Iterator[Outcome]:
        """Take rows as so many documents: a batch ends where it would if they came one by one."""
        ends = np.r_[0, np.cumsum(sizes)]
        at = 0
        while at < len(table):
            free = self.batch_bytes - self._pending.size
            fit = int(np.searchsorted(ends, ends[at] + free, side="right")) - 1 - at
            fit = min(fit, BATCH_ROWS - self._pending.rows)
            if fit <= 0 and self._pending.rows:
                yield from self.flush_batch()
                continue
            some = slice(at, at + max(fit, 1))  # one that is larger than a batch is a batch
            self._pending.add_rows(table[some], int(ends[some.stop] - ends[at]), path)
            at = some.stop

    def _with_listed(self, own: str | None, reading: Reading) -> str | None:
        """A document's metadata, and what a list says of its file: of two values of one name, the document's."""
        return joined(reading.file.metadata, own, self.counters)

    def flush_batch(self) -> Iterator[Outcome]:
        """Clean what is pending, of however many files; to be called at the end of a unit."""
        if self._pending.rows:
            pending, self._pending = self._pending, Pending()
            yield from self._append(self._complete(pending.table(), pending.paths, pending.notes))

    @property
    def empty(self) -> bool:
        return not (self._rows or self._decisions)

    def take(self) -> Outcome:
        """The partition so far; the next one begins."""
        kept = pa.concat_tables([DOCUMENTS.empty_table(), *self._tables]).combine_chunks()
        decisions = pa.Table.from_pylist(self._decisions, schema=INGEST_DECISIONS)
        self.counters["records"] += len(kept) + sum(row["outcome"] != KEPT for row in self._decisions)
        for source in pc.value_counts(kept["source"]).to_pylist():
            self.counters[f"source/{source['values']}/documents"] += source["counts"]
        counters = {name: self.counters[name] for name in sorted(self.counters) if self.counters[name]}
        self.counters.clear()
        self._tables, self._bytes, self._rows, self._decisions = [], 0, 0, []
        return Outcome(kept, decisions, None, counters)

    def _append(self, table: pa.Table) -> Iterator[Outcome]:
        """Take over documents, cutting where the partition is full."""
        sizes = pc.binary_length(table["text"]).to_numpy().astype(np.int64)
        begin = 0
        while begin < len(table):
            ends = np.cumsum(sizes[begin : begin + MAX_ROWS - self._rows])
            fit = int(np.searchsorted(ends, self.limit - self._bytes, side="right"))
            if not fit and not self._rows:
                fit = 1  # one document larger than a partition is a partition
            if fit:
                self._tables.append(table.slice(begin, fit))
                if self._repaired:
                    ids = self._tables[-1]["doc_id"].to_pylist()
                    self._decisions += [self._repaired.pop(id) for id in ids if id in self._repaired]
                self._bytes += int(ends[fit - 1])
                self._rows += fit
                begin += fit
            if begin < len(table):
                yield self.take()

    def _complete(self, table: pa.Table, paths: Paths, notes: Mapping[int, str]) -> pa.Table:
        """`table` in the form of `DOCUMENTS`: text cleaned, ids set, records without text rejected.

        `paths`: the files of the rows. `notes`: row -> what was repaired in its text so far.
        """
        rows = len(table)
        mojibake: list[int] = []
        text = clean(_one_array(table["text"]), self.params.repair_encoding, self.counters, mojibake)
        columns: dict[str, pa.Array] = {name: _one_array(table[name]) for name in table.column_names}
        columns["text"] = text
        source = self.source
        if "doc_id" not in columns:
            columns["locator"] = locators(paths, columns.pop("record"))
            columns["doc_id"] = doc_ids(source, columns["locator"])
        if "source" not in columns:
            columns["source"] = pa.repeat(pa.scalar(source, pa.string()), rows)
        columns["text_hash"] = hashes(text)
        whole = pa.table(
            [
                _as(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type)
                for f in DOCUMENTS
            ],
            schema=DOCUMENTS,
        )
        if notes or mojibake:
            notes = {
                **notes,
                **{row: "; ".join(filter(None, (notes.get(row), MOJIBAKE))) for row in mojibake},
            }
            self._note(whole.take(sorted(notes)), [notes[row] for row in sorted(notes)])
        if self.conversations and (wrong := broken(text.take(pa.array(mojibake, pa.int64())))):
            whole = self._without_broken(whole, {mojibake[at]: reason for at, reason in wrong.items()})
            text = _one_array(whole["text"])
        if long_enough(*view(text), self.params.min_chars).all():
            return whole
        lengths = pc.utf8_length(pc.utf8_trim_whitespace(text))
        short = pc.less(lengths, self.params.min_chars)
        if not pc.any(short).as_py():
            return whole
        gone = whole.filter(short).select(["doc_id", "source", "source_id", "locator", "url"])
        for row, length in zip(gone.to_pylist(), lengths.filter(short).to_pylist(), strict=True):
            self._repaired.pop(row["doc_id"], None)
            detail = "no text" if not length else f"{length} characters of text"
            rule, least = "ingest.empty_text", self.params.min_chars
            self._decide(row, detail, QUARANTINED, rule=rule, value=length, threshold=least)
        return whole.filter(pc.invert(short))

    def _without_broken(self, whole: pa.Table, reasons: Mapping[int, str]) -> pa.Table:
        """Without the rows whose repaired text is no conversation any more: what was repaired looks like the line of a turn."""
        rows = pa.array(reasons, pa.int64())
        gone = whole.take(rows).select(["doc_id", "source", "source_id", "locator", "url"])
        for row, detail in zip(gone.to_pylist(), reasons.values(), strict=True):
            self._repaired.pop(row["doc_id"], None)
            self._decide(row, detail, QUARANTINED, rule=f"ingest.{BROKEN_TURNS}")
        return whole.filter(pc.invert(pc.is_in(whole["doc_id"], gone["doc_id"].combine_chunks())))

    def _note(self, documents: pa.Table, notes: Sequence[str]) -> None:
        """Rows of the ledger for documents whose text was repaired, with the places of U+FFFD where bytes were replaced."""
        columns = ["doc_id", "source", "source_id", "locator", "url", "text"]
        for row, note in zip(documents.select(columns).to_pylist(), notes, strict=True):
            places = (
                (found.start() for found in re.finditer("\ufffd", row.pop("text")))
                if REPLACED in note
                else ()
            )
            edits = [
                {"stage": "ingest", "kind": "undecodable", "offset": at, "length": 0, "written": 1}
                for at in places
            ]
            decision = {**row, "stage": "ingest", "outcome": KEPT, "detail": note, "edits": edits or None}
            self._repaired[row["doc_id"]] = decision

    def _reject(self, event: Rejected, reading: Reading) -> None:
        locator = f"{reading.path}#{event.record}"
        record = {
            "doc_id": doc_id(reading.file.source, locator),
            "source": reading.file.source,
            "source_id": event.source_id and scrub_surrogates(event.source_id),
            "locator": locator,
            "url": event.url and scrub_surrogates(event.url),
        }
        failed = {"rule": event.rule, "value": event.value, "threshold": event.threshold}
        self._decide(record, event.detail, event.outcome, **failed)

    def _decide(self, record: dict[str, Any], detail: str, outcome: str, **failed: Any) -> None:
        """A row of the ledger; `failed` is the rule, with its value and threshold."""
        failed["stage"] = "ingest"
        self._decisions.append({**record, **failed, "outcome": outcome, "detail": detail, "failed": [failed]})
        self.counters[f"{outcome}/{failed['rule']}"] += 1


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as a single array, not copied where it is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)
