"""What an addition or a takedown changed: documents that went, came back, or are now the copies of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.index.index_file import table_of
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.dedup.key_groups import find
from corpusmill.pipeline.dedup.removals import MEMBER, URL, rule_names
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.shuffle import (
    Done,
    File,
    Records,
    Slice,
    hashes_of,
    ids,
    in_range,
    once,
    read,
    read_slices,
    starts_of,
    words,
    write,
)  # fmt: skip
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text.shingles import one_array
from corpusmill.schemas.manifest import hash_json

NAMES = ["doc_id", "source", "source_id", "locator", "url"]
IDENTITY = np.dtype([("hi", "<u8"), ("lo", "<u8")])
CHANGES = pa.schema(
    [
        pa.field("doc_id", pa.binary(16), nullable=False),
        pa.field("change", pa.string(), nullable=False),  # removed, restored, or survivor: another one stays
        pa.field("survivor", pa.binary(16)),
        pa.field("rule", pa.string()),
        pa.field("jaccard", pa.float64()),
        *[pa.field(name, pa.string()) for name in NAMES[1:]],
    ]
)


@dataclass(frozen=True)
class Named:
    """A partition to be added."""

    number: int
    partition: Partition


def names(job: Job, item: Named) -> Done:
    """Publishes who the partition's documents are (`names`, a table), and their ids cut by range (`ids`)."""
    key = hash_json([job.key, "names", item.number, item.partition.xxh3])
    return once(job.work, f"names/{item.number:06d}", key, lambda: _names(job, item, key))


def _names(job: Job, item: Named, key: str) -> Done:
    table = item.partition.read(NAMES)
    return Done(key=key, files=name_files(job, f"names/{item.number:06d}", table))


def name_files(job: Job, name: str, table: pa.Table) -> dict[str, File]:
    """The files of `names`."""
    found = np.empty(len(table), IDENTITY)
    found["hi"], found["lo"] = words(one_array(table["doc_id"]))
    found = found[np.lexsort((found["lo"], found["hi"]))]
    return {
        "names": File(file=publish_table(job.work, f"{name}.parquet", table)),
        "ids": write(job.work, f"{name}.ids", found, in_range(found["hi"], job.text_ranges)),
    }


@dataclass(frozen=True)
class Ids:
    """A range of document ids of all partitions."""

    number: int
    slices: Sequence[Slice]


def twice(job: Job, item: Ids) -> Done:
    """Raises `UserError` if a document is in the index twice."""
    found = read_slices(job.work, item.slices, IDENTITY)
    found = found[np.lexsort((found["lo"], found["hi"]))]
    again = found[~starts_of(found["hi"], found["lo"])]
    if len(again):
        example = ids(again["hi"], again["lo"])[0].as_py().hex()
        raise UserError(
            f"dedup.index: {len(again)} or more documents are in the index already, such as {example}; a"
            " document is added once: give what is new, or take the old ones down first"
        )
    return Done(key="", files={})


@dataclass(frozen=True)
class Status:
    """A partition: who its documents are, what they are in now, and what they were in before."""

    number: int
    generation: int
    stage: Folder
    members: Sequence[Slice]
    names: File
    before: File | None
    new: bool


def status(job: Job, item: Status) -> Done:
    """Publishes the partition's clustered documents by id (`status`), and what changed since the last time
    (`changes`, a table; of a partition just added: nothing)."""
    before = item.before.file.xxh3 if item.before else None
    key = hash_json(
        [job.key, "status", item.number, item.generation, hashes_of(item.members), before, item.new]
    )
    name = f"status/{item.generation:04d}/{item.number:06d}"
    return once(job.work, name, key, lambda: _status(job, item, name, key))


def _status(job: Job, item: Status, name: str, key: str) -> Done:
    now = read_slices(item.stage, item.members, MEMBER)
    now = now[now["rule"] != URL]
    now = now[np.lexsort((now["id_lo"], now["id_hi"]))]
    before = read(job.work, item.before.file, MEMBER) if item.before else np.empty(0, MEMBER)
    table = table_of(job.work, item.names)
    changes = _changes(before, now, table) if not item.new else CHANGES.empty_table()
    return Done(
        key=key,
        files={
            "status": write(job.work, f"{name}.members", now),
            "changes": File(file=publish_table(job.work, f"{name}.parquet", changes)),
        },
    )


def _changes(before: Records, now: Records, names: pa.Table) -> pa.Table:
    identities = np.unique(np.concatenate([_identities(before), _identities(now)]))
    places = [find(_identities(side), identities) if len(side) else np.full(len(identities), -1)
              for side in (before, now)]  # fmt: skip
    kept = [_field(side, place, "kept", True) for side, place in zip((before, now), places, strict=True)]
    moved = np.zeros(len(identities), bool)
    for half in ("hi", "lo"):
        moved |= _field(before, places[0], f"survivor_{half}", 0) != _field(
            now, places[1], f"survivor_{half}", 0
        )
    removed, restored = kept[0] & ~kept[1], ~kept[0] & kept[1]
    other = moved & ~kept[0] & ~kept[1]
    rows = np.flatnonzero(removed | restored | other)
    known = pc.index_in(ids(identities["hi"][rows], identities["lo"][rows]), value_set=names["doc_id"])
    rows = rows[pc.is_valid(known).to_numpy(zero_copy_only=False)]  # what was taken down is nobody's change
    who = names.take(known.drop_null())
    after = now[places[1][rows]] if len(now) else np.zeros(len(rows), MEMBER)
    gone = ~kept[1][rows]
    which = np.where(removed[rows], 0, np.where(restored[rows], 1, 2))
    kinds = pa.array(["removed", "restored", "survivor"])
    columns = [
        who["doc_id"],
        kinds.take(pa.array(which)),
        pc.if_else(pa.array(gone), ids(after["survivor_hi"], after["survivor_lo"]), None),
        rule_names(after["rule"], ~gone),
        pa.array(after["jaccard"], mask=~gone | np.isnan(after["jaccard"])),
        *[who[name] for name in NAMES[1:]],
    ]
    return pa.Table.from_arrays(columns, schema=CHANGES)


def _identities(members: Records) -> Records:
    found = np.empty(len(members), IDENTITY)
    found["hi"], found["lo"] = members["id_hi"], members["id_lo"]
    return found


def _field(members: Records, place: Records, name: str, otherwise: int) -> Records:
    """A field of the member at each place; `otherwise` where there is none."""
    values = np.full(len(place), otherwise, MEMBER[name])
    values[place >= 0] = members[name][place[place >= 0]]
    return values
