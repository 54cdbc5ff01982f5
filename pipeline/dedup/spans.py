"""Spans to cut from the texts of a partition, and the cutting: what repeated lines and substrings share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup import span_edges
from corpusmill.pipeline.dedup.lines import line_kernels
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.stage import Outcome, Partition, decisions
from corpusmill.pipeline.text import splicing as cuts
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.shingles import one_array, view
from corpusmill.schemas.documents import DOCUMENTS
from corpusmill.schemas.ledger import FAILED_RULE, KEPT, REMOVED

I64 = npt.NDArray[np.int64]
STAGE: Final = "dedup"

# Offset and length in bytes of the UTF-8 text as the stage received it. Sorted by (doc_id, offset).
SPANS = pa.schema([("doc_id", pa.binary(16)), ("offset", pa.int64()), ("length", pa.int64())])


@dataclass(frozen=True)
class Kept:
    """A partition, and what document deduplication left of it.

    `removals` is the folder of the stage's `removals/<name>.parquet` file itself (columns `doc_id` and
    `kept` among others; documents in no cluster are absent, and stay), `xxh3` its checksum. None: all stay.
    """

    index: int
    partition: Partition
    removals: Folder | None = None
    xxh3: str = ""

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The documents that stay, in the order of the partition. Raises `WorkError` for changed bytes."""
        if self.removals is None:
            return self.partition.read(columns)
        found = read_table(self.removals, self.xxh3, ["doc_id", "kept"])
        gone = found["doc_id"].filter(pc.invert(found["kept"]))
        docs = self.partition.read([*dict.fromkeys(["doc_id", *columns])])
        return docs.filter(pc.invert(pc.is_in(docs["doc_id"], value_set=gone))).select(list(columns))


def cut(docs: pa.Table, spans: Mapping[str, pa.Table], min_left: Mapping[str, int]) -> Outcome:
    """`docs` (schema `DOCUMENTS`) without the spans; `spans` maps a kind, which is also the rule's name, to
    the partition's `SPANS`.

    The union of all kinds is cut as `span_edges.py` describes, and what it takes along of white space is part
    of the edit. Every document from which anything was cut has a decision: `edits` per kind, in characters
    of the text as received, sorted, those of one kind apart; the union of them is exactly what is missing.
    A document left with fewer words than `min_left` of a kind that cut it is removed: by the rule that cut
    more bytes, with the words left as value.

    Raises `WorkError` for spans of documents that `docs` does not have, or outside of their texts.
    """
    text = one_array(docs["text"])
    offsets, data = view(text)
    rows, starts, stops, kinds = _spans(docs, offsets, spans)
    span_edges.snap(offsets, data, rows, starts, stops)
    pieces = span_edges.settle(offsets, data, word_rule.rule(), rows, starts, stops)
    if len(pieces) == 0:
        return Outcome(docs, decisions(rows=[]))
    edits = _merged(span_edges.credit(pieces, starts, stops, kinds))
    new_data, new_offsets = cuts.splice(data, offsets, pieces)
    edited = np.unique(pieces[:, 0])
    left = line_kernels.count_words(new_offsets, new_data, edited, word_rule.rule())

    names = list(spans)
    cut_bytes = np.zeros((len(edited), len(names)), np.int64)
    np.add.at(cut_bytes, (np.searchsorted(edited, edits[:, 0]), edits[:, 1]), edits[:, 3] - edits[:, 2])
    floor = np.array([min_left[name] for name in names], np.int64)
    failed = (cut_bytes > 0) & (left[:, None] < floor)
    stays = np.ones(len(docs), bool)
    stays[edited[failed.any(axis=1)]] = False

    new_text = pa.LargeStringArray.from_buffers(len(docs), pa.py_buffer(new_offsets), pa.py_buffer(new_data))
    changed = docs
    for name, values in (
        ("text", new_text),
        (
            "text_hash",
            cuts.with_hashes(docs["text_hash"], edited, cuts.hashes(new_data, new_offsets, edited)),
        ),
    ):
        place = docs.column_names.index(name)
        changed = changed.set_column(place, DOCUMENTS.field(name), values)
    rule = np.where(failed, cut_bytes, -1).argmax(axis=1)
    characters = cuts.in_characters(data, offsets, edits[:, 0], edits[:, 2], edits[:, 3])
    listed = cuts.edits(
        STAGE, edits[:, 0], pa.array(names, pa.string()).take(pa.array(edits[:, 1])), characters
    )
    table = _decisions(docs, edited, names, failed, rule, left, floor, listed)
    return Outcome(changed.filter(pa.array(stays)), table)


