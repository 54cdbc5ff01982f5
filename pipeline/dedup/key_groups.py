"""Documents that share a key (hash of the text, of its words, or of the URL), per range of keys, and the order in which
they survive.

`heads` finds, before the election, the document that leads each group; `settle` joins the election's fates and routes
to every partition what becomes of its keys. A key in ten million documents is one record a partition.

Survivor order is a row of int64 for each document (`order`), smaller is better: one per `keep_order` entry, after a first
one that is 0 for a document that may not be removed (its source is not in `remove_only_from`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.pipeline.dedup.job import I64, Job, copy_fields, parts_of, survivor_order
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.shuffle import Done, Records, Slice
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.manifest import hash_json

WORST = np.iinfo(np.int64).max  # what is not known comes last
_DATE = (
    r"^(?P<y>\d{4})(?:-?(?P<m>\d\d)(?:-?(?P<d>\d\d)"
    r"(?:[T ](?P<H>\d\d)(?::?(?P<M>\d\d)(?::?(?P<S>\d\d))?)?)?)?)?"
)
Routed = Sequence[Slice]  # records of other tasks for one partition
NOBODY = np.iinfo(np.int64).min
EVERYBODY = np.iinfo(np.int64).max


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
        found.append(reversed_order(column) if entry.startswith("-") else column)
        if kind == "doc_id":
            found += [np.zeros(len(docs), np.int64)] * (1 + len(params.keep_order) - len(found))
            break
    return np.stack(found, axis=1)[rows]


def reversed_order(column: I64) -> I64:
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
    found: npt.NDArray[np.float64] = pc.fill_null(values, math.nan).to_numpy()
    return found


def _metadata(docs: pa.Table, key: str) -> npt.NDArray[np.float64]:
    def number(text: str | None) -> float:
        value: Any = json.loads(text).get(key) if text else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan

    return np.array([number(text) for text in docs["metadata"].to_pylist()], np.float64).reshape(-1)


@dataclass(frozen=True)
class Keys:
    """A range of keys: the texts in it, and the fates of some. `kind` is text or url."""

    kind: str
    number: int
    texts: Sequence[Slice]
    fates: Sequence[Slice] = ()


def heads(job: Job, item: Keys) -> Done:
    """Publishes, for each partition, the best document of every group that has several, with the group's
    counts (`heads`)."""
    name = f"{item.kind}-heads/{item.number:06d}"
    key = hash_json([job.key, "heads", item.number, shuffle.hashes_of(item.texts)])
    return shuffle.once(job.work, name, key, lambda: _heads(job, item, name, key))


def _heads(job: Job, item: Keys, name: str, key: str) -> Done:
    texts, starts, sizes = _groups(job, item)
    totals = _totals(texts, starts)
    best = texts[starts]
    best["documents"], best["protected"] = totals
    several = totals[0] > 1
    group = np.repeat(np.arange(len(starts)), sizes)[np.repeat(several, sizes)]
    part, group = _recipients(texts[np.repeat(several, sizes)], group)
    return Done(key=key, files={"heads": shuffle.write(job.work, f"{name}.heads", best[group], part)})


def apply_group_leaders(job: Job, nodes: Records, routed: Routed) -> None:
    """Give nodes whose text several documents have the id, order and counts of the best of them."""
    best = shuffle.read_slices(job.work, routed, job.text)
    row = find(best, nodes)
    some = row >= 0
    for name in ("id_hi", "id_lo", "text", "source", "order", "documents", "protected"):
        nodes[name][some] = best[name][row[some]]


def find(among: Records, wanted: Records) -> I64:
    """Row in `among` of each wanted key, or -1."""
    keys = shuffle.ids(among["hi"], among["lo"])
    row = pc.index_in(shuffle.ids(wanted["hi"], wanted["lo"]), value_set=keys)
    found: I64 = pc.fill_null(row, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _groups(job: Job, item: Keys) -> tuple[Records, I64, I64]:
    """The range's texts by key and survivor order, where each group starts, and its size."""
    texts = shuffle.read_slices(job.work, item.texts, job.text)
    if item.kind == "text" and not job.params.exact and not job.params.normalized:
        texts = texts[texts["shingles"] > 0]  # copies are near-copies then; texts without words are none
    texts = texts[survivor_order(texts, texts["hi"], texts["lo"])]
    starts = np.flatnonzero(shuffle.starts_of(texts["hi"], texts["lo"]))
    return texts, starts, np.diff(np.r_[starts, len(texts)])


