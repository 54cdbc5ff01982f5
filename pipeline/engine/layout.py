"""What a run says of itself when all of it is done: `manifest.json`, of a stage's command `run.json`; and what is there
of it, whatever it says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import sha256
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import MANIFEST, RunInputs, RunRecord, StageManifest, manifest_name
from corpusmill.schemas.recipe import FOLDERS
from corpusmill.schemas.shards import INDEX

if TYPE_CHECKING:
    from corpusmill.schemas.recipe import Recipe

INPUTS = "inputs.json"
LINEAGE = "lineage"  # lists of ids, made by the first look-up that needs them
RUN = "run.json"  # of a stage's command, whose stage has `manifest.json`
_PARTITIONS, _RECORD = (
    b'"partitions"',
    b'"corpusmill-run-',
)  # a key of a stage's manifest; the kind with which a record begins
BESIDE = ("ledger", "report")  # of a stage's command: never the stage itself


def stage_folders(stages: list[str], out: str) -> dict[str, str]:
    """Where a stage command publishes: the stage, the last one, straight in OUT; its ledger below, and a report that
    was asked for later; what comes before it below OUT/before."""
    *before, name = [stage for stage in stages if stage not in BESIDE]
    root = out.rstrip("/")
    return {
        name: out,
        **{stage: f"{root}/before/{stage}" for stage in before},
        **{stage: f"{root}/{stage}" for stage in BESIDE if stage in ("ledger", *stages)},
    }


def recipe_of(run: str) -> tuple[Recipe, bool]:
    """The recipe of a run, and whether it was a stage by itself, whose folder is laid out in its own way."""
    from corpusmill.common.config import validate
    from corpusmill.schemas.recipe import Recipe

    file = MANIFEST
    try:
        manifest = json.loads((Folder(run) / file).read())
        alone = "recipe" not in manifest
        if alone:
            file = RUN
            manifest = json.loads((Folder(run) / file).read())
        return validate(Recipe, manifest["recipe"], f"{run}/{file}"), alone
    except FileNotFoundError:
        raise UserError(
            f"{run}: no finished run there; give the folder of a run, such as runs/quickstart, or the OUT of a"
            " stage's command"
        ) from None
    except (ValueError, KeyError):
        raise UserError(f"{run}/{file}: not the manifest of a run") from None


def parse_inputs(data: bytes) -> RunInputs:
    """What `inputs.json` holds; nothing if it is no such file."""
    try:
        content = json.loads(data)
        if not isinstance(content.get("files"), dict):  # written before there was more in it than files
            content = {"files": content}
        return RunInputs.model_validate(content)
    except (ValueError, AttributeError):
        return RunInputs(files={})


def read_inputs(run: Folder) -> RunInputs:
    """The record of a run's input files; empty if there is none."""
    try:
        return parse_inputs((run / INPUTS).read())
    except FileNotFoundError:
        return RunInputs(files={})


def is_relative(path: str) -> bool:
    """Whether a path of a recipe depends on the directory in which the command is given."""
    return "://" not in path and not Path(path).expanduser().is_absolute()


def made_in(run: Folder, paths: Iterable[str]) -> str:
    """What to keep of the present directory for a run that reads `paths`."""
    if not run.local or not any(map(is_relative, paths)):
        return ""
    return os.path.relpath(Path.cwd(), os.path.realpath(run.url))


def where_made(run: Folder, kept: str) -> str:
    """That directory, from what was kept of it; "" if it is not known."""
    return os.path.normpath(f"{os.path.realpath(run.url)}/{kept}") if run.local and kept else ""


_TAR = re.compile(r"[^/]+/(train|validation)(-text)?/[^/]+\.tar")  # below a folder of shards


class Listed(NamedTuple):
    """A stage that a record lists: where it published, and the key that it had."""

    stage: str
    folder: Folder
    key: str

    @property
    def manifest(self) -> Folder:
        return self.folder / manifest_name(self.stage)