def _spans(docs: pa.Table, offsets: I64, spans: Mapping[str, pa.Table]) -> tuple[I64, I64, I64, I64]:
    """(rows, starts, stops, kinds) of all spans, sorted by (row, start, kind)."""
    columns: list[list[I64]] = [[np.empty(0, np.int64)] for _ in range(4)]
    for kind, (name, table) in enumerate(spans.items()):
        row = pc.index_in(table["doc_id"], value_set=docs["doc_id"])
        if row.null_count:
            raise WorkError(f"{name}: spans were made for other documents; run the stage again")
        found = row.to_numpy().astype(np.int64)
        start, length = table["offset"].to_numpy(), table["length"].to_numpy()
        if ((start < 0) | (length < 0) | (start + length > (offsets[1:] - offsets[:-1])[found])).any():
            raise WorkError(f"{name}: spans were made for other texts; run the stage again")
        for column, values in zip(
            columns, (found, start, start + length, np.full(len(found), kind)), strict=True
        ):
            column.append(values)
    rows, starts, stops, kinds = (np.concatenate(column) for column in columns)
    order = np.lexsort((kinds, starts, rows))
    return rows[order], starts[order], stops[order], kinds[order]


def _merged(edits: I64) -> I64:
    """Edits (row, kind, start, stop) with those of one kind that touch made one; sorted by row, start, kind."""
    edits = edits[np.lexsort((edits[:, 2], edits[:, 1], edits[:, 0]))]
    # The furthest stop so far inside each (row, kind): groups are lifted apart so that one running maximum does.
    new_group = np.r_[True, (edits[1:, 0] != edits[:-1, 0]) | (edits[1:, 1] != edits[:-1, 1])]
    lift = np.cumsum(new_group) * (int(edits[:, 3].max()) + 2)
    reach = np.maximum.accumulate(edits[:, 3] + lift)
    new = np.r_[True, (edits[1:, 2] + lift[1:]) > reach[:-1]]
    heads = np.flatnonzero(new)
    last = np.r_[heads[1:], len(edits)] - 1
    merged = edits[heads]
    merged[:, 3] = (reach - lift)[last]
    return merged[np.lexsort((merged[:, 1], merged[:, 2], merged[:, 0]))]


def _decisions(
    docs: pa.Table, edited: I64, names: list[str], failed: npt.NDArray[np.bool_], rule: I64, left: I64,
    floor: I64, edits: pa.ListArray,
) -> pa.Table:  # fmt: skip
    """A decision per edited document, sorted by its place in `docs`."""
    gone = np.logical_or.reduce(failed, axis=1)
    kept = pa.array(~gone)
    rules: list[Any] = [
        [
            {"stage": STAGE, "rule": names[k], "value": float(words), "threshold": float(floor[k])}
            for k in np.flatnonzero(flags)
        ]
        if out
        else None
        for flags, out, words in zip(failed, gone.tolist(), left.tolist(), strict=True)
    ]

    def only_gone(values: pa.Array) -> pa.Array:
        return pc.if_else(kept, pa.scalar(None, values.type), values)

    return decisions(
        doc_id=one_array(docs["doc_id"].take(pa.array(edited))),
        outcome=pc.if_else(kept, KEPT, REMOVED),
        stage=[STAGE] * len(edited),
        rule=only_gone(pa.array(names, pa.string()).take(pa.array(rule))),
        value=only_gone(pa.array(left.astype(np.float64))),
        threshold=only_gone(pa.array(floor[rule].astype(np.float64))),
        failed=pa.array(rules, pa.list_(FAILED_RULE)),
        edits=edits,
    )
