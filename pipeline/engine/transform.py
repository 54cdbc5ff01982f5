"""The form of everything partition-local: a pure function from an Arrow table to an `Outcome`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import text_hash
from corpusmill.schemas.documents import DOCUMENTS
from corpusmill.schemas.ledger import DECISIONS, QUARANTINED, REMOVED


class Outcome(NamedTuple):
    """What a transform made of a table of documents.

    `len(docs) == len(kept) + removed + quarantined`: the runner checks it at every call. `decisions` has one
    row per document removed, quarantined or edited (`corpusmill.schemas.ledger.DECISIONS`); a document without a row was
    kept as it came. `signals` has one row per document that came in. `counters` are summed over the run;
    those named `source/<name>/...` are shown per source.
    """

    kept: pa.Table
    decisions: pa.Table
    signals: pa.Table | None = None
    counters: dict[str, int] = {}  # noqa: RUF012 (a NamedTuple default, never written to)


class Transform(Protocol):
    """Same input, same bytes out: no clock, no random state, no dependence on other partitions."""

    def __call__(self, docs: pa.Table) -> Outcome: ...


def decisions(rows: list[dict[str, Any]] | None = None, **columns: Any) -> pa.Table:
    """A `DECISIONS` table from row dicts (few rows) or from columns (many); absent columns are null."""
    if rows is not None:
        return pa.Table.from_pylist(rows, schema=DECISIONS)
    length = len(columns["doc_id"])
    arrays = [
        pa.array(columns[f.name], f.type)
        if f.name in columns and not isinstance(columns[f.name], pa.Array | pa.ChunkedArray)
        else columns[f.name].cast(f.type)
        if f.name in columns
        else pa.nulls(length, f.type)
        for f in DECISIONS
    ]
    return pa.Table.from_arrays(arrays, schema=DECISIONS)


def with_texts(docs: pa.Table, texts: Mapping[int, str]) -> pa.Table:
    """`docs` with these texts at these rows, and their hashes."""
    if not texts:
        return docs
    rows = sorted(texts)
    new = [texts[row] for row in rows]
    mask = np.zeros(len(docs), np.bool_)
    mask[rows] = True
    for name, values in (("text", new), ("text_hash", [text_hash(text) for text in new])):
        field = DOCUMENTS.field(name)
        column = pc.replace_with_mask(docs[name], pa.array(mask), pa.array(values, field.type))
        docs = docs.set_column(docs.schema.get_field_index(name), field, column)
    return docs


def check_conservation(where: str, docs_in: int, outcome: Outcome) -> tuple[int, int]:
    """(removed, quarantined) of an outcome; raises `AssertionError` if a document got lost or doubled."""
    counts = {
        entry["values"]: entry["counts"] for entry in outcome.decisions["outcome"].value_counts().to_pylist()
    }
    removed, quarantined = counts.get(REMOVED, 0), counts.get(QUARANTINED, 0)
    if docs_in != len(outcome.kept) + removed + quarantined:
        raise AssertionError(
            f"{where}: {docs_in} documents in, but {len(outcome.kept)} kept + {removed} removed"
            f" + {quarantined} quarantined out"
        )
    return removed, quarantined
