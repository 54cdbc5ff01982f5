"""Documents that wait to be cleaned together, as single ones and as columns, and the file of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpusmill.pipeline.ingest.records import Document
from corpusmill.pipeline.ingest.text_cleaning import scrub_surrogates
from corpusmill.schemas.tables import ID

Paths = list[tuple[str, int]]  # of the files of rows, with how many rows in a row are of each


class Pending:
    """Documents in order. `size` is what they count as (`corpusmill.pipeline.ingest.records.Batch`)."""

    def __init__(self) -> None:
        self.rows = self.size = 0
        self.notes: dict[int, str] = {}  # row -> what was repaired in it
        self.paths: Paths = []
        self._tables: list[pa.Table] = []
        self._single: list[Document] = []

    def add(self, document: Document, size: int, path: str, note: str | None) -> None:
        """Take one document."""
        if note:
            self.notes[self.rows] = note
        self._single.append(document)
        self._count(1, size, path)

    def add_rows(self, table: pa.Table, size: int, path: str) -> None:
        """Take the rows of a table with the columns of `Document`, all of one file."""
        if self._single:
            self._tables.append(_table(self._single))
            self._single = []
        self._tables.append(table)
        self._count(len(table), size, path)

    def _count(self, rows: int, size: int, path: str) -> None:
        self.rows += rows
        self.size += size
        if self.paths and self.paths[-1][0] == path:
            rows += self.paths.pop()[1]
        self.paths.append((path, rows))

    def table(self) -> pa.Table:
        """All of them, each column in one piece; there must be one at least."""
        tables = [*self._tables, *([_table(self._single)] if self._single else [])]
        if len(tables) == 1:
            return tables[0]
        return pa.concat_tables([table.select(Document._fields) for table in tables]).combine_chunks()


def _table(batch: Sequence[Document]) -> pa.Table:
    columns = dict(zip(Document._fields, zip(*batch, strict=True), strict=True))
    arrays = {}
    for name, values in columns.items():
        kind = pa.large_string() if name == "text" else pa.string()
        try:
            arrays[name] = pa.array(values, kind)
        except UnicodeEncodeError:
            arrays[name] = pa.array([value and scrub_surrogates(value) for value in values], kind)
    return pa.table(arrays)


def locators(paths: Paths, records: pa.Array) -> pa.StringArray:
    """`path#record` of each row."""
    before: pa.Scalar | pa.Array = pa.scalar(paths[0][0], pa.string())
    if len(paths) > 1:
        rows = np.repeat(np.arange(len(paths)), [count for _, count in paths])
        before = pa.array([path for path, _ in paths], pa.string()).take(pa.array(rows))
    return pc.binary_join_element_wise(before, records.cast(pa.string()), "#")


def doc_ids(source: str, places: pa.StringArray) -> pa.FixedSizeBinaryArray:
    """`corpusmill.common.ids.doc_id` of each locator of a source."""
    names = pc.binary_join_element_wise(pa.scalar(source, pa.string()), places, "\0")
    return hashes(names.cast(pa.large_string()))


def hashes(texts: pa.LargeStringArray) -> pa.FixedSizeBinaryArray:
    """xxh3_128 of each text, straight from the Arrow buffers."""
    _, offsets, data = texts.buffers()
    if data is None:
        digests = [xxhash.xxh3_128_digest(b"")] * len(texts)
    else:
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1].tolist()
        view, digest = memoryview(data), xxhash.xxh3_128_digest
        digests = [digest(view[begin:end]) for begin, end in pairwise(ends)]
    return pa.Array.from_buffers(ID, len(digests), [None, pa.py_buffer(b"".join(digests))])
