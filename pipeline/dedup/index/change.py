"""A change of an index: partitions added, or documents taken down, and what follows for all the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.index import document_status, takedown
from corpusmill.pipeline.dedup.index.index_file import Index, marker, table_of
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.engine.publish import publish_tables
from corpusmill.pipeline.engine.shuffle import Done, File, by_part
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.manifest import PublishedFile, hash_json

# Steps whose files no later change reads; those of `sketch`, `sets`, `names`, `verify` and `status` stay.
STEPS = ("edges", "pivots", "text-heads", "text-settle", "route", "elect", "precision", "planted")
Map = Callable[..., list[Done]]


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
        """Take down what is named; learn who the new documents are. Raises `UserError` if one is there
        already."""
        change = takedown.change_of(self.named)
        self.job.work.delete(
            [e.path for e in self.job.work.list() if e.path.startswith("takedown/") and change not in e.path]
        )
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
        new = [document_status.Named(number, part) for number, part in self.added.items()]
        named = map_(document_status.names, new, "names")
        old = [marker(self.job.work, f"names/{number:06d}") for number in self._old()]
        ids = by_part([*old, *named], "ids")
        map_(document_status.twice, [document_status.Ids(*item) for item in ids.items()], "ids")

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
        dones = map_(document_status.status, items, "changes")

        def tables() -> Iterator[pa.Table]:
            for done in dones:
                yield table_of(self.job.work, done.files["changes"])

        published = publish_tables(stage, "changes.parquet", tables(), document_status.CHANGES)
        statuses: dict[int, File] = {
            item.number: done.files["status"] for item, done in zip(items, dones, strict=True)
        }
        self.index.commit(self.added, statuses, self.key, self.purged)
        # What a later change makes anew from the rest.
        for step in STEPS:
            (self.job.work / step).delete()
        loose = [e.path for e in self.job.work.list() if "/" not in e.path]
        self.job.work.delete([*loose, *self._old_statuses()])
        return published

    def _old_statuses(self) -> list[str]:
        """Status files that `index.json` does not name, and tables of changes that are published."""
        kept = {
            file.file.path
            for item in self.index.file.partitions
            for file in (item.status, item.before)
            if file is not None
        }
        return [
            entry.path
            for entry in self.job.work.list()
            if entry.path.startswith("status/") and entry.path not in kept
        ]

    def forget(self) -> None:
        """Leave nothing in the index of who was taken down: the takedown is published."""
        self.index.forget()
        (self.job.work / "takedown").delete()
        self.job.work.delete(self._old_statuses())

    def _status(self, number: int, stage: Folder, removed: Done) -> document_status.Status:
        slices = by_part([removed], "members").values()
        return document_status.Status(
            number, self.generation, stage, tuple(part for mine in slices for part in mine),
            marker(self.job.work, f"names/{number:06d}").files["names"],
            self.index.before(number, self.key), number in self.added,
        )  # fmt: skip
