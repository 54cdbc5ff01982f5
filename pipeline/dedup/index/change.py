"""A change of an index: partitions added, or documents taken down, and what follows for all the others.

What follows is published as `changes.parquet`: documents that were removed, restored, or are now the copies of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.index import takedown
from corpusmill.pipeline.dedup.index.index_file import IDENTITY, NAMES, Index, marker, name_files, table_of
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.dedup.key_groups import find
from corpusmill.pipeline.dedup.removals import MEMBER, URL, rule_names
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.publish import publish_table, publish_tables
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice, ids
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.dedup_results import RecordsFile
from corpusmill.schemas.manifest import PublishedFile, hash_json
from corpusmill.schemas.tables import CHANGES

# Steps whose files no later change reads; those of `sketch`, `sets`, `names`, `verify` and `status` stay.
STEPS = ("edges", "pivots", "text-heads", "text-settle", "route", "elect", "precision", "planted")
Map = Callable[..., list[Done]]


@dataclass(frozen=True)
class Named:
    """A partition to be added."""

    number: int
    partition: Partition


def names(job: Job, item: Named) -> Done:
    """Publishes who the partition's documents are (`names`, a table), and their ids cut by range (`ids`)."""
    key = hash_json([job.key, "names", item.number, item.partition.xxh3])
    return shuffle.once(job.work, f"names/{item.number:06d}", key, lambda: _names(job, item, key))


def _names(job: Job, item: Named, key: str) -> Done:
    table = item.partition.read(NAMES)
    return Done(key=key, files=name_files(job, f"names/{item.number:06d}", table))


@dataclass(frozen=True)
class Ids:
    """A range of document ids of all partitions."""

    number: int
    slices: Sequence[Slice]


def twice(job: Job, item: Ids) -> Done:
    """Raises `UserError` if a document is in the index twice."""
    found = shuffle.read_slices(job.work, item.slices, IDENTITY)
    found = found[np.lexsort((found["lo"], found["hi"]))]
    again = found[~shuffle.starts_of(found["hi"], found["lo"])]
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
    before: RecordsFile | None
    new: bool


def status(job: Job, item: Status) -> Done:
    """Publishes the partition's clustered documents by id (`status`), and what changed since the last time
    (`changes`, a table; of a partition just added: nothing)."""
    before = item.before.file.xxh3 if item.before else None
    members = shuffle.hashes_of(item.members)
    key = hash_json([job.key, "status", item.number, item.generation, members, before, item.new])
    name = f"status/{item.generation:04d}/{item.number:06d}"
    return shuffle.once(job.work, name, key, lambda: _status(job, item, name, key))


def _status(job: Job, item: Status, name: str, key: str) -> Done:
    now = shuffle.read_slices(item.stage, item.members, MEMBER)
    now = now[now["rule"] != URL]
    now = now[np.lexsort((now["id_lo"], now["id_hi"]))]
    before = shuffle.read(job.work, item.before.file, MEMBER) if item.before else np.empty(0, MEMBER)
    table = table_of(job.work, item.names)
    changes = _changes(before, now, table) if not item.new else CHANGES.empty_table()
    files = {
        "status": shuffle.write(job.work, f"{name}.members", now),
        "changes": File(file=publish_table(job.work, f"{name}.parquet", changes)),
    }
    return Done(key=key, files=files)


def _changes(before: Records, now: Records, names: pa.Table) -> pa.Table:
    identities = np.unique(np.concatenate([_identities(before), _identities(now)]))
    places = [find(_identities(side), identities) if len(side) else np.full(len(identities), -1)
              for side in (before, now)]  # fmt: skip
    kept = [_field(side, place, "kept", True) for side, place in zip((before, now), places, strict=True)]
    moved = np.zeros(len(identities), bool)
    for name in ("survivor_hi", "survivor_lo"):
        moved |= _field(before, places[0], name, 0) != _field(now, places[1], name, 0)
    removed, restored = kept[0] & ~kept[1], ~kept[0] & kept[1]
    other = moved & ~kept[0] & ~kept[1]
    rows = np.flatnonzero(removed | restored | other)
    known = pc.index_in(ids(identities["hi"][rows], identities["lo"][rows]), value_set=names["doc_id"])
    rows = rows[pc.is_valid(known).to_numpy(zero_copy_only=False)]  # what was taken down is no change
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


