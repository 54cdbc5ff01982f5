"""Columns of which many rows may share one value (dictionaries, views, runs): expanded, a small batch may take any memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

EXPANDED_BYTES = 64 << 20  # that the rows of a slice may come to
_TESTS = pa.types


def slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `rows` rows that come to `EXPANDED_BYTES` or are one row."""
    sizes = np.zeros(len(batch), np.int64)
    for column in batch.columns:
        if _shares(column.type):
            sizes += np.minimum(_row_sizes(column), EXPANDED_BYTES + 1)
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(batch):
        before = int(ends[begin - 1]) if begin else 0
        fit = int(np.searchsorted(ends, before + EXPANDED_BYTES, side="right")) - begin
        count = max(1, min(rows, fit, len(batch) - begin))
        yield batch.slice(begin, count)
        begin += count


def _shares(kind: Any) -> bool:
    """Whether values of a type may be used by several rows."""
    if _TESTS.is_dictionary(kind) or _TESTS.is_string_view(kind) or _TESTS.is_binary_view(kind):
        return True
    if _TESTS.is_list_view(kind) or _TESTS.is_large_list_view(kind) or _TESTS.is_run_end_encoded(kind):
        return True
    return any(_shares(kind.field(n).type) for n in range(kind.num_fields))


def _row_sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each row once expanded; of nested types, at most: what all buffers of the column hold."""
    kind = column.type
    if _TESTS.is_string_view(kind) or _TESTS.is_binary_view(kind):
        lengths = np.frombuffer(column.buffers()[1], np.int32)[0::4]
        return lengths[column.offset : column.offset + len(column)].astype(np.int64)
    if _TESTS.is_dictionary(kind) and _has_lengths(kind.value_type):
        lengths = pc.fill_null(pc.binary_length(column.dictionary), 0)
        of_rows = pc.fill_null(lengths.take(column.indices), 0)
        return np.asarray(of_rows.to_numpy(zero_copy_only=False), np.int64)
    return np.full(len(column), column.get_total_buffer_size(), np.int64)


def _has_lengths(kind: Any) -> bool:
    return any(
        test(kind)
        for test in (_TESTS.is_string, _TESTS.is_large_string, _TESTS.is_binary, _TESTS.is_large_binary)
    )
