"""What `augment` published, for the stages and commands that read it: partitions of copies, and the account of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import parse
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.augment import MADE, SUMMARY, Augmented, AugmentedSource
from corpusmill.schemas.manifest import MANIFEST, StageManifest
from corpusmill.schemas.tables import ID

COPIES = "copies"  # the folder of the account
_DOCUMENTS, _SUFFIX = "documents/", ".parquet"


class Copy(NamedTuple):
    """A copy that was to be made, as `corpusmill.schemas.tables.COPIES`; `partition`: the parent's, among documents."""

    doc_id: bytes
    parent: bytes
    source: str
    by: str
    outcome: str
    detail: str | None
    partition: str


def named(partition: str) -> str:
    """The name of a partition's copies, which no partition of documents has."""
    return f"{partition}-copies"


def made_copies(folder: Folder | None) -> tuple[dict[str, AugmentedSource], list[Partition]]:
    """The sources of copies of a finished `augment`, and their partitions, in order; none for a run without one."""
    if folder is None:
        return {}, []
    summary = Augmented.model_validate_json((folder / SUMMARY).read())
    manifest = StageManifest.model_validate_json((folder / MANIFEST).read())
    found = []
    for file in manifest.files:
        if file.path.startswith(_DOCUMENTS):
            name = file.path.removeprefix(_DOCUMENTS).removesuffix(_SUFFIX)
            size = manifest.counters[f"partition/{name}/bytes"]
            found.append(Partition(name, folder, file.rows or 0, size, file.xxh3))
    return summary.sources, found


def copies_of(augment: Folder, ids: Sequence[bytes]) -> Iterator[Copy]:
    """The rows of the account whose copy or parent is one of `ids`; none where no finished `augment` is there."""
    manifest = parse(StageManifest, augment / MANIFEST)
    wanted = pa.array(ids, ID)
    for file in manifest.files if manifest is not None else ():
        if not file.path.startswith(f"{COPIES}/"):
            continue
        table = read_table(augment / file.path, file.xxh3)
        mine = pc.or_(
            pc.is_in(table["doc_id"], value_set=wanted), pc.is_in(table["parent"], value_set=wanted)
        )
        partition = file.path.removeprefix(f"{COPIES}/").removesuffix(_SUFFIX)
        for row in table.filter(mine).to_pylist():
            yield Copy(**row, partition=partition)


def copies_made(augment: Folder, parents: Sequence[bytes]) -> list[Copy]:
    """The copies that were made of these documents."""
    wanted = set(parents)
    return [copy for copy in copies_of(augment, parents) if copy.parent in wanted and copy.outcome == MADE]