class Record(NamedTuple):
    """The record of a run, written after its last stage. `data`: its bytes."""

    file: Folder
    stages: list[Listed]
    run: RunRecord
    data: bytes

    def checksum(self, manifest: Folder) -> str:
        """The SHA-256 that it has of a stage's manifest; "" if it has none."""
        return self.run.checksums.get(below(self.file.parent, manifest), "")

    def manifests(self) -> dict[str, StageManifest]:
        """Stage -> its manifest, in the order of the run. Raises `UserError` where a stage is missing or of a later run, which was
        not finished, `WorkError` where a manifest is not the one of which the record has the checksum."""
        run, found = self.file.parent, {}
        for one in self.stages:
            try:
                data = one.manifest.read()
                found[one.stage] = StageManifest.model_validate_json(data)
            except (FileNotFoundError, ValidationError):
                raise UserError(
                    f"{one.folder}: {one.stage} is not finished; give the run's command again"
                ) from None
            if found[one.stage].key != one.key:
                raise UserError(
                    f"{run}: a later run changed {one.stage} and was not finished; give its command again"
                )
            if self.checksum(one.manifest) not in ("", sha256(data)):
                raise WorkError(
                    f"{one.manifest}: changed since the run ended; `corpusmill verify {run}` says what is damaged"
                )
        return found


def below(run: Folder, file: Folder) -> str:
    """The path of a file of a run, relative to the run's folder."""
    return file.path.removeprefix(run.path).lstrip("/")


def is_of_stage(manifest: bytes) -> bool:
    """Whether the bytes of a `manifest.json` are a stage's, and not the record of a run, which may have a source of any name."""
    return _PARTITIONS in manifest and _RECORD not in manifest[:64]


def stage_params(run: Folder, stage: str) -> dict[str, Any] | None:
    """What a stage of a run ran with, or of a stage's command, whose manifest lies in the folder itself; None if it is not there."""
    for file in (run / stage / MANIFEST, run / MANIFEST):
        try:
            data = file.read()
            manifest = StageManifest.model_validate_json(data) if is_of_stage(data) else None
        except (FileNotFoundError, ValidationError):
            continue
        if manifest is not None and manifest.stage == stage:
            return manifest.params
    return None


def read_record(run: Folder, read: Callable[[Folder], bytes] = Folder.read) -> Record | None:
    """The record of a run or of a stage's command, read by `read`; None if there is none: it is not finished, or it is one
    stage's folder of a run. Raises `WorkError` if there is one that cannot be read."""
    for name in (MANIFEST, RUN):
        file = run / name
        try:
            data = read(file)
        except FileNotFoundError:
            continue
        if name == MANIFEST and is_of_stage(data):
            continue
        try:
            found = RunRecord.model_validate_json(data)
        except ValidationError:
            raise WorkError(
                f"{file}: not the record of a run, or that of an earlier version; give the run's command again"
            ) from None
        places = folders_of(run, list(found.stages), name == RUN)
        listed = [Listed(name, places[name], one.key) for name, one in found.stages.items()]
        return Record(file, listed, found, data)
    return None


def folders_of(run: Folder, stages: list[str], alone: bool) -> dict[str, Folder]:
    """Where each stage of a run (`alone`: of a stage's command) published."""
    if not alone:
        return {stage: run / FOLDERS.get(stage, stage) for stage in stages}
    return {stage: Folder(url) for stage, url in stage_folders(stages, run.url).items()}


def manifest_paths(names: Iterable[str]) -> Iterator[str]:
    """Of the files of a run, those that may be manifests of stages: in the folder itself (a stage command's OUT), and one
    below."""
    for path in names:
        *parents, name = path.split("/")
        depth = 2 if parents[:1] == ["before"] else 1
        if name in (MANIFEST, f"_{MANIFEST}") and len(parents) <= depth:
            yield path


def without_manifest(
    run: Folder, names: Collection[str], read: Callable[[Folder], bytes] = Folder.read
) -> list[Folder]:
    """Folders of shards, of a run or of a command, that have no manifest among the files `names`; lists are read by `read`."""
    found = []
    for place in ("", "shards/"):
        inside = {name.removeprefix(place) for name in names if name.startswith(place)}
        folder = run / place
        if MANIFEST not in inside and (
            any(_TAR.fullmatch(name) for name in inside)
            or (INDEX in inside and b"corpusmill-shard-set" in read(folder / INDEX))
        ):
            found.append(folder)
    return found
