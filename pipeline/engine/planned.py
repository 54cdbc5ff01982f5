"""The stages of a run as planned: keys, and whether and why each must run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import ValidationError

from corpusmill.common.checkpoints import parse
from corpusmill.common.errors import WorkError
from corpusmill.common.format import quantity
from corpusmill.common.ids import sha256
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import LocalStage, Partition, Stage
from corpusmill.pipeline.engine.tasks import Step, as_partition
from corpusmill.schemas.manifest import (
    EXPIRED,
    TEXTS,
    Expired,
    PartitionManifest,
    StageManifest,
    manifest_name,
)
from corpusmill.schemas.recipe import LEDGER, STAGES, Recipe


@dataclass
class Planned:
    """One stage of a run: its key, and whether and why it must run."""

    stage: Stage
    folder: Folder
    key: str
    inputs: dict[str, str]
    done: StageManifest | None = None
    why: str = ""
    reads: list[str] = field(default_factory=list)
    expired: Expired | None = None  # the text of a finished stage is gone on purpose
    old_files: set[str] = field(default_factory=set)  # what an outdated manifest names: deleted when replaced

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def manifest(self) -> str:
        return manifest_name(self.name)

    @property
    def step(self) -> Step:
        across = isinstance(self.stage, LocalStage) and self.stage.looks_across
        return Step(self.name, self.key if across else self.stage.task_key(), self.folder)


def stages_of(recipe: Recipe) -> list[str]:
    """The names of all stages in order, the ledger among them."""
    names = recipe.stage_names
    names.insert(len(recipe.local), LEDGER)
    return names


def reads_of(name: str, names: list[str], local: list[str]) -> list[str]:
    """The stages whose output a stage depends on, of all of a run and its local ones, both in order."""
    if name in local:
        position = local.index(name)
        return local[position - 1 : position] if position else []
    if name == LEDGER:
        return local
    declared = STAGES[name].declared
    if declared.reads_all:
        return names[: names.index(name)]
    return [local[-1], *declared.reads, *(other for other in declared.may_read if other in names)]


def status(entry: Planned, params: dict[str, Any], recorded: str = "") -> tuple[StageManifest | None, str]:
    """The manifest of a stage that is finished and valid, or why it must run.

    `recorded`: the checksum of that manifest, where the record of a finished run with the same key has one.
    """
    try:
        data = (entry.folder / entry.manifest).read()
        manifest = StageManifest.model_validate_json(data)
    except FileNotFoundError:
        started = sum(1 for e in entry.folder.list() if e.path.startswith("parts/"))
        return (
            None,
            f"unfinished: {quantity(started, 'partition is', 'partitions are')} there"
            if started
            else "not run yet",
        )
    except ValidationError:
        return None, "its manifest cannot be read"
    entry.old_files = {file.path for file in manifest.files}
    if manifest.key != entry.key:
        changed = [n for n in sorted({*params, *manifest.params}) if params.get(n) != manifest.params.get(n)]
        if changed:
            return None, f"parameters changed: {', '.join(changed)}"
        if manifest.version != entry.stage.version:
            return None, f"code changed: version {manifest.version} -> {entry.stage.version}"
        return (
            None,
            f"input changed: {', '.join(_differences(manifest.inputs, entry.inputs)[:3]) or 'order'}",
        )
    if recorded and recorded != sha256(data):
        return None, "its manifest is not the one that was published"
    entry.expired = expired_of(entry.folder, manifest.key)
    sizes = {e.path: e.size for e in entry.folder.list()}
    wanted = list(manifest.files)
    try:
        parts = list(parts_of(entry.folder, manifest))
    except WorkError:
        return None, "the manifest of a partition is damaged"
    for name, part in zip(manifest.partitions, parts, strict=True):
        if part is None:
            return None, f"partition {name} is missing"
        wanted += [f for f in part.files if entry.expired is None or not f.path.startswith(TEXTS)]
    missing = next((path for path in manifest.checksums if path not in sizes), None)
    if missing is not None:
        return None, f"{missing} is missing"
    for file in wanted:
        if sizes.get(file.path) != file.bytes:
            return None, f"{file.path} is missing or has another size"
    return manifest, ""


def expired_of(folder: Folder, key: str) -> Expired | None:
    """What a stage of that key says of its text, if it was deleted on purpose."""
    found = parse(Expired, folder / EXPIRED)
    return found if found is not None and found.key == key else None


def groups(local: list[Planned]) -> list[list[Planned]]:
    """Consecutive stages that run as one task; one that looks across partitions begins a new group."""
    groups: list[list[Planned]] = []
    for entry in local:
        crosses = isinstance(entry.stage, LocalStage) and entry.stage.looks_across
        if groups and not crosses:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return groups


def part_of(folder: Folder, manifest: StageManifest, name: str) -> PartitionManifest | None:
    """The manifest of a stage's partition; None if there is none. Raises `WorkError` if it is not the one that the stage
    published."""
    path = f"parts/{name}.json"
    try:
        data = (folder / path).read()
    except FileNotFoundError:
        return None
    if (recorded := manifest.checksums.get(path)) is not None and recorded != sha256(data):
        raise WorkError(f"{folder / path}: its bytes changed since they were published; delete it, run again")
    return PartitionManifest.from_json(data, folder / path)


def parts_of(folder: Folder, manifest: StageManifest) -> Iterator[PartitionManifest | None]:
    """The same of all partitions, in their order; reads from a remote store wait together."""
    return folder.at_once(partial(part_of, folder, manifest), manifest.partitions)


def partitions_of(folder: Folder, manifest: StageManifest) -> list[Partition]:
    """The partitions that a finished stage published, in their order. Raises `WorkError` where the manifest of one is gone, or is
    not the one that was published."""
    found = []
    for name, part in zip(manifest.partitions, parts_of(folder, manifest), strict=True):
        if part is None:
            raise WorkError(
                f"{folder}/parts/{name}.json: missing; `corpusmill verify` names all that is damaged"
            )
        found.append(as_partition(folder, part))
    return found


def _differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
