"""Documents that share a key (hash of the text, of its words, or of the URL), per range of keys.

`heads` finds, before the election, the document that leads each group; `settle` joins the election's fates and routes
to every partition what becomes of its keys. A key in ten million documents is one record a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from corpusmill.pipeline.dedup.job import I64, Job, copy_fields, parts_of, survivor_order
from corpusmill.pipeline.engine.shuffle import (
    Done,
    Records,
    Slice,
    hashes_of,
    ids,
    once,
    read_slices,
    starts_of,
    write,
)
from corpusmill.schemas.manifest import hash_json

Routed = Sequence[Slice]  # records of other tasks for one partition
NOBODY = np.iinfo(np.int64).min
EVERYBODY = np.iinfo(np.int64).max


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
    key = hash_json([job.key, "heads", item.number, hashes_of(item.texts)])
    return once(job.work, name, key, lambda: _heads(job, item, name, key))


def _heads(job: Job, item: Keys, name: str, key: str) -> Done:
    texts, starts, sizes = _groups(job, item)
    totals = _totals(texts, starts)
    best = texts[starts]
    best["documents"], best["protected"] = totals
    several = totals[0] > 1
    group = np.repeat(np.arange(len(starts)), sizes)[np.repeat(several, sizes)]
    part, group = _recipients(texts[np.repeat(several, sizes)], group)
    return Done(key=key, files={"heads": write(job.work, f"{name}.heads", best[group], part)})


def apply_group_leaders(job: Job, nodes: Records, routed: Routed) -> None:
    """Give nodes whose text several documents have the id, order and counts of the best of them."""
    best = read_slices(job.work, routed, job.text)
    row = find(best, nodes)
    some = row >= 0
    for name in ("id_hi", "id_lo", "text", "source", "order", "documents", "protected"):
        nodes[name][some] = best[name][row[some]]


def find(among: Records, wanted: Records) -> I64:
    """Row in `among` of each wanted key, or -1."""
    row = pc.index_in(ids(wanted["hi"], wanted["lo"]), value_set=ids(among["hi"], among["lo"]))
    found: I64 = pc.fill_null(row, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _groups(job: Job, item: Keys) -> tuple[Records, I64, I64]:
    """The range's texts by key and survivor order, where each group starts, and its size."""
    texts = read_slices(job.work, item.texts, job.text)
    if item.kind == "text" and not job.params.exact and not job.params.normalized:
        texts = texts[texts["shingles"] > 0]  # copies are near-copies then; texts without words are none
    texts = texts[survivor_order(texts, texts["hi"], texts["lo"])]
    starts = np.flatnonzero(starts_of(texts["hi"], texts["lo"]))
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
    new = starts_of(part, group)
    return part[new], group[new]


def settle(job: Job, item: Keys) -> Done:
    """Publishes, for each partition, what becomes of its keys (`decided`)."""
    name = f"{item.kind}-settle/{item.number:06d}"
    key = hash_json([job.key, "settle", item.number, hashes_of(item.texts), hashes_of(item.fates)])
    return once(job.work, name, key, lambda: _settle(job, item, name, key))


def _settle(job: Job, item: Keys, name: str, key: str) -> Done:
    texts, starts, sizes = _groups(job, item)
    documents, protected = _totals(texts, starts)
    fates = read_slices(job.work, item.fates, job.fate)
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
    files = {"decided": write(job.work, f"{name}.decided", decided[group], part)}
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