def _totals(texts: Records, starts: I64) -> tuple[I64, I64]:
    """(documents, documents that may not be removed) of each group."""
    if len(starts) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.add.reduceat(texts["documents"], starts), np.add.reduceat(texts["protected"], starts)


def _recipients(texts: Records, group: I64) -> tuple[I64, I64]:
    """(partition, group) for every partition that holds a text of a group, by partition."""
    part = parts_of(texts["location"])
    order = np.lexsort((group, part))
    part, group = part[order], group[order]
    new = shuffle.starts_of(part, group)
    return part[new], group[new]


def settle(job: Job, item: Keys) -> Done:
    """Publishes, for each partition, what becomes of its keys (`decided`)."""
    name = f"{item.kind}-settle/{item.number:06d}"
    inputs = [shuffle.hashes_of(item.texts), shuffle.hashes_of(item.fates)]
    key = hash_json([job.key, "settle", item.number, *inputs])
    return shuffle.once(job.work, name, key, lambda: _settle(job, item, name, key))


def _settle(job: Job, item: Keys, name: str, key: str) -> Done:
    texts, starts, sizes = _groups(job, item)
    documents, protected = _totals(texts, starts)
    fates = shuffle.read_slices(job.work, item.fates, job.fate)
    best = texts[starts]
    fate = find(fates, best)
    several = (documents > 1) | (fate >= 0)
    decided = np.zeros(len(starts), job.decided)
    copy_fields(best, decided, ("hi", "lo"))
    for end in ("cluster", "survivor", "head"):
        decided[f"{end}_hi"], decided[f"{end}_lo"] = best["id_hi"], best["id_lo"]
    decided["survivor_location"] = decided["head_location"] = best["location"]
    decided["head_text"] = best["text"]
    decided["jaccard"] = decided["inside"] = 1.0
    decided["own"] = True
    decided["slots"] = np.where(
        documents > 1, np.maximum(0, job.keep - protected) if job.keep else 0.0, np.inf
    )
    known = fate >= 0
    decided[known] = copy_fields(fates[fate[known]], decided[known], job.fate.names)
    second = texts[np.minimum(starts + 1, starts + sizes - 1)]
    decided["second_hi"], decided["second_lo"] = second["id_hi"], second["id_lo"]
    decided["second_location"] = second["location"]
    _last(decided, texts, starts, protected, documents)
    group = np.repeat(np.arange(len(starts)), sizes)[np.repeat(several, sizes)]
    part, group = _recipients(texts[np.repeat(several, sizes)], group)
    files = {"decided": shuffle.write(job.work, f"{name}.decided", decided[group], part)}
    return Done(key=key, files=files, counters={"groups": int(several.sum())})


def _last(decided: Records, texts: Records, starts: I64, protected: I64, documents: I64) -> None:
    """Fill in the last document of each group that stays, of those that may go."""
    slots = np.minimum(decided["slots"], documents - protected).astype(np.int64)
    none, every = slots <= 0, slots >= documents - protected
    place = starts + protected + slots - 1
    listed = texts[np.where(none | every, starts, place)] if len(texts) else texts
    decided["last_order"] = listed["order"]
    decided["last_hi"], decided["last_lo"] = listed["id_hi"], listed["id_lo"]
    decided["last_order"][none] = NOBODY
    decided["last_order"][every] = EVERYBODY


def stays(job: Job, docs: Records, decided: Records) -> npt.NDArray[np.bool_]:
    """Whether each document stays, by what was decided of its key (row by row)."""
    after = np.zeros(len(docs), bool)
    equal = np.ones(len(docs), bool)
    columns = [(docs["order"][:, i], decided["last_order"][:, i]) for i in range(docs["order"].shape[1])]
    columns += [(docs[f"id_{half}"], decided[f"last_{half}"]) for half in ("hi", "lo")]
    for mine, last in columns:
        after |= equal & (mine > last)
        equal &= mine == last
    protected: npt.NDArray[np.bool_] = docs["order"][:, 0] == 0
    return protected | ~after
