"""Sizes of the pages of a Parquet file, from their headers alone: a page is decompressed whole, however much it expands to.

Headers are Thrift structs in the compact protocol (https://github.com/apache/parquet-format, `PageHeader`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import pyarrow.parquet as pq

from corpusmill.pipeline.ingest.readers.parquet_fetch import Fetched

HEADER_BYTES = 1 << 16  # read at once; statistics in a header may hold values
_UNCOMPRESSED, _COMPRESSED = 2, 3  # fields of PageHeader
_BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 3, 7, 8, 9, 10, 11, 12


class Page(NamedTuple):
    """Bytes of a page as stored and as decompressed."""

    stored: int
    expanded: int


class Unreadable(ValueError):
    """No page header where one should be."""


def pages(file: BinaryIO | Fetched, start: int, size: int) -> Iterator[Page]:
    """The pages of a column chunk of `size` bytes from byte `start` of a file. Raises `Unreadable`."""
    end = start + size
    while start < end:
        file.seek(start)
        header = _Header(file.read(HEADER_BYTES))
        fields = header.numbers()
        expanded, stored = fields.get(_UNCOMPRESSED, -1), fields.get(_COMPRESSED, -1)
        if expanded < 0 or stored < 0:
            raise Unreadable(f"no page header at byte {start}")
        yield Page(stored, expanded)
        start += header.at + stored


def first_byte(column: pq.ColumnChunkMetaData) -> int:
    """Where the pages of a column chunk begin (`pyarrow.parquet.ColumnChunkMetaData`)."""
    starts = [column.data_page_offset, column.dictionary_page_offset]
    return int(min(at for at in starts if at is not None and (column.has_dictionary_page or at)))


class _Header:
    """Reads a Thrift struct from the beginning of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def numbers(self) -> dict[int, int]:
        """The struct's integer fields; all others are passed over."""
        found, field = {}, 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            if _BYTE < kind < _DOUBLE:
                found[field] = self._integer()
            else:
                self._skip(kind, 0)
        return found

    def _byte(self) -> int:
        if self.at >= len(self.data):
            raise Unreadable("a page header is cut short")
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise Unreadable("a number in a page header does not end")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int, depth: int) -> None:
        if depth > 8:
            raise Unreadable("a page header nests too deep")
        if kind in (1, 2):  # a boolean is in the field's head
            return
        if kind == _BYTE:
            self._byte()
        elif kind < _DOUBLE:
            self._varint()
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            size = self._varint()
            self.at += size
        elif kind in (_LIST, _SET):
            head = self._byte()
            for _ in range(head >> 4 if head >> 4 < 15 else self._varint()):
                self._element(head & 15, depth)
        elif kind == _STRUCT:
            while (head := self._byte()) != 0:
                if not head >> 4:
                    self._integer()
                self._skip(head & 15, depth + 1)
        else:  # no page header has a map
            raise Unreadable("no page header")

    def _element(self, kind: int, depth: int) -> None:
        if kind in (1, 2):  # in a list, a boolean has a byte of its own
            self._byte()
        else:
            self._skip(kind, depth + 1)
