"""`index.json`: which partitions an index holds, made with which parameters. Written last, at every change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table, read_table
from corpusmill.pipeline.engine.shuffle import Done, File, in_range, read_marker, words, write
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text.buffers import one_array
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.dedup_results import Indexed, IndexFile, RecordsFile
from corpusmill.schemas.manifest import hash_json

FILE = "index.json"
RANGES = 64  # at least: an index grows, and its files stay cut as they are
NAMES = ["doc_id", "source", "source_id", "locator", "url"]
# A document of the index, in the order of its id.
IDENTITY = np.dtype([("hi", "<u8"), ("lo", "<u8")])
# What may differ from one addition to the next: nothing in the index depends on it. Of `recall`, its budget, and
# bands and rows by hand it knows the bands x rows that follow.
FREE = {
    "sample", "planted", "max_source_loss", "max_cluster", "memory_mb", "scratch_bytes_per_doc", "index",
    "store_signatures", "recall", "bands", "rows",
}  # fmt: skip


class Index:
    """An index in `folder`, opened for one change; its records lie in `folder/records`."""

    def __init__(self, folder: Folder, job: Job, version: str) -> None:
        """Raises `UserError` if the index was made with other parameters than the job has."""
        self.folder = folder
        params = {k: v for k, v in job.params.model_dump(mode="json").items() if k not in FREE}
        mine = IndexFile(
            version=version, params=params, bands=job.banding.bands, rows=job.banding.rows,
            band_ranges=max(RANGES, job.band_ranges), text_ranges=max(RANGES, job.text_ranges),
            priorities=dict(job.priorities),
        )  # fmt: skip
        found = read_index(folder)
        self.file = mine if found is None else _checked(folder, found, mine, job.params)
        self.known = {item.number: item for item in self.file.partitions}

    @property
    def key(self) -> str:
        """Of everything that the records depend on, beside their texts."""
        other = {"generation", "last", "seal", "partitions", "priorities"}
        return hash_json(self.file.model_dump(mode="json", exclude=other))

    def number(self, partitions: list[Partition]) -> dict[int, Partition]:
        """The partitions by their number in the index: new ones, or those of an earlier addition made again.

        Raises `UserError` if some are in the index and others are not.
        """
        known = {item.xxh3: item for item in self.known.values()}
        there = [known[part.xxh3] for part in partitions if part.xxh3 in known]
        for item in there:
            if item.purged:
                raise UserError(
                    f"{self.folder}: documents of partition {item.name} were taken down since it was added; leave"
                    " them out of the input, and what is left will be known to be there already"
                )
        if there and len(there) == len(partitions) and len({item.generation for item in there}) == 1:
            return {known[part.xxh3].number: part for part in partitions}
        if there:
            raise UserError(
                f"{self.folder}: {len(there)} of {len(partitions)} partitions are in the index already, such as"
                f" {there[0].name}; give what is new, or exactly an earlier addition"
            )
        first = max(self.known, default=-1) + 1
        return dict(enumerate(partitions, first))

    def before(self, number: int, change: str) -> RecordsFile | None:
        """The status of a partition before this change, also if it was made once and is made again."""
        known = self.known.get(number)
        if known is None:
            return None
        return known.before if self.file.last == change else known.status

    def generation_of(self, change: str) -> int:
        """The number of this change."""
        return self.file.generation + (self.file.last != change)

    def commit(
        self, added: dict[int, Partition], statuses: dict[int, File], change: str, purged: set[int]
    ) -> None:
        """Rewrite `index.json`: from now on the index holds the partitions added, and no longer what was taken
        from those `purged`."""
        items = dict(self.known)
        generation = self.generation_of(change)
        for number, part in added.items():
            items.setdefault(
                number,
                Indexed(
                    number=number, name=part.name, rows=part.rows, text_bytes=part.text_bytes, xxh3=part.xxh3,
                    generation=generation,
                ),
            )  # fmt: skip
        listed = [
            item.model_copy(
                update={
                    "status": statuses[number],
                    "before": self.before(number, change),
                    "purged": item.purged or number in purged,
                }
            )
            for number, item in sorted(items.items())
        ]
        self.file = self.file.model_copy(
            update={"partitions": listed, "generation": generation, "last": change}
        )
        self.known = {item.number: item for item in listed}
        self.write()

    def forget(self) -> None:
        """Forget what was before the last change, which can then not be made again as the same."""
        listed = [item.model_copy(update={"before": None}) for item in self.file.partitions]
        self.file = self.file.model_copy(update={"partitions": listed, "last": ""})
        self.write()

    def write(self) -> None:
        """Publish `index.json`."""
        self.file = self.file.sealed()
        publish_bytes(self.folder, FILE, (self.file.model_dump_json(indent=1) + "\n").encode())


def read_index(folder: Folder) -> IndexFile | None:
    """The index there, or None. Raises `WorkError` for a file that is none."""
    try:
        found = IndexFile.model_validate_json((folder / FILE).read())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise WorkError(f"{folder / FILE}: not an index of dedup") from None
    if found.sealed() != found:
        raise WorkError(f"{folder / FILE}: its bytes changed since it was written: the index is damaged")
    return found


def _checked(folder: Folder, found: IndexFile, mine: IndexFile, asked: DedupParams) -> IndexFile:
    for name in sorted({*found.params, *mine.params} - FREE):
        theirs, ours = found.params.get(name), mine.params.get(name)
        if theirs != ours:
            theirs, ours = ("none" if value is None else value for value in (theirs, ours))
            raise UserError(
                f"{folder}: the index was made with dedup.{name} {theirs}, this run has {ours}; use the same, or make a"
                " new index"
            )
    if found.version != mine.version:
        raise UserError(
            f"{folder}: the index was made with version {found.version}, this run has {mine.version}; make a new"
            " index"
        )
    if (found.bands, found.rows) != (mine.bands, mine.rows):
        raise UserError(f"{folder}: {_other_bands(found, mine, asked)}")
    for source, priority in mine.priorities.items():
        if found.priorities.get(source, priority) != priority:
            raise UserError(
                f"{folder}: the index was made with priority {found.priorities[source]} of source '{source}',"
                f" this run has {priority}; use the same, or make a new index"
            )
    return found.model_copy(update={"priorities": {**found.priorities, **mine.priorities}})


def _other_bands(found: IndexFile, mine: IndexFile, asked: DedupParams) -> str:
    """What was asked for, what the index has, and what to do. The similarity is the same in both."""
    share = f"{Banding(found.bands, found.rows).found(asked.similarity):.4g}"
    if asked.bands:
        wish = f"dedup.bands {asked.bands} and dedup.rows {asked.rows} were asked for"
    elif asked.preset == "datatrove":
        wish = f"dedup.preset datatrove has {mine.bands} bands x {mine.rows} rows"
    else:
        budget = asked.scratch_bytes_per_doc
        within = "" if budget is None else f" within dedup.scratch_bytes_per_doc {budget}"
        wish = (
            f"dedup.recall {asked.recall:g} at dedup.similarity {asked.similarity:g}{within} takes {mine.bands}"
            f" bands x {mine.rows} rows"
        )
    return (
        f"{wish}, the index was made with {found.bands} x {found.rows}, which find {share} of"
        f" the pairs at {asked.similarity:g}; give dedup.bands {found.bands} and dedup.rows {found.rows}, or make a new index"
    )


def table_of(work: Folder, file: File) -> pa.Table:
    """A table of the index; raises `WorkError` if it is missing or not as it was written."""
    try:
        return read_table(work / file.file.path, file.file.xxh3)
    except FileNotFoundError:
        raise WorkError(f"{work / file.file.path}: missing: the index is damaged; build it again") from None


def marker(work: Folder, name: str) -> Done:
    """What a finished step of an earlier change published."""
    done = read_marker(work, name)
    if done is None:
        raise WorkError(f"{work / name}.json: missing or changed: the index is damaged; build it again")
    return done


def name_files(job: Job, name: str, table: pa.Table) -> dict[str, File]:
    """The files of `names`."""
    found = np.empty(len(table), IDENTITY)
    found["hi"], found["lo"] = words(one_array(table["doc_id"]))
    found = found[np.lexsort((found["lo"], found["hi"]))]
    return {
        "names": File(file=publish_table(job.work, f"{name}.parquet", table)),
        "ids": write(job.work, f"{name}.ids", found, in_range(found["hi"], job.text_ranges)),
    }
