"""Survivor order as numbers: for each document a row of int64, smaller is better, one per `keep_order` entry.

The first number is 0 for a document that may not be removed (its source is not in `remove_only_from`): such
documents come before all others.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.dedup import DedupParams

I64 = npt.NDArray[np.int64]

WORST = np.iinfo(np.int64).max  # what is not known comes last
_DATE = (
    r"^(?P<y>\d{4})(?:-?(?P<m>\d\d)(?:-?(?P<d>\d\d)"
    r"(?:[T ](?P<H>\d\d)(?::?(?P<M>\d\d)(?::?(?P<S>\d\d))?)?)?)?)?"
)


def columns_needed(params: DedupParams) -> list[str]:
    """The columns of documents that `order` reads."""
    named = {name.removeprefix("-").split(":")[0] for name in params.keep_order}
    extra = {"date": "date", "metadata": "metadata"}
    return ["doc_id", "source", "text", *(column for name, column in extra.items() if name in named)]


def order(
    params: DedupParams, priorities: dict[str, int], partition: Partition, docs: pa.Table, rows: I64
) -> I64:
    """int64[rows, 1 + entries] of the documents at `rows`. Raises `UserError` if a signal is not there."""
    names, codes = _codes(docs["source"])
    own = params.remove_only_from
    found = [np.array([own is None or name in own for name in names], np.int64)[codes]]
    for entry in params.keep_order:
        kind, _, key = entry.removeprefix("-").partition(":")
        if kind == "source_priority":
            column = -np.array([priorities.get(name, 0) for name in names], np.int64)[codes]
        elif kind == "length":
            column = -pc.binary_length(docs["text"]).to_numpy().astype(np.int64)
        elif kind == "date":
            column = dates(docs["date"])
        elif kind == "doc_id":  # decides last in any case; as an entry it only ends the list
            column = np.zeros(len(docs), np.int64)
        elif kind == "signal":
            column = highest_first(_signal(partition, key, docs))
        else:
            column = highest_first(_metadata(docs, key))
        found.append(turned(column) if entry.startswith("-") else column)
        if kind == "doc_id":
            found += [np.zeros(len(docs), np.int64)] * (1 + len(params.keep_order) - len(found))
            break
    return np.stack(found, axis=1)[rows]


def turned(column: I64) -> I64:
    """The opposite order; what is not known stays last."""
    return np.where(column == WORST, column, -column)


def highest_first(values: npt.NDArray[np.float64]) -> I64:
    """Numbers whose ascending order is the descending order of `values`; what is not a number comes last."""
    bits = (-values).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return np.where(np.isnan(values), WORST, ordered)


def dates(column: pa.ChunkedArray) -> I64:
    """ISO 8601 dates as numbers YYYYMMDDhhmmss; what is not given counts as 0, offsets from UTC are not
    applied. A missing or unreadable date comes last."""
    parts = pc.extract_regex(column, _DATE)
    digits = pc.binary_join_element_wise(*(pc.struct_field(parts, [name]) for name in "ymdHMS"), "")
    numbers = pc.cast(pc.ascii_rpad(digits, 14, "0"), pa.int64())
    result: I64 = pc.fill_null(numbers, WORST).to_numpy()
    return result


def _codes(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int32]]:
    encoded = pc.dictionary_encode(column.combine_chunks())
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _signal(partition: Partition, name: str, docs: pa.Table) -> npt.NDArray[np.float64]:
    file = partition.folder / f"signals/{partition.name}.parquet"
    try:
        table = read_table(file)
    except FileNotFoundError:
        raise UserError(
            f"dedup.keep_order: signal:{name}: no signals are stored before dedup; put filter before it"
        ) from None
    if name not in table.column_names:
        known = ", ".join(n for n in table.column_names if n != "doc_id")
        raise UserError(f"dedup.keep_order: signal:{name} is not measured; stored are {known}")
    row = pc.index_in(docs["doc_id"], value_set=table["doc_id"])
    values = pc.cast(table[name], pa.float64()).take(row)
    return pc.fill_null(values, math.nan).to_numpy()


def _metadata(docs: pa.Table, key: str) -> npt.NDArray[np.float64]:
    def number(text: str | None) -> float:
        value: Any = json.loads(text).get(key) if text else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan

    return np.array([number(text) for text in docs["metadata"].to_pylist()], np.float64).reshape(-1)
