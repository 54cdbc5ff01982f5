"""One stage: its partitions and files against their manifests, counts against rows. Partitions are checked side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow.compute as pc

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import sha256
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import below
from corpusmill.pipeline.engine.planned import expired_of
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.damage import read_regular, reported
from corpusmill.pipeline.inspect.shards.sets import on_all
from corpusmill.pipeline.inspect.verify.files import check_file
from corpusmill.pipeline.inspect.verify.found import Verified
from corpusmill.schemas.manifest import (
    EXPIRED,
    TEXTS,
    Counts,
    PartitionManifest,
    PublishedFile,
    StageManifest,
)
from corpusmill.schemas.tables import KEPT


@dataclass
class Checked:
    """What a task found: of a partition, of a file of the stage, or of the manifest of a unit of input."""

    problems: list[str] = field(default_factory=list)
    files: int = 0
    size: int = 0  # bytes of the files
    named: list[str] = field(default_factory=list)  # paths below the stage's folder
    weak: int = 0
    counts: Counts = field(default_factory=Counts)
    per_source: dict[str, Counts] = field(default_factory=dict)
    ledger: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def file(self, folder: Folder, published: PublishedFile) -> bytes | None:
        """The bytes of a file, if they are right; else there is a problem."""
        self.named.append(published.path)
        self.weak += not published.sha256
        with reported(self.problems, folder / published.path):
            data = check_file(folder, published)
            self.files += 1
            self.size += published.bytes
            return data
        return None


def check_stage(
    run: Folder, folder: Folder, manifest: StageManifest, scheduler: Scheduler | None, result: Verified
) -> None:
    """Add to `result` what is wrong in a stage's folder, but for the shards, which have a check of their own."""
    label = f"verify: {manifest.stage}"
    parts = [(name, manifest.checksums.get(f"parts/{name}.json", "")) for name in manifest.partitions]
    gone = expired_of(folder, manifest.key)
    if gone is not None:
        result.named.add(below(run, folder / EXPIRED))
        result.notes.append(f"{folder}: its text was deleted on purpose ({gone.why}), and is not checked")
    work = partial(check_partition, folder, gone is not None)
    found: list[Checked] = _all(scheduler, work, parts, label)
    total, per_source = Counts(), dict[str, Counts]()
    for one in found:
        total += one.counts
        for source, counts in one.per_source.items():
            per_source[source] = per_source.get(source, Counts()) + counts
    others = set(manifest.checksums) - {f"parts/{name}.json" for name in manifest.partitions}
    small = [(path, manifest.checksums[path]) for path in sorted(others)]
    found += folder.at_once(partial(_small, folder), small)
    if manifest.stage != "shard":
        read = partial(_published, folder, manifest.stage == "ledger")
        found += _all(scheduler, read, manifest.files, label)
    for one in found:
        result.problems += one.problems
        result.files += one.files
        result.bytes += one.size
        result.weak += one.weak
        result.ledger += one.ledger
        result.named.update(below(run, folder / path) for path in one.named)
    if total != manifest.counts:
        result.problems.append(f"{folder}: counts of the partitions do not add up to the stage's")
    if manifest.partitions and _documents(per_source) != _documents({"": total}):
        result.problems.append(f"{folder}: counts of the sources do not add up to the stage's")


def _all(scheduler: Scheduler | None, work: Any, items: Sequence[Any], label: str) -> list[Checked]:
    return on_all(scheduler, work, items, label, [1] * len(items)) if items else []


def check_partition(folder: Folder, expired: bool, part: tuple[str, str]) -> Checked:
    """A partition, by its name and the SHA-256 of its manifest ("" if the stage has none). `expired`: its text was deleted on
    purpose."""
    name, checksum = part
    found, file = Checked(named=[f"parts/{name}.json"]), folder / f"parts/{name}.json"
    with reported(found.problems, file):
        data = read_regular(file)
        if checksum and sha256(data) != checksum:
            found.problems.append(f"{file}: checksum differs from the published one")
        found.weak += not checksum
        manifest = PartitionManifest.from_json(data, file)
        found.counts, found.per_source = manifest.counts, manifest.per_source
        for published in manifest.files:
            if expired and published.path.startswith(TEXTS):
                continue
            where, content = folder / published.path, found.file(folder, published)
            with reported(found.problems, where):
                if content is not None and published.path.startswith("decisions/"):
                    _decisions(where, content, manifest.counts)
                elif published.path.startswith("documents/") and published.rows != manifest.counts.kept:
                    raise WorkError(f"{where}: {published.rows} rows, {manifest.counts.kept} documents kept")
    return found


def _published(folder: Folder, ledger: bool, published: PublishedFile) -> Checked:
    found = Checked()
    data = found.file(folder, published)
    if ledger and data is not None:
        with reported(found.problems, folder / published.path):
            _count_ledger(data, found)
    return found


def _small(folder: Folder, item: tuple[str, str]) -> Checked:
    """A manifest beside the partitions', of which only the checksum is known."""
    path, checksum = item
    found = Checked(named=[path])
    with reported(found.problems, folder / path):
        data = read_regular(folder / path)
        found.files, found.size = 1, len(data)
        if sha256(data) != checksum:
            raise WorkError(f"{folder / path}: checksum differs from the published one")
    return found


def _decisions(where: Folder, data: bytes, counts: Counts) -> None:
    outcomes = parse_table(data, ["outcome"])["outcome"]
    found = {entry["values"]: entry["counts"] for entry in pc.value_counts(outcomes).to_pylist()}
    for name in ("removed", "quarantined"):
        rows, counted = found.get(name, 0), getattr(counts, name)
        if rows != counted:
            raise WorkError(f"{where}: {rows} rows {name}, counted {counted}")


def _count_ledger(data: bytes, found: Checked) -> None:
    rows = parse_table(data, ["source", "outcome", "stage"])
    for row in rows.group_by(rows.column_names, use_threads=False).aggregate([([], "count_all")]).to_pylist():
        stage = row["stage"] if row["outcome"] != KEPT else ""
        found.ledger[row["source"], row["outcome"], stage] += row["count_all"]


def _documents(counts: dict[str, Counts]) -> tuple[int, int, int, int]:
    total = sum(counts.values(), Counts())
    return total.docs_in, total.kept, total.removed, total.quarantined
