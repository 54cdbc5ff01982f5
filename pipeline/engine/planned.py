"""The stages of a run as planned: keys, and whether and why each must run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from corpusmill.common.checkpoints import parse
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import LocalStage, Stage
from corpusmill.pipeline.engine.tasks import Step
from corpusmill.schemas.manifest import (
    EXPIRED,
    TEXTS,
    Expired,
    PartitionManifest,
    StageManifest,
    manifest_name,
)


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


def status(entry: Planned, params: dict[str, Any]) -> tuple[StageManifest | None, str]:
    """The manifest of a stage that is finished and valid, or why it must run."""
    try:
        manifest = StageManifest.model_validate_json((entry.folder / entry.manifest).read())
    except FileNotFoundError:
        started = sum(1 for e in entry.folder.list() if e.path.startswith("parts/"))
        return None, f"unfinished: {started} partitions are there" if started else "not run yet"
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
    entry.expired = expired_of(entry.folder, manifest.key)
    sizes = {e.path: e.size for e in entry.folder.list()}
    wanted = list(manifest.files)
    for name in manifest.partitions:
        part = part_of(entry.folder, name)
        if part is None:
            return None, f"partition {name} is missing"
        wanted += [f for f in part.files if entry.expired is None or not f.path.startswith(TEXTS)]
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


def part_of(folder: Folder, name: str) -> PartitionManifest | None:
    """The manifest of a stage's partition; None if there is none."""
    try:
        return PartitionManifest.model_validate_json((folder / f"parts/{name}.json").read())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise WorkError(
            f"{folder}/parts/{name}.json: not a partition manifest; delete it, run again"
        ) from error


def _differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