class NobodyNamed(UserError):
    """A takedown of documents that are not there."""


class Change:
    """One addition to the index in `folder`, or one takedown of the documents `named`; `job` is that of the
    index, `added` the partitions at hand by their number in it."""

    def __init__(
        self, folder: Folder, job: Job, version: str, partitions: list[Partition], named: tuple[str, ...]
    ) -> None:
        self.index, self.named = Index(folder, job, version), named
        file = self.index.file
        self.job = replace(
            job, work=folder / "records", band_ranges=file.band_ranges, text_ranges=file.text_ranges,
            planted_share=0.0, whole=True, slim=False, key=self.index.key,
            priorities=tuple(sorted(file.priorities.items())),
        )  # fmt: skip
        self.added = self.index.number(partitions)
        self.key = hash_json([sorted(part.xxh3 for part in partitions), sorted(named)])
        self.generation = self.index.generation_of(self.key)
        self.purged: set[int] = set()
        self.taken: pa.Table | None = None  # who of the named was there

    def begin(self, map_: Map) -> None:
        """Take down what is named; learn who the new documents are. Raises `UserError` if one is there already."""
        change = takedown.change_of(self.named)
        paths = [entry.path for entry in self.job.work.list()]
        self.job.work.delete([path for path in paths if path.startswith("takedown/") and change not in path])
        if self.named:
            items = [takedown.Purge(number, self.named, change) for number in self.index.known]
            located = map_(takedown.locate, items, "takedown")
            self.taken = takedown.found_names(self.job, located)
            if len(self.taken) == 0:
                (self.job.work / "takedown").delete()
                raise NobodyNamed(f"none of the {len(self.named)} documents named is in {self.index.folder}")
            pairs = zip(items, located, strict=True)
            self.purged = {item.number for item, done in pairs if done.files["names"].file.rows}
            map_(takedown.purge, items, "takedown")
            takedown.sweep(self.job, items)
        new = [Named(number, part) for number, part in self.added.items()]
        named = map_(names, new, "names")
        old = [marker(self.job.work, f"names/{number:06d}") for number in self._old()]
        ids = shuffle.by_part([*old, *named], "ids")
        map_(twice, [Ids(*item) for item in ids.items()], "ids")

    def _old(self) -> list[int]:
        """Partitions of the index that are not at hand."""
        return [number for number in sorted(self.index.known) if number not in self.added]

    def sketches(self) -> dict[int, Done]:
        """What earlier changes sketched."""
        return {number: marker(self.job.work, f"sketch/{number:06d}") for number in self._old()}

    def finish(self, map_: Map, stage: Folder, removed: dict[int, Done]) -> PublishedFile:
        """Publish `changes.parquet`: what became of documents that were in the index before. From then on the
        index holds what was added."""
        items = [self._status(number, stage, done) for number, done in sorted(removed.items())]
        dones = map_(status, items, "changes")

        tables = (table_of(self.job.work, done.files["changes"]) for done in dones)
        published = publish_tables(stage, "changes.parquet", tables, CHANGES)
        statuses = {item.number: done.files["status"] for item, done in zip(items, dones, strict=True)}
        self.index.commit(self.added, statuses, self.key, self.purged)
        # What a later change makes again from the rest.
        for step in STEPS:
            (self.job.work / step).delete()
        loose = [e.path for e in self.job.work.list() if "/" not in e.path]
        self.job.work.delete([*loose, *self._old_statuses()])
        return published

    def _old_statuses(self) -> list[str]:
        """Status files that `index.json` does not name, and tables of changes that are published."""
        named = [file for item in self.index.file.partitions for file in (item.status, item.before)]
        kept = {file.file.path for file in named if file is not None}
        paths = [entry.path for entry in self.job.work.list()]
        return [path for path in paths if path.startswith("status/") and path not in kept]

    def forget(self) -> None:
        """Leave nothing in the index of who was taken down: the takedown is published."""
        self.index.forget()
        (self.job.work / "takedown").delete()
        self.job.work.delete(self._old_statuses())

    def _status(self, number: int, stage: Folder, removed: Done) -> Status:
        slices = shuffle.by_part([removed], "members").values()
        return Status(
            number, self.generation, stage, tuple(part for mine in slices for part in mine),
            marker(self.job.work, f"names/{number:06d}").files["names"],
            self.index.before(number, self.key), number in self.added,
        )  # fmt: skip
